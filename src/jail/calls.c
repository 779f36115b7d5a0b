/* jail/calls.c: the tables, with a reason in each row.
 *
 * Two questions decide about a row. Is the call used by CPython, its standard library or common
 * packages? Does it take something that all users of a machine share and no limit of the sandbox
 * counts (BPF programs, watches, keys, queues, leases, static branches)? Constants that headers of
 * older systems lack are defined as numbers.
 */
#include "jail/calls.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/membarrier.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/cleanup.h"

/* Introduced in Linux …, or of one machine. */
enum {
    MAP_DROPPABLE_ = 0x08,         /* 6.11 */
    MADV_COLLAPSE_ = 25,           /* 6.1 */
    MADV_GUARD_INSTALL_ = 102,     /* 6.13 */
    MADV_GUARD_REMOVE_ = 103,      /* 6.13 */
    PROT_BTI_ = 0x10,              /* 5.8, arm64 */
    PR_SVE_GET_VL_ = 51,           /* 4.15, arm64 */
    MFD_NOEXEC_SEAL_ = 0x08,       /* 6.3 */
    MFD_EXEC_ = 0x10,              /* 6.3 */
    SO_PASSPIDFD_ = 76,            /* 6.5 */
    SO_PEERPIDFD_ = 77,            /* 6.5 */
    SO_PASSRIGHTS_ = 83,           /* 6.16 */
    TCP_AO_ADD_KEY_ = 38,          /* 6.7 */
    O_NOTIFICATION_PIPE_ = O_EXCL, /* 5.8 */
};

const struct call_group call_groups[] = {
    /* ---- allowed ---- */
    { "access chdir close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 "
      "fadvise64 fallocate fchdir fdatasync fgetxattr flistxattr fstat fstatfs fsync ftruncate "
      "getcwd getdents getdents64 getxattr lgetxattr link linkat listxattr llistxattr lseek lstat "
      "mkdir mkdirat mknod mknodat newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 "
      "pwritev pwritev2 read readahead readlink readlinkat readv rename renameat renameat2 rmdir "
      "sendfile splice stat statfs statx symlink symlinkat sync_file_range truncate umask unlink "
      "unlinkat write writev",
        CALL_ALLOWED, CALL_ANYWHERE,
        "files: mounts and Landlock say which; descriptors and sizes are limited" },
    { "chmod chown fchmod fchmodat fchmodat2 fchown fchownat fremovexattr fsetxattr futimesat "
      "lchown lremovexattr lsetxattr removexattr setxattr utime utimensat utimes",
        CALL_ALLOWED, CALL_IN_OWN_ROOT,
        "what a file is like: among the host's files Landlock would not see whose file" },
    { "flock", CALL_ALLOWED, CALL_ANYWHERE,
        "a lock of the whole file, one for each descriptor, of which there are so many" },
    { "eventfd eventfd2 pipe poll ppoll pselect6 select signalfd signalfd4 timerfd_create "
      "timerfd_gettime timerfd_settime",
        CALL_ALLOWED, CALL_ANYWHERE, "waiting: one descriptor each, of which there are so many" },
    { "brk mincore mlock mlock2 mremap msync munlock munmap pkey_alloc pkey_free", CALL_ALLOWED,
        CALL_ANYWHERE, "the process's own memory: RLIMIT_DATA, RLIMIT_MEMLOCK, the cgroup" },
    { "arch_prctl execve execveat exit exit_group fork futex futex_waitv get_robust_list "
      "get_thread_area getcpu getpgid getpgrp getpid getppid getpriority getrlimit getrusage "
      "getsid gettid restart_syscall rseq sched_get_priority_max sched_get_priority_min "
      "sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval "
      "sched_yield set_robust_list set_tid_address setpgid setrlimit setsid vfork wait4 waitid",
        CALL_ALLOWED, CALL_ANYWHERE, "processes and threads: of the sandbox, and so many of them" },
    { "setgid setregid setresgid setresuid setreuid setuid", CALL_ALLOWED, CALL_ANYWHERE,
        "there is one id to change to: its own" },
    { "kill pidfd_open pidfd_send_signal rt_sigaction rt_sigpending rt_sigprocmask "
      "rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sigaltstack "
      "tgkill tkill",
        CALL_ALLOWED, CALL_ANYWHERE,
        "signals: to its own processes; those that wait are counted (RLIMIT_SIGPENDING)" },
    { "alarm getitimer setitimer timer_create timer_delete timer_getoverrun timer_gettime "
      "timer_settime",
        CALL_ALLOWED, CALL_ANYWHERE, "timers: each is a signal that waits, and counted as one" },
    { "capget clock_getres clock_gettime clock_nanosleep getegid geteuid getgid getgroups "
      "getrandom getresgid getresuid gettimeofday getuid nanosleep pause sysinfo time times uname",
        CALL_ALLOWED, CALL_ANYWHERE, "who, where and when: asking keeps nothing" },
    { "accept accept4 bind connect getpeername getsockname listen shutdown", CALL_ALLOWED,
        CALL_ANYWHERE, "sockets, once there" },
    { "sync syncfs", CALL_DOES_NOTHING, CALL_ANYWHERE,
        "would write out every file of the machine, for nothing that a guest keeps" },
    /* ---- ENOSYS, as if the kernel lacked them: programs have fallbacks ---- */
    { "epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait "
      "epoll_wait_old",
        ENOSYS, CALL_IN_CONTAINER,
        "watches are counted by user, and a host that got no more would end; asyncio takes poll. In a "
        "container an image's programs (Go, Node) know nothing else, and the user is another" },
    { "inotify_add_watch inotify_init inotify_init1 inotify_rm_watch", ENOSYS, CALL_ANYWHERE,
        "watches are counted by user, and see what others do" },
    { "io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit", ENOSYS, CALL_ANYWHERE,
        "contexts are counted for the whole machine (fs.aio-max-nr)" },
    { "mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv "
      "msgsnd semctl semget semop semtimedop shmat shmctl shmdt shmget",
        ENOSYS, CALL_ANYWHERE, "queues and memory that outlive a process, counted by user or not" },
    { "memfd_secret", ENOSYS, CALL_ANYWHERE, "memory that the kernel itself cannot move" },
    /* ---- EPERM: the reason appears in reports ---- */
    { "bpf", EPERM, CALL_ANYWHERE, "programs in the kernel, from a pool that all users share" },
    { "add_key keyctl request_key", EPERM, CALL_ANYWHERE, "keys are counted by user" },
    { "fanotify_init fanotify_mark", EPERM, CALL_ANYWHERE, "watches are counted by user" },
    { "io_uring_enter io_uring_register io_uring_setup", EPERM, CALL_ANYWHERE,
        "works outside of the filter's sight" },
    { "perf_event_open userfaultfd lookup_dcookie kcmp", EPERM, CALL_ANYWHERE,
        "tools of attacks on the kernel more than of programs" },
    { "tee vmsplice", EPERM, CALL_ANYWHERE,
        "pipes then hold pages that no limit of the process counts; Python has neither" },
    { "ioprio_set mlockall sched_setaffinity sched_setattr sched_setparam sched_setscheduler",
        EPERM, CALL_ANYWHERE, "a share of what others need too" },
    { "pidfd_getfd process_madvise process_vm_readv process_vm_writev ptrace", EPERM, CALL_ANYWHERE,
        "other processes' insides" },
    { "acct adjtimex chroot clock_adjtime clock_settime delete_module finit_module fsconfig "
      "fsmount fsopen fspick init_module ioperm iopl kexec_file_load kexec_load modify_ldt "
      "name_to_handle_at open_by_handle_at open_tree quotactl quotactl_fd "
      "reboot setdomainname settimeofday swapoff swapon syslog unshare "
      "vhangup",
        EPERM, CALL_ANYWHERE, "the machine's, or a sandbox's own making" },
    { 0 },
};

