/* env/local/zygote.h: the host's side of a zygote (guest/zygote/zygote.c): starts it and requests
 * clones.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/loop.h"
#include "env/local/cgroup.h"
#include "env/local/cpu_group.h"
#include "env/common/environment.h"
#include "env/common/scratch_dir.h"
#include "image/image.h"
#include "jail/jail.h"
#include "jail/zygote_wire.h"

struct zygote;

/* The result of a clone request. */
struct zygote_answer {
    int pidfd; /* of the keeper, owned by the receiver; -1 if the clone failed */
    pid_t pid; /* the same as a number; 0 if the clone failed, or an image's has ended */
    int sys;   /* the errno of a failure; ESRCH: the zygote is dead */
};
typedef void zygote_fn(void *arg, struct zygote_answer *answer);

/* The cgroups to place a zygote in; NULL: there is none. Its sandboxes are members of the group for
 * the processor. */
struct zygote_groups {
    struct cgroups *all;
    struct cpu_group *cpu;
};

/* Starts an interpreter, and waits until it is warm and has executed its plan. Blocks as long as
 * the interpreter takes to start (tens of milliseconds; at most 30 s). ERROR_NOT_FOUND,
 * ERROR_ENVIRONMENT (not a Python), ERROR_UNSUPPORTED (this isolation is not available here). */
int zygote_start(struct loop *loop, const struct sandbox_spec *spec,
    const struct zygote_groups *groups, struct zygote **out, struct error *err);
enum image_fetch zygote_fetch_of(enum container_pull pull);
/* True if this zygote can clone a sandbox of this specification. One zygote serves all volumes in
 * the same directory. */
bool zygote_serves(const struct zygote *z, const struct sandbox_spec *spec);
/* True if it has died and all pending requests were answered: it can only be stopped. */
bool zygote_is_gone(const struct zygote *z);
enum isolation zygote_isolation(const struct zygote *z);
/* False for the interpreter of an image: it is in a namespace of its own, and may lie. */
bool zygote_is_trusted(const struct zygote *z);
/* "CPython 3.11.2" and the path. */
const char *zygote_python(const struct zygote *z);
/* The path of the interpreter. */
const char *zygote_executable(const struct zygote *z);
/* A random number, different for each zygote. */
uint64_t zygote_lineage(const struct zygote *z);
/* The scratch directory of its sandboxes; NULL if they have private roots. */
struct scratch_dir *zygote_scratch_dir(const struct zygote *z);
/* The plan that it executed. */
const struct jail_plan *zygote_plan(const struct zygote *z);
/* The uids that its sandboxes may get; first 0: all have the same user. */
const struct user_range *zygote_users(const struct zygote *z);
void zygote_describe(const struct zygote *z, struct buf *out);

/* Requests a clone with these descriptors, which are consumed on success, and with these optional
 * others, each of them or -1. `tag` is for the status record. `fn` is called later, from the loop,
 * unless zygote_forget is called first. The plan and the optional descriptors must live until then.
 * *id identifies the request. A clone that is forgotten while in progress is killed once it
 * exists. */
int zygote_clone(struct zygote *z, const struct jail_plan *plan, int fds[ZYGOTE_CLONE_FDS],
    const int extra[ZYGOTE_EXTRA_COUNT], uint64_t tag, zygote_fn *fn, void *arg, uint32_t *id,
    struct error *err);
void zygote_forget(struct zygote *z, uint32_t id);

/* A new descriptor of the keeper program (guest/zygote/keeper.c); negative: an error. */
int zygote_keeper_program(struct error *err);

/* Ends it and all its sandboxes. */
void zygote_stop(struct zygote *z);
