/* guest/zygote/clone.c: clone3(2) with a stack, and clone(2) as a fallback. */
#include "clone.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

pid_t clone_copy(void *tid_address)
{
    long flags = SIGCHLD | (tid_address ? CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID : 0);
#if defined(__x86_64__)
    return (pid_t)syscall(SYS_clone, flags, NULL, NULL, tid_address, 0L);
#else /* the last two are swapped, clone(2) */
    return (pid_t)syscall(SYS_clone, flags, NULL, NULL, 0L, tid_address);
#endif
}

/* clone3(2) for a child that runs fn(arg) on the stack in `args` and exits with its result. glibc
 * has no wrapper, and syscall(2) cannot be used because the child would return on the caller's
 * stack. */
static long clone3_onto_stack(struct clone_args *args, int (*fn)(void *), void *arg)
{
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall\n"
                     " test %%rax, %%rax\n"
                     " jnz 1f\n"
                     " mov %[arg], %%rdi\n"
                     " call *%[fn]\n"
                     " mov %%eax, %%edi\n"
                     " mov %[exit], %%eax\n"
                     " syscall\n"
                     "1:\n"
                     : "=a"(result)
                     : "a"(SYS_clone3), "D"(args),
                     "S"(sizeof *args), [fn] "r"(fn), [arg] "r"(arg), [exit] "i"(SYS_exit)
                     : "rcx", "r11", "memory", "cc");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = SYS_clone3;
    register long result __asm__("x0") = (long)args;
    register long size __asm__("x1") = sizeof *args;
    __asm__ volatile("svc 0\n"
                     " cbnz x0, 1f\n"
                     " mov x0, %[arg]\n"
                     " blr %[fn]\n"
                     " mov x8, %[exit]\n"
                     " svc 0\n"
                     "1:\n"
                     : "+r"(result)
                     : "r"(x8), "r"(size), [fn] "r"(fn), [arg] "r"(arg), [exit] "i"(SYS_exit)
                     : "memory", "cc");
#else
#error "write the system call of this machine here"
#endif
    if (result >= 0)
        return result;
    errno = (int)-result;
    return -1;
}

pid_t clone_onto(struct clone_args *args, int (*fn)(void *), void *arg)
{
    args->stack_size = CLONE_STACK;
    long pid = clone3_onto_stack(args, fn, arg);
    /* Some container filters deny clone3. The older call supports everything except the cgroup. */
    if (pid < 0 && errno == ENOSYS && !(args->flags & CLONE_INTO_CGROUP))
        pid = clone(fn, (char *)(uintptr_t)args->stack + CLONE_STACK,
            (int)(args->flags | args->exit_signal), arg, (int *)(uintptr_t)args->pidfd, NULL,
            (void *)(uintptr_t)args->child_tid);
    return (pid_t)pid;
}
