/* env/local/zygote.h: the host's side of a zygote (guest/zygote/zygote.c): start it, have it clone. */
#ifndef DROSTE_ENV_LOCAL_ZYGOTE_H
#define DROSTE_ENV_LOCAL_ZYGOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/loop.h"
#include "env/local/cgroup.h"
#include "env/common/environment.h"
#include "env/common/scratch_dir.h"
#include "jail/jail.h"
#include "jail/zygote_wire.h"

struct zygote;

/* What became of a clone. */
struct zygote_answer {
    int pidfd; /* of the keeper, the receiver's; -1 if the clone failed */
    pid_t pid; /* the same as a number */
    int sys;   /* then the errno; ESRCH: the zygote is dead */
};
typedef void zygote_fn(void *arg, struct zygote_answer *answer);

/* Starts an interpreter, waits until it is warm and has carried out its plan. Blocks for as long as
 * the interpreter needs to start (tens of milliseconds; at most 30 s). `groups` are where it is to
 * be, or NULL. ERROR_NOT_FOUND, ERROR_ENVIRONMENT (not a Python), ERROR_UNSUPPORTED (this isolation
 * cannot be had here). */
int zygote_start(struct loop *loop, const struct sandbox_spec *spec, struct cgroups *groups,
    struct zygote **out, struct error *err);
/* True if a sandbox of this spec may come from this zygote: which of the volumes of one place it has is
 * the sandbox's business. */
bool zygote_serves(const struct zygote *z, const struct sandbox_spec *spec);
/* True if it has died and all that waited for it have been told: it can only be stopped. */
bool zygote_is_gone(const struct zygote *z);
enum isolation zygote_isolation(const struct zygote *z);
/* "CPython 3.11.2" and the path. */
const char *zygote_python(const struct zygote *z);
/* The directory for its sandboxes' own; NULL where they have a root. */
struct scratch_dir *zygote_scratch_dir(const struct zygote *z);
/* What it carried out; and for people. */
const struct jail_plan *zygote_plan(const struct zygote *z);
/* Of which each of its sandboxes may be one; first 0: they are all one user. */
const struct user_range *zygote_users(const struct zygote *z);
void zygote_describe(const struct zygote *z, struct buf *out);

/* Asks for a clone with these descriptors, which are taken if it succeeds, and with these
 * others, each of them or -1; fn comes later, from the loop, unless zygote_forget is called first.
 * The plan and the others must live until then. *id names the request.
 * A clone that is forgotten while it is under way is ended when it is there. */
int zygote_clone(struct zygote *z, const struct jail_plan *plan, int fds[ZYGOTE_CLONE_FDS],
    const int extra[ZYGOTE_EXTRA_COUNT], zygote_fn *fn, void *arg, uint32_t *id, struct error *err);
void zygote_forget(struct zygote *z, uint32_t id);

/* Ends it and all its sandboxes. */
void zygote_stop(struct zygote *z);

#endif