#define VALUE(symbol, why)                                                                         \
    {                                                                                              \
#symbol, symbol, CALL_ALLOWED, 0, why                                                      \
    }
#define REFUSED(symbol, why)                                                                       \
    {                                                                                              \
#symbol, symbol, EPERM, 0, why                                                             \
    }
#define NAMED(name, value, why)                                                                    \
    {                                                                                              \
        name, value, CALL_ALLOWED, 0, why                                                          \
    }
#define REFUSED_AS(name, value, why)                                                               \
    {                                                                                              \
        name, value, EPERM, 0, why                                                                 \
    }
#define AT_MOST(symbol, most, why)                                                                 \
    {                                                                                              \
#symbol, symbol, CALL_ALLOWED, most, why                                                   \
    }
#define ONE_OF(index, table)                                                                       \
    {                                                                                              \
        {                                                                                          \
            index, false, table                                                                    \
        }                                                                                          \
    }
#define ARGUMENT_FLAGS(index, table)                                                               \
    {                                                                                              \
        {                                                                                          \
            index, true, table                                                                     \
        }                                                                                          \
    }

static const struct call_value prctls[] = {
    VALUE(PR_SET_PDEATHSIG, "its own end with its parent's"),
    VALUE(PR_GET_PDEATHSIG, "asks"),
    VALUE(PR_GET_DUMPABLE, "asks"),
    VALUE(PR_SET_NAME, "16 bytes of the thread's own"),
    VALUE(PR_GET_NAME, "asks"),
    VALUE(PR_GET_SECCOMP, "asks"),
    VALUE(PR_CAPBSET_READ, "asks"),
    VALUE(PR_SET_TIMERSLACK, "makes its own timers less exact"),
    VALUE(PR_GET_TIMERSLACK, "asks"),
    VALUE(PR_SET_CHILD_SUBREAPER, "of its own processes"),
    VALUE(PR_GET_CHILD_SUBREAPER, "asks"),
    VALUE(PR_SET_NO_NEW_PRIVS, "it has none"),
    VALUE(PR_GET_NO_NEW_PRIVS, "asks"),
    VALUE(PR_GET_TID_ADDRESS, "asks"),
    VALUE(PR_SET_THP_DISABLE, "gives huge pages up"),
    VALUE(PR_GET_THP_DISABLE, "asks"),
#ifdef __aarch64__
    NAMED("PR_SVE_GET_VL", PR_SVE_GET_VL_, "asks: the length of vectors, for OpenBLAS"),
#endif
    REFUSED(PR_SET_SECCOMP, "a filter is a program from a pool that all users share"),
    { 0 },
};

