/* cluster/nats_internal.h: what the files of the bus on NATS share.
 *
 * Four kinds of threads: the loop's; the sender, which writes to the socket, because a write may
 * block while a server is stopped; and libnats' own, which read and deliver. The loop's thread and
 * the others meet only in `struct handover`: a queue in each direction under one lock, bounded in
 * bytes, and a uv_async that wakes the loop.
 *
 * JetStream's operations are requests to subjects ($JS.API.…) with JSON. libnats' own functions for
 * them block their caller, and would need a thread each; here each operation is a `struct call`
 * with an inbox of its own below one subscription, so thousands can be under way in one thread.
 * A message of a stream has the subject under which it was published, not that of the inbox to
 * which it is delivered, so fetches and watches have subscriptions of their own.
 */
#pragma once

#include <uv.h>

#include "base/json/json.h"
#include "cluster/bus.h"
#include "cluster/handover.h"
#include "cluster/nats_library.h"

struct call;

enum { BUS_CALLS_MAX = 16384, BUS_TIMEOUT_MS = 5000 };

struct bus {
    const struct nats_library *nats;
    struct handover *x;
    uv_loop_t *loop;
    uv_async_t *async;
    uv_timer_t *timer;
    struct bus_options options;
    bool is_connected, has_early;
    char server[128];
    char inbox[48]; /* "_INBOX.….": calls add their slot and generation */
    struct call **calls;
    size_t call_count, call_room, calls_open;
    uint32_t generation;
    nats_subscription *inbox_handle;
    struct subscription *subscriptions;
};

/* An operation under way. */
struct call {
    struct bus *b;
    size_t slot;
    uint32_t generation;
    uint64_t deadline_ns; /* UINT64_MAX: none */
    /* An answer has come to its inbox. */
    void (*take)(struct call *c, nats_message *m);
    /* A message of its subscription; it is kept by setting *m to NULL. */
    void (*receive)(struct call *c, nats_message **m);
    /* The connection is there again, or the deadline is over. NULL: the call ends then, and when
     * the connection is lost. */
    void (*renew)(struct call *c);
    bus_done_fn *done; /* NULL: not wanted */
    void *arg;
    enum bus_result early; /* how it ends before its time, if not BUS_OK */
    const char *early_why;
    void *state; /* of its kind; freed with it */
    void (*drop)(void *state);
    struct subscription *subscription; /* of a fetch or watch */
    bool is_forgotten;
};

/* A new call, whose operation is then sent with call_send. NULL: without memory, or there are too
 * many; `done` was called. timeout_ms negative: without a deadline. */
struct call *call_new(struct bus *b, int timeout_ms, void (*take)(struct call *, nats_message *),
    bus_done_fn *done, void *arg);
/* A header field's name and value. */
struct field {
    const char *name, *value;
};
/* Sends a message with the call's inbox as its reply; `fields` (NULL: none) end with a NULL name.
 * If it cannot be sent, the call ends soon. */
void call_send(
    struct call *c, const char *subject, const void *data, size_t len, const struct field *fields);
/* The call ends soon, from the loop. */
void call_end_early(struct call *c, enum bus_result result, const char *why);
/* The call with this inbox; NULL: it has ended. */
struct call *call_find(struct bus *b, const char *subject);
/* Ends calls whose time is up, and those that ended early. */
void calls_sweep(struct bus *b, uint64_t now_ns);
/* Frees the call without calling `done`. */
void call_free(struct call *c);
/* Calls `done`, and frees the call. */
void call_end(struct call *c, const struct bus_answer *answer);
void call_end_as(struct call *c, enum bus_result result, const char *why);
/* The same with another inbox: "STEM" and the call's own word. */
void call_send_from(struct call *c, const char *stem, const char *subject, const void *data,
    size_t len, const struct field *fields);
/* A subscription for messages of streams; NULL: it failed. To its inbox alone if it is `exact`,
 * otherwise to each word behind that, which ends with '.'. */
struct subscription *subscription_new(struct bus *b, bool is_exact);
/* Ends it, and frees it when nothing can come from it any more. */
void subscription_end(struct subscription *s);
/* Sends a message for which no answer is awaited. */
bool bus_send_as(struct bus *b, const char *subject, const char *reply, const void *data,
    size_t len, const struct field *fields);
bool bus_send(struct bus *b, const char *subject, const void *data, size_t len);

/* A message's header field; NULL: none. */
const char *message_field(const struct bus *b, nats_message *m, const char *name);
/* The status of a message of the server's (503: there is no responder); 0: it has none. */
int message_status(const struct bus *b, nats_message *m);
/* Reads what the reply's subject of a stream's message says: "$JS.ACK.…". */
struct message_origin {
    const char *consumer; /* not ended by NUL */
    size_t consumer_len;
    uint64_t delivered, sequence, consumer_sequence, time_ns, waiting;
};
bool message_read_origin(const char *reply, struct message_origin *out);
struct message {
    struct bus_message public; /* first */
    struct bus *b;
    nats_message *nats;
};
/* Answers it, and keeps it. */
void message_respond(struct bus_message *m, const void *data, size_t len);
/* Takes the message. NULL without memory. */
struct bus_message *message_new(struct bus *b, nats_message *m);

bool bus_name_is_ok(const char *name);
bool bus_subject_is_ok(const char *subject, bool may_be_filter);
