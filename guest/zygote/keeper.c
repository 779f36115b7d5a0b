/* guest/zygote/keeper.c: the process that supervises a sandbox: keeper WORKER p|d|f|'' TAG
 *
 * The process that was cloned into the sandbox's namespaces (guest/zygote/zygote.c) executes this
 * program. Its arguments are the pid of the worker; "p" if it is pid 1 of a pid namespace, "d" if
 * it is in a Landlock domain that blocks outgoing signals, "f" if the worker is a fork
 * (guest/zygote/fork.c) in another keeper's sandbox; and the tag of its report. It reaps processes
 * and forwards interrupts. When the worker ends, it reports the exit status on descriptor 0 and
 * exits. It holds the sandbox's standard error as descriptor 2, whose end of file therefore means
 * that it has ended. A pid namespace ends with it; otherwise it kills what is left of its domain,
 * its tree, or the fork's process group. After SIGUSR2 it stays until SIGTERM, for the sandbox's
 * forks.
 *
 * It is a separate program so that a sandbox does not hold a second copy of the interpreter's
 * memory, and does not use the C library so that it needs a few pages only and starts at once. All
 * signals are blocked when it starts, and stay blocked. The guest cannot access its memory: it is
 * not dumpable. The worker waits for that, on a pipe that closes when descriptor 1 does.
 */
#include "jail/zygote_wire.h"