static const struct call_value ioctls[] = {
    VALUE(TCGETS, "is it a terminal?"),
    NAMED("TCGETS2", 0x802C542A, "the same, by glibc 2.42"),
    VALUE(TIOCGWINSZ, "how wide is it?"),
    /* The only terminals that a guest can have open are pseudo-terminals of its sandbox: the host
     * passes none, and /dev has no other. Their number is bounded by the mount (jail/compile.c). */
    VALUE(TIOCSWINSZ, "of its own terminal; signals its own processes"),
    VALUE(TCSETS, "modes of its own terminal: shells, editors"),
    VALUE(TCSETSW, "the same, when output is written"),
    VALUE(TCSETSF, "the same, dropping input"),
    NAMED("TCSETS2", 0x402C542B, "the same, by glibc 2.42"),
    NAMED("TCSETSW2", 0x402C542C, "the same"),
    NAMED("TCSETSF2", 0x402C542D, "the same"),
    VALUE(TCFLSH, "drops what its own terminal holds"),
    VALUE(TCXONC, "stops and starts its own terminal"),
    VALUE(TCSBRK, "waits until its own terminal has written"),
    VALUE(TIOCGSID, "asks"),
    VALUE(TIOCSCTTY, "a terminal for its session; to steal one takes a privilege"),
    VALUE(TIOCNOTTY, "gives its terminal up"),
    VALUE(TIOCGPTN, "asks: the number of its pseudo-terminal"),
    VALUE(TIOCSPTLCK, "unlocks its pseudo-terminal"),
    VALUE(TIOCGPTPEER, "the other side of its pseudo-terminal"),
    VALUE(TIOCGPGRP, "of its own session's terminal"),
    VALUE(TIOCSPGRP, "of its own session's terminal"),
    VALUE(TIOCOUTQ, "how much is unsent?"),
    VALUE(FIONREAD, "how much can be read?"),
    VALUE(FIONBIO, "a descriptor's flag"),
    VALUE(FIONCLEX, "a descriptor's flag"),
    VALUE(FIOCLEX, "a descriptor's flag"),
    VALUE(FIOASYNC, "a descriptor's flag: signals to its own processes"),
    NAMED("FICLONE", FICLONE, "a copy of a file, as copy_file_range makes one"),
    NAMED("FICLONERANGE", FICLONERANGE, "a copy of a file"),
    NAMED("FS_IOC_GETFLAGS", FS_IOC_GETFLAGS, "asks"),
    REFUSED(TIOCSTI, "types into a terminal (CVE-2017-5226)"),
    REFUSED(TIOCLINUX, "types into a console (CVE-2023-28100)"),
    REFUSED(TIOCSETD, "a line discipline: loads a module"),
    REFUSED(TIOCCONS, "takes what the kernel says"),
    { 0 },
};

static const struct call_value fcntls[] = {
    VALUE(F_DUPFD, "a descriptor"),
    VALUE(F_DUPFD_CLOEXEC, "a descriptor"),
    VALUE(F_GETFD, "asks"),
    VALUE(F_SETFD, "a descriptor's flag"),
    VALUE(F_GETFL, "asks"),
    VALUE(F_SETFL, "a descriptor's flags"),
    VALUE(F_GETLK, "asks"),
    VALUE(F_SETLK, "locks, as SQLite takes them; their memory is the cgroup's"),
    VALUE(F_SETLKW, "the same, waiting"),
    VALUE(F_OFD_GETLK, "asks"),
    VALUE(F_OFD_SETLK, "locks of the descriptor's"),
    VALUE(F_OFD_SETLKW, "the same, waiting"),
    VALUE(F_SETOWN, "signals to its own processes"),
    VALUE(F_GETOWN, "asks"),
    VALUE(F_SETOWN_EX, "signals to its own processes"),
    VALUE(F_GETOWN_EX, "asks"),
    VALUE(F_SETSIG, "which signal"),
    VALUE(F_GETSIG, "asks"),
    AT_MOST(F_SETPIPE_SZ, 65536, "a pipe of no more than the usual size: they are counted by user"),
    VALUE(F_GETPIPE_SZ, "asks"),
    VALUE(F_ADD_SEALS, "of its own memory files"),
    VALUE(F_GET_SEALS, "asks"),
    REFUSED(F_SETLEASE, "others would wait for it to let go of a file"),
    REFUSED(F_NOTIFY, "notes of what others do in a directory"),
    { 0 },
};

