/* cluster/bus.h: the bus between nodes: messages, streams, work queues and key-value buckets.
 *
 * The one implementation is NATS with JetStream (nats.c, jetstream.c). A single machine has no
 * bus: the pointer is NULL, and its server does everything itself.
 *
 * Everything runs in the thread of the libuv loop that bus_open was given, and no function but
 * bus_open and bus_close waits. An operation ends by calling its `done` exactly once, from
 * the loop and never before the function returns, except without memory. The answer and what it
 * points to are valid during that call. `done` may be NULL where the outcome does not matter.
 *
 * What an answer proves:
 *   BUS_OK            it was done; a publication is on the disks of a majority of its replicas
 *   BUS_DISCONNECTED  it was not sent
 *   BUS_TIMEOUT       it may or may not have been done: ask, or repeat it with the same id
 * An operation that was sent before the connection was lost ends with BUS_TIMEOUT.
 *
 * The bus reconnects by itself, without end. Watches and subscriptions survive that.
 *
 * Names of streams, consumers and buckets are [A-Za-z0-9_-]{1,64}. Subjects and keys are words of
 * [A-Za-z0-9_=/-] joined by '.', at most 200 bytes; '*' stands for a word and '>' for the rest in
 * filters. Any other name ends with BUS_REFUSED. A message has at most
 * BUS_MESSAGE_MAX bytes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"

struct bus;

enum { BUS_MESSAGE_MAX = 1000000, BUS_SUBJECT_MAX = 200, BUS_NAME_MAX = 64 };

/* ---- the connection ---- */

struct bus_options {
    const char *urls;        /* "nats://HOST:PORT[,…]"; "tls://" asks for TLS */
    const char *name;        /* of this client, for the server's logs; NULL: none */
    const char *credentials; /* a file with a JWT and an NKey's seed (nsc's .creds); NULL: none */
    const char *ca, *certificate, *certificate_key; /* PEM files; NULL: the system's, none */
    int connect_ms;                                 /* that bus_open waits; 0: five seconds */
    int replicas; /* of streams and buckets; 0: three, or one if the server stands alone */
    void (*changed)(void *arg, bool is_connected); /* NULL: not wanted */
    void *arg;
};

/* Loads libnats and connects. ERROR_UNSUPPORTED: the library is not there; ERROR_IO: no server
 * answered; ERROR_PERMISSION: the server refused the credentials. */
int bus_open(
    uv_loop_t *loop, const struct bus_options *options, struct bus **out, struct error *err);
/* Not from one of its callbacks. Calls no `done` of what is under way. Its handles are gone
 * when the loop has run again. NULL is fine. */
void bus_close(struct bus *b);
bool bus_is_connected(const struct bus *b);
/* The server's address without user and password; "" while there is no connection. */
const char *bus_server(const struct bus *b);
/* Ends operations, subscriptions and watches with this argument: their callbacks are not called
 * any more. For the end of their owner. Messages of its fetches are returned to their consumer. */
void bus_forget(struct bus *b, const void *arg);

/* ---- answers ---- */

enum bus_result {
    BUS_OK,
    BUS_CONFLICT,      /* the subject or key has another sequence than was expected */
    BUS_NOT_FOUND,     /* no such stream, consumer, bucket, key or message */
    BUS_NO_RESPONDERS, /* no subscriber, or no stream, has this subject, perhaps for now */
    BUS_TIMEOUT,       /* see above */
    BUS_DISCONNECTED,  /* see above */
    BUS_FULL,          /* a limit of the stream */
    BUS_REFUSED,       /* anything else */
};

struct bus_answer {
    enum bus_result result;
    const char *why;   /* in words, unless BUS_OK; never NULL */
    uint64_t sequence; /* of the publication, or of the value: a bucket's revision */
    bool is_duplicate; /* a publication with this id was there already */
    const char *data;  /* the answer to a request, a value; ends with NUL; NULL: none */
    size_t len;
    int64_t stored_ms;        /* of a value or stored message: since 1970, by the server's clock */
    uint64_t messages, bytes; /* of a stream; messages that wait, of a consumer */
    uint64_t unacknowledged;  /* of a consumer */
};
typedef void bus_done_fn(void *arg, const struct bus_answer *answer);

