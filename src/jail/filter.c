/* jail/filter.c: the seccomp allow-list, compiled with libseccomp and carried as bytes.
 *
 * The list is what CPython, its standard library and the usual packages call. Everything else is
 * ENOSYS, and what attacks ask for by name is EPERM, so that a report says what was tried. Some
 * calls are allowed only with certain arguments: no clone into namespaces, no sockets but IP and
 * UNIX ones, no typing into a terminal (TIOCSTI, CVE-2017-5226), only harmless prctls.
 *
 * A guest that stands among the host's files (isolation `landlock`) is refused what Landlock does
 * not control: to connect to a socket by its path before Linux 7.1, to change owners, modes, times
 * and attributes of files that it may only read, and the priorities and limits of other processes.
 *
 * clone3 passes its flags in memory, where a filter cannot look; with ENOSYS the C library falls
 * back to clone. io_uring does its work outside of the filter's sight and is not in the list.
 */
#include "jail/filter.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

/* Names that an architecture does not have are passed over. */
static const char *const allowed[] = {
    /* files */
    "access",
    "chdir",
    "close",
    "close_range",
    "copy_file_range",
    "creat",
    "dup",
    "dup2",
    "dup3",
    "faccessat",
    "faccessat2",
    "fadvise64",
    "fallocate",
    "fchdir",
    "fdatasync",
    "fgetxattr",
    "flistxattr",
    "flock",
    "fstat",
    "fstatfs",
    "fsync",
    "ftruncate",
    "getcwd",
    "getdents",
    "getdents64",
    "getxattr",
    "lgetxattr",
    "link",
    "linkat",
    "listxattr",
    "llistxattr",
    "lseek",
    "lstat",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "newfstatat",
    "open",
    "openat",
    "openat2",
    "pread64",
    "preadv",
    "preadv2",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readahead",
    "readlink",
    "readlinkat",
    "readv",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "sendfile",
    "splice",
    "stat",
    "statfs",
    "statx",
    "symlink",
    "symlinkat",
    "sync_file_range",
    "tee",
    "truncate",
    "umask",
    "unlink",
    "unlinkat",
    "vmsplice",
    "write",
    "writev",
    /* waiting */
    "eventfd",
    "eventfd2",
    "pipe",
    "pipe2",
    "poll",
    "ppoll",
    "pselect6",
    "select",
    "signalfd",
    "signalfd4",
    "timerfd_create",
    "timerfd_gettime",
    "timerfd_settime",
    /* memory */
    "brk",
    "madvise",
    "membarrier",
    "mincore",
    "mprotect",
    "mremap",
    "msync",
    "munmap",
    "mlock",
    "mlock2",
    "munlock",
    "pkey_alloc",
    "pkey_free",
    "pkey_mprotect",
    /* processes and threads */
    "arch_prctl",
    "execve",
    "execveat",
    "exit",
    "exit_group",
    "fork",
    "futex",
    "futex_waitv",
    "get_robust_list",
    "get_thread_area",
    "getcpu",
    "getpgid",
    "getpgrp",
    "getpid",
    "getppid",
    "getpriority",
    "getrlimit",
    "getrusage",
    "getsid",
    "gettid",
    "kill",
    "pidfd_open",
    "pidfd_send_signal",
    "restart_syscall",
    "rseq",
    "rt_sigaction",
    "rt_sigpending",
    "rt_sigprocmask",
    "rt_sigqueueinfo",
    "rt_sigreturn",
    "rt_sigsuspend",
    "rt_sigtimedwait",
    "rt_tgsigqueueinfo",
    "sched_get_priority_max",
    "sched_get_priority_min",
    "sched_getaffinity",
    "sched_getattr",
    "sched_getparam",
    "sched_getscheduler",
    "sched_rr_get_interval",
    "sched_yield",
    "set_robust_list",
    "set_tid_address",
    "setgid",
    "setpgid",
    "setregid",
    "setresgid",
    "setresuid",
    "setreuid",
    "setrlimit",
    "setsid",
    "setuid",
    "sigaltstack",
    "tgkill",
    "tkill",
    "vfork",
    "wait4",
    "waitid",
    /* who and when */
    "alarm",
    "capget",
    "clock_getres",
    "clock_gettime",
    "clock_nanosleep",
    "getegid",
    "geteuid",
    "getgid",
    "getgroups",
    "getitimer",
    "getrandom",
    "getresgid",
    "getresuid",
    "gettimeofday",
    "getuid",
    "nanosleep",
    "pause",
    "setitimer",
    "sysinfo",
    "time",
    "timer_create",
    "timer_delete",
    "timer_getoverrun",
    "timer_gettime",
    "timer_settime",
    "times",
    "uname",
    /* sockets, once there */
    "accept",
    "accept4",
    "bind",
    "connect",
    "getpeername",
    "getsockname",
    "getsockopt",
    "listen",
    "setsockopt",
    "shutdown",
};