static const struct call_value advices[] = {
    VALUE(MADV_NORMAL, "how it reads"),
    VALUE(MADV_RANDOM, "how it reads"),
    VALUE(MADV_SEQUENTIAL, "how it reads"),
    VALUE(MADV_WILLNEED, "how it reads"),
    VALUE(MADV_DONTNEED, "gives memory back"),
    VALUE(MADV_FREE, "gives memory back"),
    VALUE(MADV_REMOVE, "gives a part of its own file back"),
    VALUE(MADV_DONTFORK, "not in children"),
    VALUE(MADV_DOFORK, "in children"),
    VALUE(MADV_HUGEPAGE, "numpy asks so for large arrays; counted as memory"),
    VALUE(MADV_NOHUGEPAGE, "gives huge pages up"),
    VALUE(MADV_DONTDUMP, "there are no dumps"),
    VALUE(MADV_DODUMP, "there are no dumps"),
    VALUE(MADV_WIPEONFORK, "empty in children"),
    VALUE(MADV_KEEPONFORK, "not empty in children"),
    NAMED("MADV_COLD", 20, "less needed"),
    NAMED("MADV_POPULATE_READ", 22, "touches its own pages"),
    NAMED("MADV_POPULATE_WRITE", 23, "touches its own pages"),
    NAMED("MADV_GUARD_INSTALL", MADV_GUARD_INSTALL_, "glibc's guard of a thread's stack"),
    NAMED("MADV_GUARD_REMOVE", MADV_GUARD_REMOVE_, "the same, taken away"),
    REFUSED(MADV_MERGEABLE, "a thread of the kernel's then compares pages of all programs"),
    REFUSED_AS("MADV_PAGEOUT", 21, "swap, and what others have in memory, by the clock"),
    REFUSED_AS("MADV_COLLAPSE", MADV_COLLAPSE_, "has the kernel move pages about for it"),
    { 0 },
};

static const struct call_value barriers[] = {
    VALUE(MEMBARRIER_CMD_QUERY, "asks"),
    VALUE(MEMBARRIER_CMD_PRIVATE_EXPEDITED, "its own threads"),
    VALUE(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, "its own threads"),
    VALUE(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, "its own threads"),
    VALUE(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, "its own threads"),
    REFUSED(MEMBARRIER_CMD_GLOBAL, "waits for every processor"),
    REFUSED(MEMBARRIER_CMD_GLOBAL_EXPEDITED, "interrupts every processor"),
    { 0 },
};

/* personality(2): the initial persona, which programs query and restore. */
static const struct call_value personas[] = {
    NAMED("ask", 0xFFFFFFFF, "asks"),
    VALUE(PER_LINUX, "as it is"),
    { 0 },
};

static const struct call_value protections[] = {
    VALUE(PROT_READ, ""),
    VALUE(PROT_WRITE, ""),
    VALUE(PROT_EXEC, "compilers at run time; it may bring programs of its own anyway"),
#ifdef __aarch64__
    NAMED("PROT_BTI", PROT_BTI_, "code with branch targets: ld.so, for libraries built so"),
#endif
    { 0 },
};

static const struct call_value changed_protections[] = {
    VALUE(PROT_READ, ""),
    VALUE(PROT_WRITE, ""),
    VALUE(PROT_EXEC, "as with mmap"),
#ifdef __aarch64__
    NAMED("PROT_BTI", PROT_BTI_, "as with mmap"),
#endif
    VALUE(PROT_GROWSDOWN, "glibc, for a library that asks for an executable stack"),
    { 0 },
};

static const struct call_value maps[] = {
    VALUE(MAP_SHARED, "memory that its processes share"),
    VALUE(MAP_PRIVATE, "RLIMIT_DATA, the cgroup"),
    NAMED("MAP_DROPPABLE", MAP_DROPPABLE_, "glibc's random numbers"),
    VALUE(MAP_FIXED, "where in its own memory"),
    VALUE(MAP_FIXED_NOREPLACE, "where in its own memory"),
#ifdef MAP_32BIT /* x86 */
    VALUE(MAP_32BIT, "where in its own memory"),
#endif
    VALUE(MAP_ANONYMOUS, ""),
    VALUE(MAP_DENYWRITE, "the kernel ignores it; loaders pass it"),
    VALUE(MAP_EXECUTABLE, "the kernel ignores it"),
    VALUE(MAP_LOCKED, "RLIMIT_MEMLOCK"),
    VALUE(MAP_NORESERVE, "RLIMIT_DATA counts it all the same"),
    VALUE(MAP_POPULATE, "touches its own pages"),
    VALUE(MAP_NONBLOCK, "with the one before"),
    VALUE(MAP_STACK, "of a thread"),
    REFUSED(MAP_HUGETLB, "pages that were reserved for other programs, and that no limit counts"),
    REFUSED(MAP_GROWSDOWN, "grows into what is beside it; no program asks for it"),
    { 0 },
};