/* ---- messages ---- */

/* A received message. A bus_message_fn owns its message, and ends it with exactly one of
 * bus_reply, bus_ack, bus_nak, bus_term and bus_message_free, at any time before
 * bus_close. */
struct bus_message {
    const char *subject;
    const char *data; /* ends with NUL; not trusted */
    size_t len;
    /* Set by bus_fetch only. */
    const char *id;     /* with which it was published (struct bus_publication); "": none */
    uint64_t sequence;  /* in its stream */
    uint64_t delivered; /* how often it was delivered; 1: for the first time */
    uint64_t waiting;   /* others that wait for its consumer */
    int64_t stored_ms;  /* since 1970, by the server's clock */
};
typedef void bus_message_fn(void *arg, struct bus_message *m);

void bus_message_free(struct bus_message *m); /* NULL is fine */

/* Requests and answers in memory: each arrives at most once. */
void bus_request(struct bus *b, const char *subject, const void *data, size_t len, int timeout_ms,
    bus_done_fn *done, void *arg);
/* Without an answer. False: it was not sent. */
bool bus_tell(struct bus *b, const char *subject, const void *data, size_t len);
/* Messages of this subject (a filter) come to `on_message`; of subscribers in the same group, one
 * gets each. Lasts until bus_forget or bus_close. */
int bus_subscribe(struct bus *b, const char *subject, const char *group, bus_message_fn *on_message,
    void *arg, struct error *err);
/* Answers a request; does nothing for a message that asks for no answer. */
void bus_reply(struct bus_message *m, const void *data, size_t len);

/* ---- streams: what is kept ---- */

enum bus_retention {
    BUS_KEEP, /* until a limit */
    BUS_WORK, /* until it is acknowledged: a work queue */
};

/* 0: no limit. */
struct bus_stream {
    const char *name;
    const char *const *subjects; /* filters; ends with NULL */
    enum bus_retention retention;
    int64_t age_ms, duplicates_ms; /* how long ids are remembered; 0: two minutes */
    int64_t messages, bytes, messages_of_subject;
    bool refuses_when_full; /* BUS_FULL; otherwise the oldest messages go */
    bool is_in_memory;      /* of the servers: lost when they all stop */
};

/* Makes a stream; one that is there with another configuration is left as it is. */
void bus_stream_make(struct bus *b, const struct bus_stream *stream, bus_done_fn *done, void *arg);
/* answer->messages, bytes, sequence (the last one's). */
void bus_stream_info(struct bus *b, const char *stream, bus_done_fn *done, void *arg);
/* The last message of a subject, as the stream's leader has it: data, sequence. */
void bus_stream_last(
    struct bus *b, const char *stream, const char *subject, bus_done_fn *done, void *arg);
/* The first message of a filter with this sequence or a later one. BUS_NOT_FOUND: none. */
void bus_stream_next(struct bus *b, const char *stream, const char *subject, uint64_t sequence,
    bus_done_fn *done, void *arg);

struct bus_publication {
    const char *subject;
    const void *data;
    size_t len;
    const char *id;        /* one with the same id is kept once; NULL: none */
    bool expects_sequence; /* BUS_CONFLICT unless `sequence` is the last of this subject */
    uint64_t sequence;     /* 0: the subject has no message */
    int timeout_ms;        /* 0: five seconds */
};
/* answer->sequence, is_duplicate. BUS_NO_RESPONDERS: no stream has this subject. */
void bus_publish(
    struct bus *b, const struct bus_publication *publication, bus_done_fn *done, void *arg);

/* ---- consumers: what was taken from a stream, and acknowledged ---- */