/* What would write out every file of the machine, for nothing that a guest keeps: it has succeeded. */
static const char *const pointless[] = { "sync", "syncfs" };

/* Allowed, but for one bit of an argument. Urgent data over UNIX sockets has cost the kernel more than one use
 * after free (CVE-2025-38236) and nobody uses it; huge pages are reserved for somebody else, and no limit
 * of memory counts them. */
static const struct {
    const char *name;
    unsigned argument;
    uint32_t bit;
} without[] = {
    { "recvfrom", 3, MSG_OOB },
    { "recvmmsg", 3, MSG_OOB },
    { "recvmsg", 2, MSG_OOB },
    { "sendmmsg", 3, MSG_OOB },
    { "sendmsg", 2, MSG_OOB },
    { "sendto", 3, MSG_OOB },
    { "memfd_create", 1, MFD_HUGETLB },
    { "mmap", 3, MAP_HUGETLB },
};

/* What a file is like; without a root of its own, whose file? */
static const char *const with_own_root[] = { "chmod", "chown", "fchmod", "fchmodat", "fchmodat2",
    "fchown", "fchownat", "fremovexattr", "fsetxattr", "futimesat", "lchown", "lremovexattr",
    "lsetxattr", "removexattr", "setxattr", "utime", "utimensat", "utimes" };

/* How a sandbox is set up, and what a guest is told that asks for it. */
static const struct {
    const char *name;
    int refusal;
} set_up[] = {
    { "mount", EPERM },
    { "mount_setattr", EPERM },
    { "sethostname", EPERM },
    { "capset", EPERM },
    { "seccomp", EPERM },
    { "clone3", ENOSYS },
    { "landlock_create_ruleset", ENOSYS },
    { "landlock_add_rule", ENOSYS },
    { "landlock_restrict_self", ENOSYS },
};
static const int set_up_prctls[] = { PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_CAP_AMBIENT };

static const char *const of_processes[] = { "setpriority", "prlimit64" };

static const char *const forbidden[] = { "acct", "add_key", "adjtimex", "bpf", "chroot",
    "clock_adjtime", "clock_settime", "delete_module", "fanotify_init", "fanotify_mark",
    "finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "init_module", "io_uring_enter",
    "io_uring_register", "io_uring_setup", "ioperm", "iopl", "ioprio_set", "kcmp",
    "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "mlockall", "modify_ldt",
    "move_mount", "name_to_handle_at", "open_by_handle_at", "open_tree", "perf_event_open",
    "pidfd_getfd", "pivot_root", "process_madvise", "process_vm_readv", "process_vm_writev",
    "ptrace", "quotactl", "quotactl_fd", "reboot", "request_key", "sched_setaffinity",
    "sched_setattr", "sched_setparam", "sched_setscheduler", "setdomainname", "setns",
    "settimeofday", "swapoff", "swapon", "syslog", "umount", "umount2", "unshare", "userfaultfd",
    "vhangup" };

#define CLONE_NEW                                                                                  \
    (CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |     \
        CLONE_NEWCGROUP)

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#endif

/* prctl(2) by its first argument. */
static const int prctls[] = { PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_NAME,
    PR_GET_NAME, PR_GET_SECCOMP, PR_CAPBSET_READ, PR_GET_TIMERSLACK, PR_SET_TIMERSLACK,
    PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS,
    PR_GET_TID_ADDRESS, PR_SET_THP_DISABLE, PR_GET_THP_DISABLE, PR_SET_VMA };

