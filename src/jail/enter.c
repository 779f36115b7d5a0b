/* jail/enter.c: executes a plan, one system call at a time.
 *
 * Runs in the zygote and its children, after a clone: no allocation, no locks, no stdio. The plan
 * determines the order (jail/compile.c); each operation here is independent.
 */
#include "jail/landlock.h"
#include "jail/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/if.h>
#include <linux/keyctl.h>
#include <linux/openat2.h>
#include <linux/rtnetlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/ancillary.h"

enum {
    LISTEN_BACKLOG = 64,
    LOOPBACK_INDEX = 1,
    IFLA_GSO_IPV4_MAX_SIZE_ = 63, /* 6.3 */
};

/* State that one operation leaves for a later one. */
static struct state {
    /* Ids of the zygote and of its child outside, read before a namespace hides them. */
    uid_t own_uid, uid;
    gid_t own_gid, gid;
    bool files_as_zygote; /* the child still accesses files with the zygote's group */
    int lent[JAIL_LENT];  /* descriptors that were passed with the request */
    int ruleset;          /* the Landlock domain under construction */
    uint64_t handled;     /* the rights that it controls */
} state;

static int enter_write_file(const char *path, int flags, mode_t mode, const char *text, size_t len)
{
    cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | flags, mode);
    if (fd < 0 || (flags & O_CREAT && fchmod(fd, mode) < 0))
        return -1;
    ssize_t n = write(fd, text, len);
    if (n >= 0 && n < (ssize_t)len)
        errno = EIO;
    return n == (ssize_t)len ? 0 : -1;
}

/* user_namespaces(7): without privileges outside, a process may only map its own ids, after
 * disabling setgroups. */
static int write_maps(uint64_t uid, uint64_t gid, uid_t outer_uid, gid_t outer_gid)
{
    char line[64];
    if (enter_write_file("/proc/self/setgroups", 0, 0, "deny", 4) < 0 && errno != ENOENT)
        return -1;
    int n = snprintf(line, sizeof line, "%llu %u 1", (unsigned long long)uid, outer_uid);
    if (enter_write_file("/proc/self/uid_map", 0, 0, line, (size_t)n) < 0)
        return -1;
    n = snprintf(line, sizeof line, "%llu %u 1", (unsigned long long)gid, outer_gid);
    return enter_write_file("/proc/self/gid_map", 0, 0, line, (size_t)n);
}

/* sched(7): a real-time process does not yield to others; batch and idle ones do. */
static int schedule_ordinarily(void)
{
    int policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
    if (policy == SCHED_OTHER || policy == SCHED_BATCH || policy == SCHED_IDLE)
        return 0;
    return sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){ 0 });
}

/* A change of ids made /proc/self root's; the maps of later namespaces are written there. */
static int stay_dumpable(void)
{
    return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}

static int enter_become(uid_t uid, gid_t gid)
{
    if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
        return -1;
    return stay_dumpable();
}

/* The zygote keeps only the capabilities to change users and to signal children of other users: the
 * signal at its own death (PR_SET_PDEATHSIG) is only delivered with the permission to send it. */
static int become_lender(uid_t uid, gid_t gid)
{
    const uint32_t kept = 1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_KILL;
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct caps[2] = { { kept, kept, 0 }, { 0 } };
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || enter_become(uid, gid) < 0 ||
        syscall(SYS_capset, &header, caps) < 0)
        return -1;
    return prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0);
}

/* Sets the mode regardless of the umask: as root, the guest is another user, who must be able to
 * traverse it. */
static int make_directories(const char *path, mode_t mode, bool last)
{
    char part[4096];
    size_t len = strlen(path);
    if (len >= sizeof part) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(part, path, len + 1);
    for (size_t i = 1; i <= len; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        if (part[i] == '\0' && !last)
            break;
        part[i] = '\0';
        int rc = mkdir(part, mode);
        if (rc == 0)
            rc = chmod(part, mode);
        if (rc < 0 && errno != EEXIST)
            return -1;
        part[i] = path[i];
    }
    return 0;
}

