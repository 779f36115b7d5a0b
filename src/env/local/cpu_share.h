/* env/local/cpu_share.h: the part of the processors that all sandboxes of a host have together, as a control group.
 *
 * Within it they are told apart by niceness and policy (env/local/cpu_priority.h), which nobody outside feels; beside the host and all
 * others they are one. It holds whatever sessions a guest begins, each of which would have a part of its own by the
 * kernel's autogroups: those are for processes in no such group.
 */
#ifndef DROSTE_ENV_LOCAL_CPU_SHARE_H
#define DROSTE_ENV_LOCAL_CPU_SHARE_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "env/local/cgroup.h"

struct cpu_share;

/* `groups` are those of version 2, if there are any: it is their directory, if the controller `cpu` can be had for it. Else
 * one is made in the tree of version 1 that has this controller. `root` is a descriptor of the root directory.
 * ERROR_UNSUPPORTED: neither is to be had. */
int cpu_share_open(int root, struct cgroups *groups, struct cpu_share **out, struct error *err);
/* Every process in it must have been killed, and `groups` still be open. NULL is fine. */
void cpu_share_close(struct cpu_share *s);

/* Moves a zygote in, before it clones. ERROR_ENVIRONMENT: it cannot be, and stays in its session's share. */
int cpu_share_adopt(struct cpu_share *s, pid_t zygote, struct error *err);
/* Each sandbox's own cgroup has a part of it: they are of version 2. */
bool cpu_share_divides(const struct cpu_share *s);
/* The lowest there is (true), or the usual one. */
void cpu_share_lower(struct cpu_share *s, bool last);

#endif