static const struct call_value memory_files[] = {
    VALUE(MFD_CLOEXEC, ""),
    VALUE(MFD_ALLOW_SEALING, ""),
    NAMED("MFD_NOEXEC_SEAL", MFD_NOEXEC_SEAL_, ""),
    NAMED("MFD_EXEC", MFD_EXEC_, "any code may run here, within the wall"),
    REFUSED(MFD_HUGETLB, "pages that were reserved for other programs"),
    { 0 },
};

static const struct call_value pipes[] = {
    VALUE(O_CLOEXEC, ""),
    VALUE(O_NONBLOCK, ""),
    VALUE(O_DIRECT, "packets"),
    REFUSED_AS("O_NOTIFICATION_PIPE", O_NOTIFICATION_PIPE_, "notes of keys and mounts"),
    { 0 },
};

static const struct call_value sendings[] = {
    VALUE(MSG_DONTWAIT, ""),
    VALUE(MSG_NOSIGNAL, ""),
    VALUE(MSG_MORE, ""),
    VALUE(MSG_EOR, ""),
    VALUE(MSG_CONFIRM, ""),
    REFUSED(MSG_OOB, "over UNIX sockets: more than one use after free (CVE-2025-38236)"),
    REFUSED_AS("MSG_ZEROCOPY", 0x4000000, "pins pages, counted by user"),
    { 0 },
};

static const struct call_value receivings[] = {
    VALUE(MSG_DONTWAIT, ""),
    VALUE(MSG_NOSIGNAL, "ignored; programs pass it"),
    VALUE(MSG_PEEK, ""),
    VALUE(MSG_TRUNC, ""),
    VALUE(MSG_WAITALL, ""),
    VALUE(MSG_CMSG_CLOEXEC, ""),
    VALUE(MSG_ERRQUEUE, ""),
    VALUE(MSG_WAITFORONE, ""),
    REFUSED(MSG_OOB, "as with sending"),
    { 0 },
};

const struct call_rule call_rules[] = {
    { "prctl", ONE_OF(0, prctls) },
    { "ioctl", ONE_OF(1, ioctls) },
    { "fcntl", ONE_OF(1, fcntls) },
    { "madvise", ONE_OF(2, advices) },
    { "membarrier", ONE_OF(0, barriers) },
    { "personality", ONE_OF(0, personas) },
    { "mmap", { { 2, true, protections }, { 3, true, maps } } },
    { "mprotect pkey_mprotect", ARGUMENT_FLAGS(2, changed_protections) },
    { "memfd_create", ARGUMENT_FLAGS(1, memory_files) },
    { "pipe2", ARGUMENT_FLAGS(1, pipes) },
    { "sendto sendmmsg", ARGUMENT_FLAGS(3, sendings) },
    { "sendmsg", ARGUMENT_FLAGS(2, sendings) },
    { "recvfrom recvmmsg", ARGUMENT_FLAGS(3, receivings) },
    { "recvmsg", ARGUMENT_FLAGS(2, receivings) },
    { 0 },
};

/* The first are _IOWR('F', …) of any size, a type that the kernel uses for frame buffers. The
 * others have neither type nor size; from 200 on they are the driver's own tests. No other file of
 * a guest has such commands, except FIBMAP, which needs a privilege, and FIGETBSZ, both of regular
 * files. */
const struct call_commands call_device_commands[] = {
    { "NV_ESC_*", 0xC000FF00, 0xC0004600, "/dev/nvidiactl, /dev/nvidiaN" },
    { "UVM_*", 0xFFFFFF80, 0, "/dev/nvidia-uvm, /dev/nvidia-uvm-tools" },
    { "UVM_INITIALIZE", 0xFFFFFFFF, 0x30000001, "/dev/nvidia-uvm" },
    { "UVM_DEINITIALIZE", 0xFFFFFFFF, 0x30000002, "/dev/nvidia-uvm" },
    { 0 },
};

/* Also checks the protocol: the kernel would load modules such as SCTP and L2TP on request. */
const struct call_socket call_sockets[] = {
    { "UNIX, stream", AF_UNIX, SOCK_STREAM, 0, false },
    { "UNIX, datagrams", AF_UNIX, SOCK_DGRAM, 0, false },
    { "UNIX, packets", AF_UNIX, SOCK_SEQPACKET, 0, false },
    { "UNIX, stream, by number", AF_UNIX, SOCK_STREAM, PF_UNIX, true },
    { "UNIX, datagrams, by number", AF_UNIX, SOCK_DGRAM, PF_UNIX, true },
    { "IPv4, TCP", AF_INET, SOCK_STREAM, 0, false },
    { "IPv4, TCP, by number", AF_INET, SOCK_STREAM, IPPROTO_TCP, false },
    { "IPv4, UDP", AF_INET, SOCK_DGRAM, 0, false },
    { "IPv4, UDP, by number", AF_INET, SOCK_DGRAM, IPPROTO_UDP, false },
    { "IPv6, TCP", AF_INET6, SOCK_STREAM, 0, false },
    { "IPv6, TCP, by number", AF_INET6, SOCK_STREAM, IPPROTO_TCP, false },
    { "IPv6, UDP", AF_INET6, SOCK_DGRAM, 0, false },
    { "IPv6, UDP, by number", AF_INET6, SOCK_DGRAM, IPPROTO_UDP, false },
    { 0 },
};

