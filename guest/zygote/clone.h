/* guest/zygote/clone.h: processes made without the C library's part of it.
 *
 * Its copy of the thread's id is stale in a child, unless the kernel is asked to write the new one there
 * (`tid_address`, of PR_GET_TID_ADDRESS).
 */
#ifndef DROSTE_GUEST_ZYGOTE_CLONE_H
#define DROSTE_GUEST_ZYGOTE_CLONE_H

#include <linux/sched.h>
#include <sys/types.h>

enum { CLONE_STACK = 64 * 1024 };

/* A copy of this process, as by fork(). 0 in the child; -1 and errno. */
pid_t clone_copy(void *tid_address);
/* As `args` say, a child that runs fn(arg) on a stack of its own, `args->stack` (CLONE_STACK bytes), be it in this memory or in a
 * copy, and ends with what that returns. -1 and errno. */
pid_t clone_onto(struct clone_args *args, int (*fn)(void *), void *arg);

#endif
