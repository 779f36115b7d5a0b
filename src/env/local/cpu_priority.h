/* env/local/cpu_priority.h: lowers the CPU priority of sandboxes that compute for long.
 *
 * A sandbox whose processes use more than some milliseconds of processor time in one operation gets
 * a low CPU priority until its next operation begins. With cgroup v2 its cgroup gets the lowest
 * weight; otherwise its processes get the policy SCHED_IDLE, which is below every niceness
 * (sched(7)). Short cells are then answered quickly beside long computations, and while processors
 * are idle no sandbox loses anything. Without such a cgroup, and if the host may not raise a
 * priority again, every sandbox keeps its priority.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/loop.h"
#include "env/local/cgroup.h"

struct cpu_priority;

/* What the sandboxes of an environment have in common. */
struct cpu_priorities {
    unsigned sandboxes; /* in use: the only one keeps its priority */
    bool apart; /* they are in a group of their own (cpu_group.h), where niceness counts among them
                   alone */
};

/* True if this process may lower a priority and raise it again (root, CAP_SYS_NICE,
 * RLIMIT_NICE). */
bool cpu_priority_can_raise(void);

/* Watches the sandbox of this keeper (guest/zygote/keeper.c), whose pid must not be reused before
 * the close. `weighed` is the sandbox's cgroup if it has a weight (cgroups_have_weights), else
 * NULL. Both it and `all` must outlive the watch. */
int cpu_priority_open(struct loop *loop, pid_t keeper, struct cgroup *weighed,
    const struct cpu_priorities *all, struct cpu_priority **out, struct error *err);
/* NULL is fine, here and below. */
void cpu_priority_close(struct cpu_priority *p);

/* Gives a fork the niceness of the first keeper of its family: it has its parent's, which may have
 * been ahead of other sandboxes at that moment. */
void cpu_priority_of_fork(struct cpu_priority *p, pid_t first);
/* An operation begins: restores the full priority. */
void cpu_priority_begin(struct cpu_priority *p);
/* No operation is under way: what computes now was left running. */
void cpu_priority_settle(struct cpu_priority *p);
/* Nanoseconds for which its processes and threads ran or waited for a processor; unchanged while
 * all of them sleep. NULL: 0. */
uint64_t cpu_priority_busy_ns(struct cpu_priority *p);