/* By protocol too: the kernel would load SCTP, L2TP and others for whoever asks. */
static const struct {
    int family, type, protocol;
} sockets[] = {
    { AF_UNIX, SOCK_STREAM, 0 },
    { AF_UNIX, SOCK_DGRAM, 0 },
    { AF_UNIX, SOCK_SEQPACKET, 0 },
    { AF_INET, SOCK_STREAM, 0 },
    { AF_INET, SOCK_STREAM, IPPROTO_TCP },
    { AF_INET, SOCK_DGRAM, 0 },
    { AF_INET, SOCK_DGRAM, IPPROTO_UDP },
    { AF_INET6, SOCK_STREAM, 0 },
    { AF_INET6, SOCK_STREAM, IPPROTO_TCP },
    { AF_INET6, SOCK_DGRAM, 0 },
    { AF_INET6, SOCK_DGRAM, IPPROTO_UDP },
};

enum { SOCKET_TYPE_MASK = 0xF };
#define INT_MASK 0xFFFFFFFF

enum { KEEPER_PID = 1 }; /* in the namespace that a sandbox with a root of its own has */

/* What files, pipes, sockets and terminals are asked; nothing that types into a terminal or that a
 * driver would have to be trusted with. */
static const uint32_t ioctls[] = { TCGETS, TIOCGWINSZ, TIOCGPGRP, TIOCSPGRP, TIOCOUTQ, FIONREAD,
    FIONBIO, FIONCLEX, FIOCLEX, FIOASYNC, FICLONE, FICLONERANGE, FS_IOC_GETFLAGS };

/* fcntl(2) by its command: no leases, and no notes of who opens files in a directory (F_NOTIFY). */
static const uint32_t fcntls[] = { F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK,
    F_SETLKW, F_SETOWN, F_GETOWN, F_SETSIG, F_GETSIG, F_SETOWN_EX, F_GETOWN_EX, F_OFD_GETLK,
    F_OFD_SETLK, F_OFD_SETLKW, F_DUPFD_CLOEXEC, F_SETPIPE_SZ, F_GETPIPE_SZ, F_ADD_SEALS,
    F_GET_SEALS };

/* A rule for a name, unless this architecture has no such call. libseccomp gives negative numbers
 * for those. */
static int rule(scmp_filter_ctx ctx, uint32_t action, const char *name, unsigned count,
    const struct scmp_arg_cmp *arguments)
{
    int number = seccomp_syscall_resolve_name(name);
    if (number < 0)
        return 0;
    return seccomp_rule_add_array(ctx, action, number, count, arguments);
}

static int add_names(scmp_filter_ctx ctx, uint32_t action, const char *const *names, size_t count)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = rule(ctx, action, names[i], 0, NULL);
    return rc;
}

/* One rule for each value of a call's first argument. */
static int add_values(
    scmp_filter_ctx ctx, uint32_t action, const char *name, const int *values, size_t count)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct scmp_arg_cmp is = SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)values[i]);
        rc = rule(ctx, action, name, 1, &is);
    }
    return rc;
}

/* Priorities and limits, of the caller itself or of any process that it sees. */
static int add_processes(scmp_filter_ctx ctx, bool own_root)
{
    if (own_root)
        return add_names(ctx, SCMP_ACT_ALLOW, of_processes, array_length(of_processes));
    const struct scmp_arg_cmp itself[] = { SCMP_A0(SCMP_CMP_EQ, PRIO_PROCESS),
        SCMP_A1(SCMP_CMP_EQ, 0) };
    int rc = rule(ctx, SCMP_ACT_ALLOW, "setpriority", 2, itself);
    const struct scmp_arg_cmp own = SCMP_A0(SCMP_CMP_EQ, 0);
    return rc < 0 ? rc : rule(ctx, SCMP_ACT_ALLOW, "prlimit64", 1, &own);
}

