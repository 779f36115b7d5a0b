/* env/local/cgroup.h: limits for a sandbox as a whole, by cgroup v2.
 *
 * Each environment has a directory of its own below the nearest cgroup that it may divide, one
 * child in it for its zygotes and one for each sandbox. A sandbox is cloned into its child
 * (CLONE_INTO_CGROUP), so that nothing it uses is counted elsewhere.
 */
#ifndef DROSTE_ENV_LOCAL_CGROUP_H
#define DROSTE_ENV_LOCAL_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/loop.h"
#include "jail/jail.h"

struct cgroups;
struct cgroup;

/* Finds a place and makes the directory; what hosts that were killed have left there is removed.
 * `root` is a descriptor of the root directory (a test has its own). ERROR_UNSUPPORTED says why
 * there is no such place, and what to do. */
int cgroups_open(struct loop *loop, int root, struct cgroups **out, struct error *err);
/* Ends what is left in it and removes it. Every struct cgroup must have been freed. NULL is fine. */
void cgroups_close(struct cgroups *c);
/* The directory's path in the tree of cgroups. */
const char *cgroups_path(const struct cgroups *c);
/* Moves a zygote in: to clone into a cgroup takes write permission for the nearest cgroup above both
 * (cgroups(7)), which is then ours and not the machine's. */
int cgroups_adopt(struct cgroups *c, pid_t zygote, struct error *err);

/* From now on each sandbox has a weight (cgroup_weigh); false where the controller `cpu` cannot be had. */
bool cgroups_have_weights(struct cgroups *c);

/* A sandbox's cgroup with these limits. ERROR_UNSUPPORTED: `cpus` cannot be had. */
int cgroup_new(
    struct cgroups *c, const struct jail_limits *limits, struct cgroup **out, struct error *err);
/* Its part of the processors beside the other sandboxes: 1 to 10000, by default 100. */
void cgroup_weigh(struct cgroup *g, unsigned weight);
/* The descriptor to clone into; it stays this one's. */
int cgroup_fd(const struct cgroup *g);
/* Kills what is left in it and removes it, now or when the kernel is done with it. NULL is fine. */
void cgroup_free(struct cgroup *g);

struct cgroup_usage {
    uint64_t memory_peak; /* bytes, of all processes at once; 0: not known (before Linux 5.19) */
    double cpu_seconds;   /* of all processes; 0: not known */
    bool out_of_memory;   /* processes were killed because memory.max was reached */
};
void cgroup_read(const struct cgroup *g, struct cgroup_usage *out);

#endif