struct bus_consumer {
    const char *stream, *name;
    const char *filter;          /* NULL: all */
    int64_t ack_ms;              /* without an acknowledgement it is delivered again */
    int64_t most_delivered;      /* 0: no limit. After that it stays in the stream, undelivered */
    int64_t most_unacknowledged; /* of all fetches; 0: the server's default, 1,000 */
};
/* Makes a durable consumer; one that is there is changed to this. */
void bus_consumer_make(
    struct bus *b, const struct bus_consumer *consumer, bus_done_fn *done, void *arg);
/* answer->messages, unacknowledged. */
void bus_consumer_info(
    struct bus *b, const char *stream, const char *consumer, bus_done_fn *done, void *arg);
/* Gets messages, each with `on_message` as it comes, until `count` (1 to 256) have come or
 * `wait_ms` are over (0: only what is there). Then `done` says how it ended: BUS_OK, also if
 * there were few or none. After another result, messages that the server had sent may have been
 * lost on their way; they come again after `ack_ms`. */
void bus_fetch(struct bus *b, const char *stream, const char *consumer, unsigned count, int wait_ms,
    bus_message_fn *on_message, bus_done_fn *done, void *arg);

/* Done with the message: it is not delivered again. With `done`, the server confirms that
 * (BUS_OK); only then is it certain. */
void bus_ack(struct bus_message *m, bus_done_fn *done, void *arg);
/* Not done: it is delivered again after `delay_ms`. */
void bus_nak(struct bus_message *m, int64_t delay_ms);
/* Work in progress: `ack_ms` begins again. Keeps the message. */
void bus_progress(struct bus_message *m);
/* Terminates the message: it is never delivered again. */
void bus_term(struct bus_message *m);

/* ---- buckets: keys and values ---- */

struct bus_bucket {
    const char *name;
    int64_t ttl_ms;    /* values expire so long after they were written, without an event for
                          watches; 0: never */
    int64_t value_max; /* bytes; 0: BUS_MESSAGE_MAX */
    int64_t bytes;     /* of all; 0: no limit */
    bool is_in_memory; /* of the servers: lost when they all stop */
};

void bus_bucket_make(struct bus *b, const struct bus_bucket *bucket, bus_done_fn *done, void *arg);
/* answer->data, sequence (the revision). */
void bus_get(struct bus *b, const char *bucket, const char *key, bus_done_fn *done, void *arg);
/* answer->sequence: the new revision. */
void bus_put(struct bus *b, const char *bucket, const char *key, const void *data, size_t len,
    bus_done_fn *done, void *arg);
/* BUS_CONFLICT: the key has a value. */
void bus_create(struct bus *b, const char *bucket, const char *key, const void *data, size_t len,
    bus_done_fn *done, void *arg);
/* BUS_CONFLICT: the key has another revision. A lease is a key that its holder updates: a
 * holder that gets a conflict has lost it. */
void bus_update(struct bus *b, const char *bucket, const char *key, uint64_t revision,
    const void *data, size_t len, bus_done_fn *done, void *arg);
/* revision 0: any. */
void bus_delete(struct bus *b, const char *bucket, const char *key, uint64_t revision,
    bus_done_fn *done, void *arg);

/* Of a watch: a key's value. data NULL: it was deleted. key NULL: all that was there has come. */
struct bus_entry {
    const char *key;
    const char *data; /* ends with NUL; not trusted */
    size_t len;
    uint64_t revision;
    int64_t written_ms; /* by the clock of the server, since 1970 */
};
typedef void bus_entry_fn(void *arg, const struct bus_entry *entry);
/* Calls on_entry with all that is there, then with an entry without a key, then with each change.
 * After a lost connection or message all that is there comes again, with its end. Lasts until
 * bus_forget or bus_close; begins as soon as the bucket is there. */
int bus_watch(struct bus *b, const char *bucket, const char *filter, bus_entry_fn *on_entry,
    void *arg, struct error *err);
