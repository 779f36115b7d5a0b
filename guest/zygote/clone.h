/* guest/zygote/clone.h: clones processes without the C library.
 *
 * In a child, the C library's copy of the thread id is stale unless the kernel is asked to update
 * it, at `tid_address`.
 */
#pragma once

#include <linux/sched.h>
#include <sys/types.h>

enum { CLONE_STACK = 64 * 1024 };

/* Copies this process, like fork(). 0 in the child; -1 with errno. NULL: the child does not use its
 * thread id. */
pid_t clone_copy(void *tid_address);
/* Creates a child according to `args`, in this memory or a copy, that runs fn(arg) on its own stack
 * (`args->stack`, CLONE_STACK bytes) and exits with the result. -1 with errno. */
pid_t clone_onto(struct clone_args *args, int (*fn)(void *), void *arg);