static int add_sockets(scmp_filter_ctx ctx)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < array_length(sockets); i++) {
        const struct scmp_arg_cmp all[] = {
            SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)sockets[i].family),
            SCMP_A1(SCMP_CMP_MASKED_EQ, SOCKET_TYPE_MASK, (scmp_datum_t)sockets[i].type),
            SCMP_A2(SCMP_CMP_MASKED_EQ, INT_MASK, (scmp_datum_t)sockets[i].protocol),
        };
        rc = rule(ctx, SCMP_ACT_ALLOW, "socket", 3, all);
    }
    return rc;
}

static int add_without(scmp_filter_ctx ctx)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < array_length(without); i++) {
        const scmp_datum_t bit = without[i].bit;
        const struct scmp_arg_cmp is = SCMP_CMP(without[i].argument, SCMP_CMP_MASKED_EQ, bit, bit);
        const struct scmp_arg_cmp not = SCMP_CMP(without[i].argument, SCMP_CMP_MASKED_EQ, bit, 0);
        rc = rule(ctx, SCMP_ACT_ALLOW, without[i].name, 1, &not );
        if (rc == 0)
            rc = rule(ctx, SCMP_ACT_ERRNO(EPERM), without[i].name, 1, &is);
    }
    return rc;
}

/* Calls by their second argument, of which the kernel looks at 32 bits; so must the filter. */
static int add_requests(scmp_filter_ctx ctx, const char *name, const uint32_t *values, size_t count)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct scmp_arg_cmp is = SCMP_A1(SCMP_CMP_MASKED_EQ, INT_MASK, values[i]);
        rc = rule(ctx, SCMP_ACT_ALLOW, name, 1, &is);
    }
    return rc;
}

static int add_arguments(scmp_filter_ctx ctx)
{
    int rc = add_values(ctx, SCMP_ACT_ALLOW, "prctl", prctls, array_length(prctls));
    if (rc == 0)
        rc = add_requests(ctx, "ioctl", ioctls, array_length(ioctls));
    if (rc == 0)
        rc = add_requests(ctx, "fcntl", fcntls, array_length(fcntls));
    const struct scmp_arg_cmp ask = SCMP_A0(SCMP_CMP_EQ, 0xFFFFFFFF);
    const struct scmp_arg_cmp plain = SCMP_A0(SCMP_CMP_EQ, PER_LINUX);
    if (rc == 0)
        rc = rule(ctx, SCMP_ACT_ALLOW, "personality", 1, &ask);
    if (rc == 0)
        rc = rule(ctx, SCMP_ACT_ALLOW, "personality", 1, &plain);
    return rc;
}

static int add_list(scmp_filter_ctx ctx, bool own_root)
{
    int rc = add_names(ctx, SCMP_ACT_ALLOW, allowed, array_length(allowed));
    if (rc == 0)
        rc = add_names(ctx, SCMP_ACT_ERRNO(EPERM), forbidden, array_length(forbidden));
    if (rc == 0)
        rc = add_names(ctx, SCMP_ACT_ERRNO(0), pointless, array_length(pointless));
    if (rc == 0)
        rc = add_arguments(ctx);
    if (rc == 0)
        rc = add_without(ctx);
    if (rc == 0)
        rc = add_names(ctx, own_root ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM), with_own_root,
            array_length(with_own_root));
    if (rc == 0)
        rc = add_processes(ctx, own_root);
    if (rc == 0)
        rc = own_root ? add_sockets(ctx) : rule(ctx, SCMP_ACT_ERRNO(EPERM), "socket", 0, NULL);
    const struct scmp_arg_cmp local = SCMP_A0(SCMP_CMP_EQ, AF_UNIX);
    return rc < 0 ? rc : rule(ctx, SCMP_ACT_ALLOW, "socketpair", 1, &local);
}

/* What the zygote may do besides. */
static int add_set_up(scmp_filter_ctx ctx)
{
    int rc = rule(ctx, SCMP_ACT_ALLOW, "clone", 0, NULL);
    for (size_t i = 0; rc == 0 && i < array_length(set_up); i++)
        rc = rule(ctx, SCMP_ACT_ALLOW, set_up[i].name, 0, NULL);
    return rc < 0 ? rc
                  : add_values(
                        ctx, SCMP_ACT_ALLOW, "prctl", set_up_prctls, array_length(set_up_prctls));
}

