/* env/local/cgroup.h: limits of a sandbox as a whole, by cgroup v2.
 *
 * Each environment creates a directory below the nearest cgroup that it may divide, with one child
 * for its zygotes and one for each sandbox. A sandbox is cloned into its cgroup
 * (CLONE_INTO_CGROUP), so that everything it uses is counted there.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/loop.h"
#include "jail/jail.h"

struct cgroups;
struct cgroup;

/* Creates the directory, and removes those of killed hosts. `root` is a descriptor of the root
 * directory (a test has its own). ERROR_UNSUPPORTED says why no cgroup can be divided, and what to
 * do. */
int cgroups_open(struct loop *loop, int root, struct cgroups **out, struct error *err);
/* Kills what is left and removes the directory. Every struct cgroup must have been freed. NULL is
 * fine. */
void cgroups_close(struct cgroups *c);
/* The directory's path in the cgroup tree. */
const char *cgroups_path(const struct cgroups *c);
/* Moves a zygote into the directory. Cloning into a cgroup needs write permission for the nearest
 * common ancestor (cgroups(7)), which is then the environment's directory and not the machine's. */
int cgroups_adopt(struct cgroups *c, pid_t zygote, struct error *err);

/* Enables weights (cgroup_weigh) for all sandboxes from now on; false if the controller `cpu` is
 * not available. */
bool cgroups_have_weights(struct cgroups *c);

/* Creates a sandbox's cgroup with these limits. ERROR_UNSUPPORTED: `cpus` cannot be enforced. */
int cgroup_new(
    struct cgroups *c, const struct jail_limits *limits, struct cgroup **out, struct error *err);
/* Its share of processor time relative to other sandboxes: 1 to 10000, by default 100. */
void cgroup_weigh(struct cgroup *g, unsigned weight);
/* Freezes its processes, or lets them go on. False: this kernel cannot (before Linux 5.2). */
bool cgroup_freeze(struct cgroup *g, bool on);
/* The descriptor to clone into; still owned by `g`. */
int cgroup_fd(const struct cgroup *g);
/* Kills what is left in it and removes it, in the background if the kernel still needs it. NULL is
 * fine. */
void cgroup_free(struct cgroup *g);

struct cgroup_usage {
    uint64_t memory_peak; /* bytes, of all processes together; 0: not known (before Linux 5.19) */
    double cpu_seconds;   /* of all processes; 0: not known */
    bool out_of_memory;   /* processes were killed because memory.max was reached */
};
void cgroup_read(const struct cgroup *g, struct cgroup_usage *out);