#include <asm/unistd.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#if defined(__x86_64__)
static long keeper_call(long n, long a, long b, long c, long d)
{
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}
__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call keep\n");
#elif defined(__aarch64__)
static long keeper_call(long n, long a, long b, long c, long d)
{
    register long x8 __asm__("x8") = n;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
__asm__(".globl _start\n_start:\n mov x29, #0\n mov x0, sp\n bl keep\n");
#else
#error "write the system call of this machine here"
#endif

enum { STATUS_FD = 0, SETTLED_FD = 1 };

static long keeper_number(const char *text)
{
    long n = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        n = n * 10 + (*text - '0');
    return n;
}

struct keeper {
    long worker; /* 0: it has ended */
    char mark;
    bool stays; /* for forks of the sandbox */
    struct zygote_status status;
};

/* Reaps processes that have ended; true if the worker was among them. */
static bool keeper_reap(struct keeper *k)
{
    int wait_status = 0;
    long pid;
    bool ended = false;
    while ((pid = keeper_call(__NR_wait4, -1, (long)&wait_status, WNOHANG, 0)) > 0) {
        if (pid != k->worker)
            continue;
        k->status.wait_status = wait_status;
        k->worker = 0;
        ended = true;
    }
    return ended;
}

static void kill_list(const char *list)
{
    while (*list) {
        if (*list < '0' || *list > '9') {
            list++;
            continue;
        }
        keeper_call(__NR_kill, keeper_number(list), SIGKILL, 0, 0);
        while (*list >= '0' && *list <= '9')
            list++;
    }
}

/* Without a pid namespace, in a domain around the guest's. kill(-1) would signal all processes of
 * the user, but no signal leaves the domain. The kernel holds the lock that fork needs, and a fork
 * with a pending signal fails, so a fork bomb cannot outrun it. */
static void kill_domain(void)
{
    do
        keeper_call(__NR_kill, -1, SIGKILL, 0, 0);
    while (keeper_call(__NR_wait4, -1, 0, 0, 0) > 0);
}

/* Without either, kills the remaining children, including reparented ones, until none is left. The
 * keeper is their subreaper, so a double fork does not escape. Each round waits for a child to end;
 * the number of rounds has no bound. */
static void kill_tree(void)
{
    static const char path[] = "/proc/thread-self/children";
    char list[1024];
    for (;;) {
        long fd = keeper_call(__NR_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0);
        long n = fd < 0 ? -1 : keeper_call(__NR_read, fd, (long)list, sizeof list - 1, 0);
        if (fd >= 0)
            keeper_call(__NR_close, fd, 0, 0, 0);
        if (n <= 0)
            return;
        /* A number cut by the buffer's end would name another process: leave it for the next
         * round. */
        while (n == (long)sizeof list - 1 && list[n - 1] != ' ')
            n--;
        list[n] = '\0';
        kill_list(list);
        keeper_call(__NR_wait4, -1, 0, 0, 0);
    }
}

static void report_end(struct zygote_status *status)
{
    struct rusage used;
    if (keeper_call(__NR_getrusage, RUSAGE_CHILDREN, (long)&used, 0, 0) == 0) {
        status->max_rss_kib = used.ru_maxrss;
        status->cpu_us = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000LL +
                         used.ru_utime.tv_usec + used.ru_stime.tv_usec;
    }
    keeper_call(__NR_write, STATUS_FD, (long)status, sizeof *status, 0);
}

static uint64_t keeper_bit(int signal)
{
    return 1ull << (signal - 1);
}

/* Ends what the keeper is responsible for. */
static void keeper_kill(const struct keeper *k, long first_worker)
{
    if (k->mark == 'd')
        kill_domain();
    else if (k->mark == 'f') {
        keeper_call(__NR_kill, -first_worker, SIGKILL, 0, 0);
        if (k->worker)
            keeper_call(__NR_kill, k->worker, SIGKILL, 0, 0);
        while (keeper_call(__NR_wait4, -1, 0, 0, 0) > 0)
            ;
    } else if (k->mark != 'p')
        kill_tree();
}

/* Handles a signal; false if it ends the sandbox. */
static bool keeper_handle(struct keeper *k, long signal)
{
    if (signal == SIGUSR1 && k->worker)
        keeper_call(__NR_kill, k->worker, SIGINT, 0, 0);
    if (signal == SIGHUP && k->worker)
        keeper_call(__NR_kill, k->worker, SIGKILL, 0, 0);
    if (signal == SIGUSR2 && k->mark != 'f')
        k->stays = true;
    if (signal == SIGTERM)
        return false;
    if (signal != SIGCHLD || !keeper_reap(k))
        return true;
    if (!k->stays)
        return false;
    report_end(&k->status);
    keeper_call(__NR_close, STATUS_FD, 0, 0, 0);
    return true;
}

/* Handles signals: SIGUSR1 interrupts the worker, SIGHUP kills it, SIGUSR2 announces forks, and
 * SIGTERM ends the sandbox. In a pid namespace the guest can send them too, but only to affect
 * itself. `stack` is the initial stack from the kernel: the argument count, then the arguments. */
__attribute__((noreturn, used)) void keep(const long *stack);
void keep(const long *stack)
{
    const char *const *argv = (const char *const *)(stack + 1);
    struct keeper k = { .worker = stack[0] > 1 ? keeper_number(argv[1]) : 0,
        .mark = stack[0] > 2 ? argv[2][0] : '\0',
        .status = {
            .tag = stack[0] > 3 ? (uint64_t)keeper_number(argv[3]) : 0, .wait_status = -1 } };
    uint64_t wanted = keeper_bit(SIGCHLD) | keeper_bit(SIGUSR1) | keeper_bit(SIGUSR2) |
                      keeper_bit(SIGHUP) | keeper_bit(SIGTERM);
    static const char name[] = KEEPER_NAME; /* tells the host that the plan is complete */
    long worker = k.worker, signal;
    keeper_call(__NR_prctl, PR_SET_NAME, (long)name, 0, 0);
    keeper_call(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0);
    keeper_call(__NR_close, SETTLED_FD, 0, 0, 0);
    do
        signal = keeper_call(__NR_rt_sigtimedwait, (long)&wanted, 0, 0, sizeof wanted);
    while (keeper_handle(&k, signal));
    keeper_kill(&k, worker);
    if (!k.stays)
        report_end(&k.status);
    for (;;)
        keeper_call(__NR_exit_group, 0, 0, 0, 0);
}