enum { OPTION_BOTH = OPTION_GET | OPTION_SET };

#define OPTION(level, option, may, why)                                                            \
    {                                                                                              \
#option, level, option, may, why                                                           \
    }

static const char program_why[] =
    "a program in the kernel, from a pool that all users share (net.core.bpf_jit_limit)";
static const char stamp_why[] = "switches a branch of the whole kernel's";

const struct call_option call_options[] = {
    OPTION(SOL_SOCKET, SO_REUSEADDR, OPTION_BOTH, "servers"),
    OPTION(SOL_SOCKET, SO_REUSEPORT, OPTION_BOTH, "servers; without a program that chooses"),
    OPTION(SOL_SOCKET, SO_KEEPALIVE, OPTION_BOTH, "a flag"),
    OPTION(SOL_SOCKET, SO_BROADCAST, OPTION_BOTH, "a flag; there is no network"),
    OPTION(SOL_SOCKET, SO_LINGER, OPTION_BOTH, "a time"),
    OPTION(SOL_SOCKET, SO_OOBINLINE, OPTION_BOTH, "a flag"),
    OPTION(SOL_SOCKET, SO_RCVBUF, OPTION_BOTH, "no more than net.core.rmem_max"),
    OPTION(SOL_SOCKET, SO_SNDBUF, OPTION_BOTH, "no more than net.core.wmem_max"),
    OPTION(SOL_SOCKET, SO_RCVLOWAT, OPTION_BOTH, "a number"),
    OPTION(SOL_SOCKET, SO_SNDLOWAT, OPTION_GET, "asks"),
    OPTION(SOL_SOCKET, SO_RCVTIMEO, OPTION_BOTH, "a time"),
    OPTION(SOL_SOCKET, SO_SNDTIMEO, OPTION_BOTH, "a time"),
    OPTION(SOL_SOCKET, SO_PASSCRED, OPTION_BOTH, "a flag"),
    { "SO_PASSPIDFD", SOL_SOCKET, SO_PASSPIDFD_, OPTION_BOTH, "a flag" },
    { "SO_PASSRIGHTS", SOL_SOCKET, SO_PASSRIGHTS_, OPTION_BOTH, "a flag" },
    OPTION(SOL_SOCKET, SO_ERROR, OPTION_GET, "asks"),
    OPTION(SOL_SOCKET, SO_TYPE, OPTION_GET, "asks"),
    OPTION(SOL_SOCKET, SO_DOMAIN, OPTION_GET, "asks"),
    OPTION(SOL_SOCKET, SO_PROTOCOL, OPTION_GET, "asks"),
    OPTION(SOL_SOCKET, SO_ACCEPTCONN, OPTION_GET, "asks"),
    OPTION(SOL_SOCKET, SO_PEERCRED, OPTION_GET, "asks"),
    { "SO_PEERPIDFD", SOL_SOCKET, SO_PEERPIDFD_, OPTION_GET, "a descriptor" },
    OPTION(IPPROTO_TCP, TCP_NODELAY, OPTION_BOTH, "asyncio and all clients"),
    OPTION(IPPROTO_TCP, TCP_CORK, OPTION_BOTH, "a flag"),
    OPTION(IPPROTO_TCP, TCP_MAXSEG, OPTION_BOTH, "a number"),
    OPTION(IPPROTO_TCP, TCP_KEEPIDLE, OPTION_BOTH, "a time"),
    OPTION(IPPROTO_TCP, TCP_KEEPINTVL, OPTION_BOTH, "a time"),
    OPTION(IPPROTO_TCP, TCP_KEEPCNT, OPTION_BOTH, "a number"),
    OPTION(IPPROTO_TCP, TCP_SYNCNT, OPTION_BOTH, "a number"),
    OPTION(IPPROTO_TCP, TCP_LINGER2, OPTION_BOTH, "a time"),
    OPTION(IPPROTO_TCP, TCP_DEFER_ACCEPT, OPTION_BOTH, "a time"),
    OPTION(IPPROTO_TCP, TCP_QUICKACK, OPTION_BOTH, "a flag"),
    OPTION(IPPROTO_TCP, TCP_USER_TIMEOUT, OPTION_BOTH, "a time"),
    OPTION(IPPROTO_TCP, TCP_NOTSENT_LOWAT, OPTION_BOTH, "a number"),
    OPTION(IPPROTO_TCP, TCP_INFO, OPTION_GET, "asks"),
    OPTION(IPPROTO_TCP, TCP_CONGESTION, OPTION_GET, "asks; to set it may load a module"),
    OPTION(IPPROTO_IP, IP_TOS, OPTION_BOTH, "a number"),
    OPTION(IPPROTO_IP, IP_TTL, OPTION_BOTH, "a number"),
    OPTION(IPPROTO_IP, IP_MULTICAST_TTL, OPTION_BOTH, "a number"),
    OPTION(IPPROTO_IP, IP_MULTICAST_LOOP, OPTION_BOTH, "a flag"),
    OPTION(IPPROTO_IPV6, IPV6_V6ONLY, OPTION_BOTH, "asyncio's servers"),
    OPTION(IPPROTO_IPV6, IPV6_UNICAST_HOPS, OPTION_BOTH, "a number"),
    OPTION(IPPROTO_IPV6, IPV6_MULTICAST_HOPS, OPTION_BOTH, "a number"),
    OPTION(IPPROTO_IPV6, IPV6_MULTICAST_LOOP, OPTION_BOTH, "a flag"),
    OPTION(IPPROTO_IPV6, IPV6_TCLASS, OPTION_BOTH, "a number"),
    /* ---- EPERM ---- */
    OPTION(SOL_SOCKET, SO_ATTACH_FILTER, 0, program_why),
    OPTION(SOL_SOCKET, SO_ATTACH_BPF, 0, program_why),
    OPTION(SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, 0, program_why),
    OPTION(SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, 0, program_why),
    OPTION(SOL_SOCKET, SO_DETACH_FILTER, 0, "there is none"),
    OPTION(SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, 0, "there is none"),
    OPTION(SOL_SOCKET, SO_LOCK_FILTER, 0, "there is none"),
    OPTION(SOL_SOCKET, SO_TIMESTAMP, 0, stamp_why),
    OPTION(SOL_SOCKET, SO_TIMESTAMPNS, 0, stamp_why),
    OPTION(SOL_SOCKET, SO_TIMESTAMPING, 0, stamp_why),
    OPTION(SOL_SOCKET, SO_ZEROCOPY, 0, "pins pages, counted by user"),
    OPTION(IPPROTO_TCP, TCP_ULP, 0, "loads a module"),
    OPTION(IPPROTO_TCP, TCP_MD5SIG, 0, "keys and ciphers that are the whole kernel's"),
    { "TCP_AO_ADD_KEY", IPPROTO_TCP, TCP_AO_ADD_KEY_, 0, "the same" },
    { 0 },
};

