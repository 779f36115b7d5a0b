/* env/remote/remote.h: sandboxes behind one byte stream, on whose far end is our supervisor
 * (guest/python/remote/supervisor.py). An environment brings the carrier: it has `python3 -u -c LOADER` started, moves
 * bytes to and from its standard streams, and says when those are connected.
 *
 * The supervisor is as hostile as the code that runs beside it. None of the events may free the remote or
 * close one of its sandboxes.
 */
#ifndef DROSTE_ENV_REMOTE_REMOTE_H
#define DROSTE_ENV_REMOTE_REMOTE_H

#include "base/json/json.h"
#include "env/common/environment.h"
#include "wire/link.h"

struct remote;
struct fair_reading;

struct remote_options {
    enum link_form form; /* LINK_BARE or LINK_TEXT */
    double lease;  /* seconds after which a supervisor that hears nothing ends itself; 0: never */
    bool eof_ends; /* so does the end of its standard input */
    struct fair_reading
        *fair_reading; /* the environment's; who says much waits for its turn. NULL: nobody does */
    /* What enforces each limit there, as usage reports it; those by rlimit are the worker's own. */
    enum limit_means means[LIMIT_COUNT];
};

struct remote_events {
    /* Takes all bytes, in order; copies what has to wait. Only while connected. May be called from
     * within any function here. */
    void (*write)(void *arg, const struct iovec *iov, int count);
    /* The supervisor is there: facts is the object of its HELLO. */
    void (*ready)(void *arg, struct json_object *facts);
    /* It broke the protocol, or cannot boot (no Python, too old): nothing more comes of it. The
     * environment ends the far end, and then calls remote_ended. */
    void (*failed)(void *arg, const struct error *why);
    /* remote_wants_more is true again. NULL where there are no turns. */
    void (*more)(void *arg);
    /* Bytes that `write` has taken and the far end has not. NULL: not known. */
    size_t (*waiting)(void *arg);
};

/* The text for python3 -u -c. */
const char *remote_loader(void);

int remote_open(struct loop *loop, const struct remote_options *options,
    const struct remote_events *events, void *arg, struct remote **out, struct error *err);
/* The carrier stands: the first time, and then the loader speaks first, or again. */
void remote_connected(struct remote *r);
/* It is cut; what is sent waits. What the environment has not written of it yet it throws away. */
void remote_disconnected(struct remote *r);
/* Bytes of the supervisor's standard output. */
void remote_feed(struct remote *r, const char *data, size_t len);
/* Asked after each remote_feed. False: the carrier is not to be read for now. After a failure it is true: what comes
 * is passed over, and so is found when the far end has closed it. */
bool remote_wants_more(const struct remote *r);
/* What was said before the loader's word, the last of it, made printable: for error messages. */
void remote_noise(const struct remote *r, struct buf *out);
/* The far end is gone for good: `ended` of every sandbox is told `how`, if it has not been. */
void remote_ended(struct remote *r, const struct sandbox_exit *how);
/* All of its sandboxes are closed. NULL is fine. */
void remote_free(struct remote *r);

/* A worker; may be opened before the first remote_connected. As environment_ops say, and the environment's
 * own table of them, which has those below in it; no event comes from within open and send. What a
 * spec asks for but limits and `preload` is the environment's business. */
int remote_open_sandbox(struct remote *r, const struct environment_ops *ops,
    const struct sandbox_spec *spec, const struct sandbox_events *events, void *arg,
    struct sandbox **out, struct error *err);
int remote_send(struct sandbox *s, const struct iovec *iov, int count, int fd, struct error *err);
size_t remote_unread(const struct sandbox *s);
void remote_hold_channel(struct sandbox *s, bool on);
void remote_attend(struct sandbox *s);
void remote_charge(struct sandbox *s, uint64_t ns);
void remote_interrupt(struct sandbox *s);
void remote_kill(struct sandbox *s);
void remote_drain(struct sandbox *s); /* output comes in its order anyway */
bool remote_is_cut(const struct sandbox *s);
void remote_usage(const struct sandbox *s, struct sandbox_usage *out);
/* Kills the worker if it lives; no event follows. NULL is fine. */
void remote_close_sandbox(struct sandbox *s);

/* ---- for files.c ---- */

/* A worker of another kind: `json` is what START says, and what is in the file `source` (-1: none), which it takes, goes to it
 * as it takes it. */
int remote_open_worker(struct remote *r, const struct environment_ops *ops, const struct buf *json,
    int source, const struct sandbox_events *events, void *arg, struct sandbox **out,
    struct error *err);
/* Sandboxes that are opened from now on wait. */
void remote_hold(struct remote *r);
/* As often as it was called: they start, or end with this error (NULL: none). */
void remote_release(struct remote *r, const struct error *why);

/* Tells `ended`; its worker is killed. */
void remote_end_sandbox(struct sandbox *s, const struct sandbox_exit *how);

struct remote *remote_of(const struct sandbox *s);
/* What remote_open was given. */
void *remote_arg(const struct remote *r);
/* How many are open. */
unsigned remote_sandboxes(const struct remote *r);

#endif
