/* env/local/cpu_priority.h: who takes the processor for long goes behind those who take it for a moment.
 *
 * A sandbox that computes all the time, in a cell or after it, gives way: its processes get the
 * lowest priority, until its next operation begins. So a small cell is answered soon beside many
 * endless ones, and nobody loses anything while there are processors to spare. A sandbox that is the
 * only one of its host gives way to nobody. While any gives way, one whose last operation was short goes
 * ahead of all the others.
 */
#ifndef DROSTE_ENV_LOCAL_CPU_PRIORITY_H
#define DROSTE_ENV_LOCAL_CPU_PRIORITY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/loop.h"
#include "env/local/cgroup.h"
#include "env/local/cpu_share.h"

struct cpu_priority;

/* All sandboxes of one host. */
struct paces {
    LIST_HEAD(, cpu_priority) paces;
    unsigned sandboxes; /* that are in use; the caller counts */
    unsigned behind;    /* of them, that give way */
    unsigned processors;
    /* This process may lower a priority and raise it again: sandboxes are to stay in their zygote's session, where
     * their processes are told apart. Else each needs one of its own. */
    bool by_policy;
    /* Niceness counts among the sandboxes only, so that one may have more than the host, and nobody else feels it. */
    bool apart, may_go_ahead;
    struct cpu_share *share; /* that all of them have; NULL: their session's */
};

void paces_init(struct paces *all);
/* From now on all sandboxes are in this group, which must stay. They have groups of their own in it, if `with_groups`. */
void paces_share(struct paces *all, struct cpu_share *share, bool with_groups);

/* Watches the sandbox of this keeper (guest/zygote/keeper.c), whose pid must stay its own until the close. `group` is the sandbox's
 * own, with a weight (cgroups_weigh), or NULL; it stays the caller's, and must stay as long. */
int cpu_priority_open(struct loop *loop, pid_t keeper, struct cgroup *group, struct paces *all,
    struct cpu_priority **out, struct error *err);
/* NULL is fine. */
void cpu_priority_close(struct cpu_priority *p);

/* An operation begins: the sandbox has its full priority, for now, or goes ahead. NULL is fine. */
void cpu_priority_begin(struct cpu_priority *p);
/* Nanoseconds for which its processes and threads had a processor, or were waiting for one: what neither
 * grows nor shrinks belongs to a sandbox in which everybody sleeps. NULL is fine: 0. */
uint64_t cpu_priority_busy_ns(struct cpu_priority *p);
/* It is about to be killed: who has no processor cannot end either. NULL is fine. */
void cpu_priority_end(struct cpu_priority *p);

#endif
