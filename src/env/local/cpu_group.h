/* env/local/cpu_group.h: one cgroup v1 of the controller `cpu` for all sandboxes.
 *
 * Without it each session that a guest begins (setsid) has an autogroup (sched(7)), which gets as
 * much processor time as the one with the host, whatever its processes' priorities are. Autogroups
 * are for processes in no group of this controller. In the group, all sandboxes together get as
 * much as the host's own group, and their priorities count among themselves alone.
 *
 * Needs the right to create a group next to the host's own: root, and a machine that has version 1.
 */
#pragma once

#include <sys/types.h>

#include "base/error.h"

struct cpu_group;

/* Creates the group below this process's own, and removes those of killed hosts. `root` is a
 * descriptor of the root directory. ERROR_UNSUPPORTED says why there can be none. */
int cpu_group_open(int root, struct cpu_group **out, struct error *err);
/* Removes the group, in which every process must have been killed. NULL is fine. */
void cpu_group_close(struct cpu_group *g);
/* Moves the calling thread in, until cpu_group_leave: the processes that it starts meanwhile are
 * members. To move another process, the kernel waits for all processors (RCU), often for 6 ms; a
 * thread that moves itself takes 8 µs (Linux 5.6). ERROR_ENVIRONMENT: it stays where it is, for
 * example because it has real-time priority. */
int cpu_group_enter(struct cpu_group *g, struct error *err);
void cpu_group_leave(struct cpu_group *g);
