/* env/remote/remote.h: sandboxes behind one byte stream, with the supervisor at its far end
 * (guest/python/remote/supervisor.py).
 *
 * An environment provides the transport: it starts `python3 -u -c LOADER`, moves bytes to and from
 * its standard streams, and reports when these are connected.
 *
 * The supervisor is as untrusted as the code that runs beside it. Events may not free the remote or
 * close one of its sandboxes.
 */
#pragma once

#include "base/json/json.h"
#include "env/common/environment.h"
#include "env/remote/boot.h"

struct remote;
struct fair_reading;

struct remote_options {
    struct boot_options boot;
    struct fair_reading *fair_reading; /* the environment's scheduler of guest output; NULL: none */
    /* What enforces each limit there, for usage reports. A worker sets its own rlimits. */
    enum limit_means means[LIMIT_COUNT];
};

struct remote_events {
    /* Accepts all bytes, in order, and copies those that must wait. Called only while connected,
     * and from within any function below. */
    void (*write)(void *arg, const struct iovec *iov, int count);
    /* The supervisor has started; `facts` is the object in its HELLO. */
    void (*ready)(void *arg, struct json_object *facts);
    /* It violated the protocol or cannot start (no Python, or too old). The environment ends the
     * far end and then calls remote_ended. */
    void (*failed)(void *arg, const struct error *why);
    /* remote_wants_more has become true again. NULL without fair reading. */
    void (*more)(void *arg);
    /* Bytes that `write` has accepted and the far end has not received. NULL: not known. */
    size_t (*waiting)(void *arg);
};

int remote_open(struct loop *loop, const struct remote_options *options,
    const struct remote_events *events, void *arg, struct remote **out, struct error *err);
/* The transport is connected, for the first time (the loader then sends its greeting) or again. */
void remote_connected(struct remote *r);
/* The transport is cut; messages wait. The environment discards its unwritten bytes. */
void remote_disconnected(struct remote *r);
/* Bytes of the supervisor's standard output. */
void remote_feed(struct remote *r, const char *data, size_t len);
/* To be checked after each remote_feed. False: stop reading the transport for now. True after a
 * failure, when input is discarded, so that the end of the stream is noticed. */
bool remote_wants_more(const struct remote *r);
/* The end of what was received before the loader's greeting, made printable, for error messages. */
void remote_noise(const struct remote *r, struct buf *out);
/* The far end is gone for good: every sandbox that has not ended gets `ended` with `how`. */
void remote_ended(struct remote *r, const struct sandbox_exit *how);
/* All its sandboxes must be closed. NULL is fine. */
void remote_free(struct remote *r);

/* Opens a worker, possibly before the first remote_connected. No event fires within open and send.
 * Of the specification, only limits and `preload` are used here; the rest is the environment's
 * task. */
int remote_open_sandbox(struct remote *r, const struct sandbox_spec *spec,
    const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err);
/* Opens a worker beside another, in its directory and with its limits (open_companion). */
int remote_open_companion(struct sandbox *of, const struct sandbox_events *events, void *arg,
    struct sandbox **out, struct error *err);
int remote_send(struct sandbox *s, const struct iovec *iov, int count, int fd, struct error *err);
size_t remote_unread(const struct sandbox *s);
void remote_hold_channel(struct sandbox *s, bool on);
void remote_begin_operation(struct sandbox *s);
void remote_charge(struct sandbox *s, uint64_t ns);
void remote_interrupt(struct sandbox *s);
void remote_kill(struct sandbox *s);
void remote_drain(struct sandbox *s); /* output arrives in order anyway */
bool remote_is_cut(const struct sandbox *s);
void remote_usage(const struct sandbox *s, struct sandbox_usage *out);
/* Kills the worker if it lives; no event follows. NULL is fine. */
void remote_close_sandbox(struct sandbox *s);

/* ---- for files.c ---- */

/* Opens a worker of another kind. `json` is the content of START; the content of the file `source`
 * (-1: none), which is owned from now on, follows as flow control allows. */
int remote_open_worker(struct remote *r, const struct buf *json, int source,
    const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err);
/* Sandboxes that are opened from now on wait. */
void remote_hold(struct remote *r);
/* Ends one remote_hold. After the last one, waiting sandboxes start, or end with this error (NULL:
 * none). */
void remote_release(struct remote *r, const struct error *why);

/* Kills its worker and calls `ended`. */
void remote_end_sandbox(struct sandbox *s, const struct sandbox_exit *how);

struct remote *remote_of(const struct sandbox *s);
/* The `arg` of remote_open. */
void *remote_arg(const struct remote *r);