/* Opens a path without following links. */
static int open_real(const char *path)
{
    struct open_how how = { .flags = O_PATH | O_CLOEXEC,
        .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
    return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

static int make_mount_point(const char *path, bool directory)
{
    if (make_directories(path, 0755, directory) < 0)
        return -1;
    cleanup_fd int fd = directory ? -1 : open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    return directory || fd >= 0 || errno == EEXIST ? 0 : -1;
}

/* A link of an image would be followed here with the host's files in reach. */
static int graft_tree(const char *source, const char *target, uint64_t attributes)
{
    struct mount_attr attr = { .attr_set = attributes };
    struct stat st;
    cleanup_fd int from = open_real(source), tree = -1, at = -1;
    if (from >= 0 && fstat(from, &st) == 0 && make_mount_point(target, S_ISDIR(st.st_mode)) == 0)
        tree = (int)syscall(SYS_open_tree, from, "",
            OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
    if (tree >= 0)
        at = open_real(target);
    if (at < 0 ||
        syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof attr) < 0)
        return -1;
    return (int)syscall(
        SYS_move_mount, tree, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

static int bind_tree(const char *source, const char *target, uint64_t attributes)
{
    struct stat st;
    if (stat(source, &st) < 0)
        return -1;
    if (make_directories(target, 0755, S_ISDIR(st.st_mode)) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode)) {
        int fd = open(target, O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0644);
        if (fd < 0)
            return -1;
        close(fd);
    }
    if (mount(source, target, NULL, MS_BIND | MS_REC, NULL) < 0)
        return -1;
    /* Recursive, so that mounts below the source are read-only too (Linux 5.12). */
    struct mount_attr attr = { .attr_set = attributes };
    return (int)syscall(SYS_mount_setattr, AT_FDCWD, target, AT_RECURSIVE, &attr, sizeof attr);
}

/* Guests write to this directory, so no component of the path may be a link, and it must be the
 * directory that the host checked. Mounted nosuid and nodev. */
static int bind_volume(
    const char *base, const char *path, const char *target, const struct jail_op *op)
{
    struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };
    char self[32];
    struct stat st;
    cleanup_fd int directory = open(base, O_PATH | O_DIRECTORY | O_CLOEXEC), source = -1;
    if (directory >= 0)
        source = (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
    if (source < 0 || fstat(source, &st) < 0)
        return -1;
    if (st.st_dev != op->a || st.st_ino != op->b) {
        errno = ESTALE;
        return -1;
    }
    snprintf(self, sizeof self, "/proc/self/fd/%d", source);
    return bind_tree(self, target, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

/* The host created this mount, because id mapping needs privileges over the volume's file system,
 * which the keeper lacks. */
static int attach_mount(uint64_t which, const char *target)
{
    if (which >= JAIL_MOUNTS) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(
        SYS_move_mount, state.lent[which], "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH);
}

static int make_read_only(const char *target)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };
    return (int)syscall(SYS_mount_setattr, AT_FDCWD, target, 0, &attr, sizeof attr);
}

static int enter_make_file(const char *path, const char *text, mode_t mode)
{
    if (make_directories(path, 0755, false) < 0)
        return -1;
    return enter_write_file(path, O_CREAT | O_TRUNC, mode, text, strlen(text));
}

static int make_symlink(const char *to, const char *path)
{
    if (make_directories(path, 0755, false) < 0)
        return -1;
    return symlink(to, path);
}

static int enter_pivot(const char *root, const char *old)
{
    if (chdir(root) < 0 || syscall(SYS_pivot_root, ".", old) < 0)
        return -1;
    return chdir("/");
}

static int set_limit(uint64_t resource, uint64_t value)
{
    /* SIGXCPU at the soft limit identifies the limit; SIGKILL at the hard limit ends processes that
     * ignore it. */
    struct rlimit limit = { value, resource == RLIMIT_CPU ? value + 1 : value }, now;
    if (getrlimit((__rlimit_resource_t)resource, &now) < 0)
        return -1;
    /* Raising a hard limit needs CAP_SYS_RESOURCE; otherwise the current one is strict enough. */
    if (now.rlim_max != RLIM_INFINITY && now.rlim_max < limit.rlim_max)
        limit.rlim_max = now.rlim_max;
    if (limit.rlim_cur > limit.rlim_max)
        limit.rlim_cur = limit.rlim_max;
    return setrlimit((__rlimit_resource_t)resource, &limit);
}

/* Without CAP_SETPCAP the set stays; no-new-privileges makes it ineffective. */
static int drop_bound(void)
{
    for (int cap = 0; cap < 64; cap++) {
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
            continue;
        return errno == EPERM || errno == EINVAL ? 0 : -1; /* no capabilities; after the last one */
    }
    return 0;
}

static int drop_caps(void)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct none[2] = { { 0 }, { 0 } };
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
        return -1;
    return (int)syscall(SYS_capset, &header, none);
}

static int load_filter(const char *bytes, uint64_t len)
{
    struct sock_fprog program = {
        .len = (unsigned short)(len / sizeof(struct sock_filter)),
        .filter = (struct sock_filter *)(uintptr_t)bytes,
    };
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

/* Raw system calls: the C library would change all threads, and two processes may share this
 * memory. */
static int enter_be(uid_t uid, gid_t gid)
{
    if (syscall(SYS_setresgid, gid, gid, gid) < 0 || syscall(SYS_setresuid, uid, uid, uid) < 0)
        return -1;
    return stay_dumpable();
}

int jail_lend_user(const struct jail_plan *plan, int in_cgroup)
{
    if (plan->user == 0)
        return 0;
    state.uid = plan->user;
    state.gid = plan->group;
    state.files_as_zygote = in_cgroup;
    if (syscall(SYS_setresgid, plan->group, plan->group, plan->group) < 0)
        return -1;
    if (in_cgroup) /* returns the previous id, and no error */
        syscall(SYS_setfsgid, state.own_gid);
    if (syscall(SYS_setresuid, plan->user, plan->user, plan->user) < 0)
        return -1;
    return stay_dumpable();
}

int jail_take_user_back(const struct jail_plan *plan)
{
    if (plan->user == 0)
        return 0;
    state.uid = state.own_uid;
    state.gid = state.own_gid;
    state.files_as_zygote = false;
    return enter_be(state.own_uid, state.own_gid);
}

void jail_lend(const int descriptors[JAIL_LENT])
{
    memcpy(state.lent, descriptors, sizeof state.lent);
}

/* In the child: sets the ids as they are named in its namespace. */
static int forget_zygote(uid_t uid, gid_t gid)
{
    return state.files_as_zygote ? enter_be(uid, gid) : 0;
}

static int map_self(uid_t uid, gid_t gid)
{
    if (write_maps(uid, gid, state.uid, state.gid) < 0)
        return -1;
    return forget_zygote(uid, gid);
}

static int enter_begin_domain(uint64_t files, uint64_t rest)
{
    struct landlock_ruleset domain = { files, rest & 0xFFFFFFFF, rest >> 32 };
    state.handled = files;
    state.ruleset = (int)syscall(SYS_landlock_create_ruleset, &domain, sizeof domain, 0);
    return state.ruleset < 0 ? -1 : 0;
}

/* Directory rights are removed for files, and rights unknown to this kernel for all: otherwise it
 * would reject the rule. */
static int enter_add_rule(const char *path, uint64_t rights, uint64_t inode)
{
    cleanup_fd int parent = open(path, O_PATH | O_CLOEXEC);
    struct {
        uint64_t rights;
        int32_t parent;
    } __attribute__((packed)) rule = { rights & state.handled, parent };
    struct stat st;
    if (parent < 0)
        return -1;
    int stat_rc = fstat(parent, &st);
    if (stat_rc == 0 && !S_ISDIR(st.st_mode))
        rule.rights &= LANDLOCK_OF_FILES;
    if (inode != 0 && (stat_rc < 0 || st.st_ino != inode)) {
        errno = ESTALE;
        return -1;
    }
    if (rule.rights == 0)
        return 0;
    return (int)syscall(SYS_landlock_add_rule, state.ruleset, 1 /* path beneath */, &rule, 0);
}

static int enter_confine(void)
{
    cleanup_fd int ruleset = state.ruleset;
    return (int)syscall(SYS_landlock_restrict_self, ruleset, 0);
}

/* A process beside the sandbox that is started again finds them mounted. */
static int mount_terminals(const char *target, const char *options)
{
    char ptmx[256];
    if (snprintf(ptmx, sizeof ptmx, "%s/ptmx", target) >= (int)sizeof ptmx) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (access(ptmx, F_OK) == 0)
        return 0;
    return mount("none", target, "devpts", MS_NOSUID | MS_NOEXEC, options);
}

/* By default a connection may hold 10 MB in the kernel, of a pool that all users share. With these
 * sizes (least, first, most) it holds what SO_RCVBUF and SO_SNDBUF permit to every user. The
 * machine's congestion control may be BBR, which sends by a timer even where nothing is lost; reno
 * is always there. Needs the zygote's /proc. */
static int set_up_tcp(void)
{
    static const char sizes[] = "4096 65536 425984";
    if (enter_write_file("/proc/sys/net/ipv4/tcp_rmem", 0, 0, sizes, sizeof sizes - 1) < 0 ||
        enter_write_file("/proc/sys/net/ipv4/tcp_wmem", 0, 0, sizes, sizeof sizes - 1) < 0)
        return -1;
    return enter_write_file("/proc/sys/net/ipv4/tcp_congestion_control", 0, 0, "reno", 4);
}

/* TCP then passes up to 256 KiB at once, instead of 64, from Linux 6.3 on, and wakes the receiver
 * that much less often, which is most of what a transfer between two processors costs. */
static int raise_loopback(void)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg link;
        struct rtattr name;
        uint32_t value;
    } up = { .head = { sizeof up, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, 0, 0 },
        .link = { .ifi_index = LOOPBACK_INDEX, .ifi_flags = IFF_UP, .ifi_change = IFF_UP },
        .name = { RTA_LENGTH(sizeof up.value), IFLA_GSO_IPV4_MAX_SIZE_ },
        .value = 256 << 10 };
    struct {
        struct nlmsghdr head;
        struct nlmsgerr body;
    } answer = { .body.error = -EPROTO };
    if (set_up_tcp() < 0)
        return -1;
    cleanup_fd int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0 || send(fd, &up, sizeof up, 0) < 0 || recv(fd, &answer, sizeof answer, 0) < 0)
        return -1;
    errno = -answer.body.error;
    return errno ? -1 : 0;
}

/* The listening socket belongs to the host alone: the guest's processes never have it. */
static int listen_for_host(uint64_t port)
{
    ANCILLARY(1) room = { { 0 } };
    struct sockaddr_in at = { .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct iovec byte = { (char[1]){ 0 }, 1 };
    struct msghdr m = { .msg_iov = &byte, .msg_iovlen = 1 };
    cleanup_fd int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof at) < 0 ||
        listen(fd, LISTEN_BACKLOG) < 0)
        return -1;
    ancillary_put(&m, &room, &fd, 1);
    return sendmsg(state.lent[JAIL_LISTENER], &m, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static int carry_out(const struct jail_plan *plan, const struct jail_op *op)
{
    const char *t0 = jail_plan_text(plan, op, 0), *t1 = jail_plan_text(plan, op, 1);
    switch ((enum jail_op_kind)op->kind) {
    case JAIL_UNSHARE:
        return unshare((int)op->a);
    case JAIL_MAP_SELF:
        return map_self((uid_t)op->a, (gid_t)op->b);
    case JAIL_BECOME:
        return enter_become((uid_t)op->a, (gid_t)op->b);
    case JAIL_BECOME_LENDER:
        return become_lender((uid_t)op->a, (gid_t)op->b);
    case JAIL_PRIVATE:
        return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    case JAIL_MOUNT:
        return mount("none", t1, t0, op->a, jail_plan_text(plan, op, 2));
    case JAIL_TERMINALS:
        return mount_terminals(t0, jail_plan_text(plan, op, 2));
    case JAIL_BIND:
        return bind_tree(t0, t1, op->a);
    case JAIL_GRAFT:
        return graft_tree(t0, t1, op->a);
    case JAIL_VOLUME:
        return bind_volume(t0, t1, jail_plan_text(plan, op, 2), op);
    case JAIL_ATTACH:
        return attach_mount(op->a, t1);
    case JAIL_JOIN:
        return setns(state.lent[JAIL_JOINED], (int)op->a);
    case JAIL_READ_ONLY:
        return make_read_only(t0);
    case JAIL_DIRECTORY:
        return make_directories(t0, (mode_t)op->a, true);
    case JAIL_FILE:
        return enter_make_file(t0, t1, (mode_t)op->a);
    case JAIL_SYMLINK:
        return make_symlink(t0, t1);
    case JAIL_PIVOT:
        return enter_pivot(t0, t1);
    case JAIL_DETACH:
        return umount2(t0, MNT_DETACH);
    case JAIL_CHDIR:
        return chdir(t0);
    case JAIL_HOSTNAME:
        return sethostname(t0, strlen(t0));
    case JAIL_LOOPBACK:
        return raise_loopback();
    case JAIL_LISTEN:
        return listen_for_host(op->a);
    case JAIL_LIMIT:
        return set_limit(op->a, op->b);
    case JAIL_SESSION:
        return setsid() < 0 ? -1 : 0;
    case JAIL_GROUP:
        return setpgid(0, 0);
    case JAIL_HIDE:
        return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    case JAIL_DROP_BOUND:
        return drop_bound();
    case JAIL_DROP_CAPS:
        return drop_caps();
    case JAIL_NO_NEW_PRIVS:
        return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    case JAIL_KEYRING:
        return syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 ? -1 : 0;
    case JAIL_SCHEDULE:
        return schedule_ordinarily();
    case JAIL_MASK:
        return mount("/dev/null", t0, NULL, MS_BIND, NULL);
    case JAIL_RULESET:
        return enter_begin_domain(op->a, op->b);
    case JAIL_RULE:
        return enter_add_rule(t0, op->a, op->b);
    case JAIL_CONFINE:
        return enter_confine();
    case JAIL_FILTER:
        return load_filter(t0, op->a);
    case JAIL_OP_COUNT:
        break;
    }
    errno = EINVAL;
    return -1;
}

/* Stores the zygote's ids. */
static void remember_ids(void)
{
    state.own_uid = state.uid = geteuid();
    state.own_gid = state.gid = getegid();
}

static bool changes_ids(uint16_t kind)
{
    return kind == JAIL_MAP_SELF || kind == JAIL_BECOME || kind == JAIL_BECOME_LENDER;
}

/* A child without its own user namespace has no ids to map. */
static bool is_among_others(const struct jail_plan *plan, enum jail_stage stage)
{
    return stage == JAIL_KEEPER && !(plan->clone_flags & CLONE_NEWUSER);
}

int jail_enter(const struct jail_plan *plan, enum jail_stage stage, uint32_t *failed)
{
    *failed = 0;
    if (stage == JAIL_ZYGOTE || stage == JAIL_OUTSIDE) {
        state.ruleset = -1;
        remember_ids();
    }
    if (is_among_others(plan, stage) && forget_zygote(state.uid, state.gid) < 0)
        return -1;
    for (uint32_t i = 0; i < plan->count; i++) {
        const struct jail_op *op = &plan->ops[i];
        if (op->stage != stage)
            continue;
        if (carry_out(plan, op) < 0 && !op->optional) {
            *failed = i;
            return -1;
        }
        if (stage == JAIL_ZYGOTE && changes_ids(op->kind))
            remember_ids();
    }
    return 0;
}
