/* env/remote/stdio_env.h: environments of which only the carrier is their own: who can start `python3 -u -c LOADER` somewhere and
 * move the bytes of its standard streams has an environment (env/remote/remote.h does the rest). The clouds and
 * bridges are of this kind.
 */
#ifndef DROSTE_ENV_REMOTE_STDIO_ENV_H
#define DROSTE_ENV_REMOTE_STDIO_ENV_H

#include "env/common/environment.h"
#include "wire/link.h"

struct transport; /* the standard streams of one supervisor */

struct transport_ops {
    const char *name;
    const struct features *features; /* NULL: those of a carrier that knows nothing of the spec */
    enum link_form form;             /* of the link that it needs */
    uint32_t traits;                 /* TRAIT_VOLUMES; the others are set */
    double
        lease; /* seconds without a word after which the supervisor ends itself; 0: the end of its input ends it */
    const enum limit_means
        *means; /* what enforces each limit there; NULL: rlimits, where they can */
    /* Starts the program, whose words end with a NULL, and says with `own` how it is called from now on. The
     * functions below may be called from then on, but not from within. */
    int (*start)(void *arg, struct transport *c, const struct sandbox_spec *spec,
        const char *const *words, void **own, struct error *err);
    /* Takes all bytes for its standard input. */
    void (*write)(void *own, const struct iovec *iov, int count);
    /* Bytes that it has taken and its far end has not. NULL: not known. */
    size_t (*waiting)(void *own);
    /* While it is paused, its output is better left where it is. May be NULL. */
    void (*pause)(void *own, bool paused);
    /* Ends the program with all that it started, and forgets it: nothing more is told. */
    void (*end)(void *own);
    /* As in environment_ops: true where transport_finished is called later. `end` follows in any
     * case. May be NULL. */
    bool (*finish)(void *own);
    /* With TRAIT_VOLUMES: where the guest sees the volume; NULL: it has none. */
    const char *(*volume)(void *own);
    /* The directories over there that have the copy of a volume of this machine (unless TRAIT_VOLUMES), and of staged files;
     * NULL: a new one, which ends with the guest. */
    const char *volume_copy, *workspace;
    /* As in environment_ops; may be NULL. */
    const char *(*id)(void *own);
    bool (*settling)(const void *arg);
    int (*collect)(void *arg, environment_collected_fn *done, void *done_arg, struct error *err);
    void (*describe)(void *own, struct buf *out);
    void (*free)(void *arg);
};

/* `arg` is the environment's now, also where this fails. The ops last as long as the environment. */
int stdio_env_open(struct loop *loop, const struct transport_ops *ops, void *arg,
    struct environment **out, struct error *err);

/* What the carrier tells. It stands: the first time, and again after a cut. */
void transport_joined(struct transport *c);
/* Bytes of the program's standard output. */
void transport_bytes(struct transport *c, const char *data, size_t len);
/* It is lost, and may stand again. */
void transport_cut(struct transport *c);
/* What `finish` was called for is done (ERROR_NONE), or why it is not. */
void transport_finished(struct transport *c, const struct error *why);
/* A line for people about what takes its time. */
void transport_notice(struct transport *c, const char *text);
/* It is gone for good, or never was; the last that is told. ERROR_NONE: the program ended by itself. */
void transport_ended(struct transport *c, const struct error *why);

#endif