const struct call_group call_set_up[] = {
    { "mount", EPERM, CALL_ANYWHERE, NULL },
    { "mount_setattr move_mount", EPERM, CALL_ANYWHERE, NULL },
    { "pivot_root umount2", EPERM, CALL_ANYWHERE, "a private root directory" },
    { "setfsgid", EPERM, CALL_ANYWHERE, "a clone into a cgroup as a sandbox's user" },
    { "sethostname", EPERM, CALL_ANYWHERE, NULL },
    { "setns", EPERM, CALL_ANYWHERE, "a process beside a sandbox, in its namespaces" },
    { "capset", EPERM, CALL_ANYWHERE, NULL },
    { "seccomp", EPERM, CALL_ANYWHERE, "a filter is a program from a pool that all users share" },
    { "clone3", ENOSYS, CALL_ANYWHERE, "its flags are in memory: libraries fall back to clone" },
    { "landlock_create_ruleset", ENOSYS, CALL_ANYWHERE, NULL },
    { "landlock_add_rule", ENOSYS, CALL_ANYWHERE, NULL },
    { "landlock_restrict_self", ENOSYS, CALL_ANYWHERE, NULL },
    { 0 },
};

const struct call_value call_set_up_prctls[] = {
    { "PR_SET_DUMPABLE", PR_SET_DUMPABLE, ENOSYS, 0, "" },
    { "PR_CAPBSET_DROP", PR_CAPBSET_DROP, ENOSYS, 0, "" },
    { "PR_CAP_AMBIENT", PR_CAP_AMBIENT, ENOSYS, 0, "" },
    { 0 },
};

const struct call_socket call_set_up_socket = { "netlink, of interfaces", AF_NETLINK, SOCK_RAW,
    NETLINK_ROUTE, false };

/* clone(2): all flags except those that the C library uses for threads and processes. The lowest
 * eight bits are the exit signal, and there is no bit left for a new flag of a later kernel. */
const struct call_value call_clone_flags[] = {
    REFUSED(CLONE_NEWUSER, "namespaces of its own"),
    REFUSED(CLONE_NEWPID, "namespaces of its own"),
    REFUSED(CLONE_NEWNS, "namespaces of its own"),
    REFUSED(CLONE_NEWNET, "namespaces of its own"),
    REFUSED(CLONE_NEWIPC, "namespaces of its own"),
    REFUSED(CLONE_NEWUTS, "namespaces of its own"),
    REFUSED(CLONE_NEWCGROUP, "namespaces of its own"),
    REFUSED(CLONE_PARENT, "a child of the process that watches over the sandbox"),
    REFUSED(CLONE_PTRACE, "nothing is traced here"),
    REFUSED(CLONE_UNTRACED, "nothing is traced here"),
    REFUSED(CLONE_IO, "what the scheduler of disks knows of another process"),
    { 0 },
};

/* ---- printing ---- */