/* The limit of core files stays as it is: a program that the kernel would start on the host for each
 * crash (core(5), "Piping core dumps to a program") is kept away by a limit of 1, and would come with one
 * of 0. Programs that want none take the answer that there is no such call better than a refusal. */
static int keep_core_limit(scmp_filter_ctx ctx)
{
    const struct scmp_arg_cmp is = SCMP_A0(SCMP_CMP_MASKED_EQ, INT_MASK, RLIMIT_CORE);
    const struct scmp_arg_cmp new[] = { SCMP_A1(SCMP_CMP_MASKED_EQ, INT_MASK, RLIMIT_CORE),
        SCMP_A2(SCMP_CMP_NE, 0) };
    int rc = rule(ctx, SCMP_ACT_ERRNO(ENOSYS), "setrlimit", 1, &is);
    return rc < 0 ? rc : rule(ctx, SCMP_ACT_ERRNO(ENOSYS), "prlimit64", 2, new);
}

/* The guest may limit its own processes, but not the keeper, the first of its namespace: with no
 * processor time left it could not say how the guest ended. Among the host's files it may limit only
 * itself (add_processes). */
static int keep_keeper_limits(scmp_filter_ctx ctx)
{
    const struct scmp_arg_cmp new[] = { SCMP_A0(SCMP_CMP_MASKED_EQ, INT_MASK, KEEPER_PID),
        SCMP_A2(SCMP_CMP_NE, 0) };
    return rule(ctx, SCMP_ACT_ERRNO(EPERM), "prlimit64", 2, new);
}

/* The C library sees EPERM for a clone into a namespace, as without privileges. */
static int take_set_up_away(scmp_filter_ctx ctx)
{
    int rc = 0;
    for (unsigned bit = 0; rc == 0 && bit < 32; bit++) {
        const struct scmp_arg_cmp set = SCMP_A0(SCMP_CMP_MASKED_EQ, 1ull << bit, 1ull << bit);
        if (CLONE_NEW & (1ull << bit))
            rc = rule(ctx, SCMP_ACT_ERRNO(EPERM), "clone", 1, &set);
    }
    for (size_t i = 0; rc == 0 && i < array_length(set_up); i++)
        rc = rule(ctx, SCMP_ACT_ERRNO((uint32_t)set_up[i].refusal), set_up[i].name, 0, NULL);
    if (rc == 0)
        rc = keep_core_limit(ctx);
    if (rc == 0)
        rc = keep_keeper_limits(ctx);
    return rc < 0 ? rc
                  : add_values(ctx, SCMP_ACT_ERRNO(ENOSYS), "prctl", set_up_prctls,
                        array_length(set_up_prctls));
}

static int build(scmp_filter_ctx ctx, enum filter_part part, bool own_root)
{
    /* A binary tree: a list of this length would cost a millisecond to load. */
    int rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (rc == 0)
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (rc == 0 && part == FILTER_GUEST)
        return take_set_up_away(ctx);
    if (rc == 0)
        rc = add_list(ctx, own_root);
    return rc < 0 ? rc : add_set_up(ctx);
}

int filter_compile(enum filter_part part, bool own_root, struct buf *out, struct error *err)
{
    cleanup_fd int fd = file_memfd("droste-filter", err);
    if (fd < 0)
        return fd;
    scmp_filter_ctx ctx =
        seccomp_init(part == FILTER_GUEST ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(ENOSYS));
    if (!ctx)
        return error_memory(err);
    int rc = build(ctx, part, own_root);
    if (rc == 0)
        rc = seccomp_export_bpf(ctx, fd);
    seccomp_release(ctx);
    if (rc < 0) {
        errno = -rc;
        return error_set_errno(err, ERROR_ENVIRONMENT, "compiling the system call filter");
    }
    lseek(fd, 0, SEEK_SET);
    return file_read_fd(fd, "the system call filter", 1u << 20, out, err);
}
