/* env/remote/stdio_env.h: environments that only provide a transport.
 *
 * Given a way to start `python3 -u -c LOADER` somewhere and to move the bytes of its standard
 * streams, this file implements an environment (on top of env/remote/remote.h). The clouds and
 * bridges use it.
 */
#pragma once

#include "env/common/environment.h"
#include "wire/link.h"

struct transport; /* the standard streams of one supervisor */

struct transport_ops {
    const char *name;
    const struct feature_state *features; /* indexed by enum feature */
    enum link_form form;                  /* the link's encoding on this transport */
    uint32_t traits;                      /* TRAIT_VOLUMES; the others are set here */
    /* seconds without a message after which the supervisor ends itself; 0: it ends with its
     * input */
    double lease;
    /* Starts the program, whose arguments end with NULL, and stores its handle in `own`. The
     * functions below may be called from then on, but not from within. */
    int (*start)(void *arg, struct transport *c, const struct sandbox_spec *spec,
        const char *const *words, void **own, struct error *err);
    /* Accepts all bytes for its standard input. */
    void (*write)(void *own, const struct iovec *iov, int count);
    /* Bytes that `write` has accepted and the far end has not received. NULL: not known. */
    size_t (*waiting)(void *own);
    /* While paused, output should not be read. May be NULL. */
    void (*pause)(void *own, bool paused);
    /* Ends the program and all its processes, and forgets it: no event follows. */
    void (*end)(void *own);
    /* As in environment_ops: true if transport_finished is called later. `end` follows in any case.
     * May be NULL. */
    bool (*finish)(void *own);
    /* With TRAIT_VOLUMES: the volume's path in the guest; NULL: it has none. */
    const char *(*volume)(void *own);
    /* The remote directory for the copies of staged files; NULL: a temporary one, removed with the
     * guest. */
    const char *workspace;
    /* As in environment_ops; may be NULL. */
    const char *(*id)(void *own);
    bool (*settling)(const void *arg);
    int (*collect)(void *arg, environment_collected_fn *done, void *done_arg, struct error *err);
    void (*describe)(void *own, struct buf *out);
    void (*free)(void *arg);
};

/* Takes ownership of `arg`, also on failure. `ops` must outlive the environment. */
int stdio_env_open(struct loop *loop, const struct transport_ops *ops, void *arg,
    struct environment **out, struct error *err);

/* Events of the transport. Connected, for the first time or again. */
void transport_joined(struct transport *c);
/* Bytes of the program's standard output. */
void transport_bytes(struct transport *c, const char *data, size_t len);
/* The connection is lost, maybe temporarily. */
void transport_cut(struct transport *c);
/* The shutdown that `finish` started is complete (ERROR_NONE) or failed. */
void transport_finished(struct transport *c, const struct error *why);
/* A line for the user about a slow step. */
void transport_notice(struct transport *c, const char *text);
/* It has ended for good, or could not start; the last event. ERROR_NONE: the program ended by
 * itself. */
void transport_ended(struct transport *c, const struct error *why);