bool call_next_name(const char **names, char *out, size_t size)
{
    size_t len = strcspn(*names, " ");
    if (len == 0 || len >= size)
        return false;
    memcpy(out, *names, len);
    out[len] = '\0';
    *names += len + ((*names)[len] == ' ');
    return true;
}

int call_answer(const struct call_group *g, enum call_where where)
{
    if (g->where == CALL_IN_CONTAINER)
        return where == CALL_IN_CONTAINER ? CALL_ALLOWED : g->answer;
    bool among = where == CALL_AMONG_FILES;
    bool elsewhere = g->where == (among ? CALL_IN_OWN_ROOT : CALL_AMONG_FILES);
    return elsewhere ? EPERM : g->answer;
}

static const char *answer_name(int answer)
{
    return answer == CALL_ALLOWED        ? "allowed"
           : answer == CALL_DOES_NOTHING ? "does nothing"
           : answer == EPERM             ? "EPERM"
                                         : "ENOSYS";
}

/* Prints words on indented lines. */
static void print_names(const char *names, struct buf *out)
{
    enum { WIDTH = 92 };
    char name[64];
    size_t column = 0;
    while (call_next_name(&names, name, sizeof name)) {
        if (column == 0 || column + strlen(name) + 1 > WIDTH) {
            buf_puts(out, column ? "\n        " : "        ");
            column = 8;
        } else {
            buf_putc(out, ' ');
            column++;
        }
        buf_puts(out, name);
        column += strlen(name);
    }
    buf_putc(out, '\n');
}

static void print_groups(const struct call_group *groups, enum call_where where, struct buf *out)
{
    for (const struct call_group *g = groups; g->names; g++) {
        buf_printf(out, "    %s%s%s\n", answer_name(call_answer(g, where)), g->why ? ": " : "",
            g->why ? g->why : "");
        print_names(g->names, out);
    }
}

static void calls_print_value(const struct call_value *v, struct buf *out)
{
    buf_printf(out, "        %-12s %s", answer_name(v->answer), v->name);
    if (v->most)
        buf_printf(out, " up to %u", v->most);
    buf_printf(out, "%s%s\n", v->why[0] ? ": " : "", v->why);
}

static void print_argument(const char *names, const struct call_argument *a, struct buf *out)
{
    if (!a->values)
        return;
    buf_printf(
        out, "    %s, argument %u, %s\n", names, a->index + 1, a->flags ? "any of" : "one of");
    for (const struct call_value *v = a->values; v->name; v++)
        calls_print_value(v, out);
}

static void print_sockets(bool own_root, struct buf *out)
{
    buf_puts(out, own_root ? "    socket, socketpair\n" : "    socketpair (socket: EPERM)\n");
    for (const struct call_socket *s = call_sockets; s->name; s++)
        if (own_root || s->family == AF_UNIX)
            buf_printf(
                out, "        %-12s %s%s\n", "allowed", s->name, s->pairs_only ? " (pairs)" : "");
}

static void print_options(struct buf *out)
{
    buf_puts(out, "    setsockopt, getsockopt\n");
    for (const struct call_option *o = call_options; o->name; o++)
        buf_printf(out, "        %-12s %s: %s\n",
            o->may == 0            ? "EPERM"
            : o->may == OPTION_GET ? "to ask"
                                   : "allowed",
            o->name, o->why);
}

void calls_print(enum call_where where, struct buf *out)
{
    bool own_root = where != CALL_AMONG_FILES, container = where == CALL_IN_CONTAINER;
    buf_puts(out, "system calls of a guest; all others, and other values of these arguments, are "
                  "ENOSYS:\n");
    print_groups(call_groups, where, out);
    for (const struct call_rule *r = call_rules; r->names; r++)
        for (size_t i = 0; i < array_length(r->arguments); i++)
            print_argument(r->names, &r->arguments[i], out);
    buf_puts(out, container ? "    setpriority, prlimit64: allowed\n"
                  : own_root
                      ? "    setpriority: allowed; prlimit64: changes the caller's limits only\n"
                      : "    setpriority, prlimit64: of the caller itself\n");
    for (const struct call_commands *c = call_device_commands; own_root && !container && c->name;
         c++)
        buf_printf(out, "%s        %-12s %s: %s\n",
            c == call_device_commands ? "    ioctl, of sandboxes with device nvidia\n" : "",
            "allowed", c->name, c->why);
    print_sockets(own_root, out);
    print_options(out);
    buf_puts(out, "    clone, any flags but\n");
    for (const struct call_value *v = call_clone_flags; v->name; v++)
        calls_print_value(v, out);
    buf_puts(out,
        container ? "what sets sandboxes up elsewhere:\n"
                  : "what only the zygote may, and each sandbox gives up before its guest runs:\n");
    print_groups(call_set_up, where, out);
    for (const struct call_value *v = call_set_up_prctls; v->name; v++)
        calls_print_value(v, out);
    if (own_root && !container)
        buf_printf(out, "    socket: %s\n", call_set_up_socket.name);
}
