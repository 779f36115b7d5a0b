/* The system call filter as data, without a kernel. A small interpreter runs the compiled programs,
 * so that the tests can check every number of an option without making the call. */
#include "../test.h"

#include "base/cleanup.h"
#include "base/json/json.h"
#include "jail/calls.h"
#include "jail/filter.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { ALLOWED = 0 };

/* Since 2.5.5 and 2.5.4. */
#define NEWER_THAN_LIBSECCOMP "fchmodat2 futex_waitv"

/* The two programs that a guest is under. */
struct wall {
    struct buf list, own;
};

static void wall_free(struct wall *w)
{
    buf_free(&w->list);
    buf_free(&w->own);
}

#define cleanup_wall __attribute__((cleanup(wall_free)))

static struct wall make_wall(bool own_root)
{
    struct wall w = { 0 };
    assert_ok(filter_compile(FILTER_ZYGOTE, own_root, 0, &w.list, err));
    assert_ok(filter_compile(FILTER_GUEST, own_root, 0, &w.own, err));
    return w;
}

static bool jumps(uint16_t code, uint32_t a, uint32_t k)
{
    switch (BPF_OP(code)) {
    case BPF_JEQ:
        return a == k;
    case BPF_JGT:
        return a > k;
    case BPF_JGE:
        return a >= k;
    case BPF_JSET:
        return a & k;
    default:
        fail_msg("a jump of %#x", code);
        return false;
    }
}

/* bpf(4), as far as seccomp(2) has it and libseccomp writes it. */
static uint32_t run_program(const struct buf *program, const struct seccomp_data *data)
{
    const struct sock_filter *at = (const void *)program->data, *end;
    uint32_t a = 0;
    for (end = at + program->len / sizeof *at; at < end; at++) {
        switch (BPF_CLASS(at->code)) {
        case BPF_LD:
            assert_true(at->k <= sizeof *data - sizeof a);
            memcpy(&a, (const char *)data + at->k, sizeof a);
            break;
        case BPF_ALU:
            assert_int_equal(BPF_OP(at->code), BPF_AND);
            a &= at->k;
            break;
        case BPF_JMP:
            if (BPF_OP(at->code) == BPF_JA)
                at += at->k;
            else
                at += jumps(at->code, a, at->k) ? at->jt : at->jf;
            break;
        case BPF_RET:
            return at->k;
        default:
            fail_msg("an instruction of %#x", at->code);
        }
    }
    fail_msg("the program has no end");
    return 0;
}

/* ALLOWED, or the errno; -1: neither. seccomp(2): of several programs the strictest answer
 * counts. */
static int answer(const struct wall *w, int number, const uint64_t args[6])
{
    struct seccomp_data data = { .nr = number, .arch = seccomp_arch_native() };
    memcpy(data.args, args, sizeof data.args);
    uint32_t list = run_program(&w->list, &data), own = run_program(&w->own, &data);
    uint32_t got = list == SECCOMP_RET_ALLOW ? own : list;
    if (got == SECCOMP_RET_ALLOW)
        return ALLOWED;
    return (got & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO ? (int)(got & SECCOMP_RET_DATA)
                                                                : -1;
}

#define ASK(wall, name, ...)                                                                       \
    answer(wall, seccomp_syscall_resolve_name(name), (const uint64_t[6]){ __VA_ARGS__ })

/* ---- socket options ---- */

/* What may be set, of SOL_SOCKET: written out, so that the table cannot allow one more by
 * mistake. */
static const int may_set[] = { SO_REUSEADDR, SO_REUSEPORT, SO_KEEPALIVE, SO_BROADCAST, SO_LINGER,
    SO_OOBINLINE, SO_RCVBUF, SO_SNDBUF, SO_RCVLOWAT, SO_RCVTIMEO, SO_SNDTIMEO, SO_PASSCRED,
    76 /* SO_PASSPIDFD */, 83 /* SO_PASSRIGHTS */ };

static bool is_in(int value, const int *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == value)
            return true;
    return false;
}

/* Every number that an option could have, so that those of later kernels are among them: no program
 * can be attached to a socket (SO_ATTACH_FILTER, SO_ATTACH_BPF, the reuse-port ones), which comes
 * from net.core.bpf_jit_limit, a pool that all users of the machine share. */
static void no_socket_option_but_those_of_the_list_can_be_set(void **state)
{
    for (int own_root = 0; own_root <= 1; own_root++) {
        cleanup_wall struct wall w = make_wall(own_root);
        for (int option = 0; option < 4096; option++) {
            int got = ASK(&w, "setsockopt", 3, SOL_SOCKET, (uint64_t)option, 1, 16);
            if (is_in(option, may_set, array_length(may_set)) != (got == ALLOWED))
                fail_msg("setsockopt of %d gives %d", option, got);
        }
    }
}

/* Attacks are told EPERM, with whatever the kernel does not look at in the upper half of an
 * argument. */
static void programs_on_sockets_are_refused_by_name(void **state)
{
    static const int programs[] = { SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF,
        SO_ATTACH_REUSEPORT_EBPF, SO_LOCK_FILTER, SO_TIMESTAMPING, SO_ZEROCOPY };
    cleanup_wall struct wall w = make_wall(true);
    for (size_t i = 0; i < array_length(programs); i++) {
        const uint64_t option = (uint64_t)programs[i];
        assert_int_equal(ASK(&w, "setsockopt", 3, SOL_SOCKET, option, 1, 16), EPERM);
        assert_int_equal(
            ASK(&w, "setsockopt", 3, SOL_SOCKET | 1ull << 32, option | 1ull << 40, 1, 16), EPERM);
    }
    assert_int_equal(ASK(&w, "setsockopt", 3, SOL_SOCKET | 1ull << 32, SO_KEEPALIVE), ALLOWED);
}

/* Levels that have no row have no option: netlink, packets, ALG, the tables of a firewall. */
static void no_level_but_those_of_the_list_has_options(void **state)
{
    static const int levels[] = { SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP, IPPROTO_IPV6 };
    cleanup_wall struct wall w = make_wall(true);
    for (int level = 0; level < 512; level++)
        for (int option = 0; option < 128; option++)
            if (!is_in(level, levels, array_length(levels)) &&
                (ASK(&w, "setsockopt", 3, (uint64_t)level, (uint64_t)option) == ALLOWED ||
                    ASK(&w, "getsockopt", 3, (uint64_t)level, (uint64_t)option) == ALLOWED))
                fail_msg("option %d of level %d", option, level);
    assert_int_equal(ASK(&w, "setsockopt", 3, IPPROTO_TCP, TCP_NODELAY), ALLOWED);
    assert_int_equal(ASK(&w, "setsockopt", 3, IPPROTO_TCP, TCP_CONGESTION), ENOSYS);
    assert_int_equal(ASK(&w, "getsockopt", 3, IPPROTO_TCP, TCP_CONGESTION), ALLOWED);
    assert_int_equal(ASK(&w, "setsockopt", 3, IPPROTO_TCP, TCP_ULP), EPERM);
    assert_int_equal(ASK(&w, "setsockopt", 3, IPPROTO_IPV6, IPV6_V6ONLY), ALLOWED);
    assert_int_equal(ASK(&w, "setsockopt", 3, IPPROTO_IP, 64 /* IPT_SO_SET_REPLACE */), ENOSYS);
}

/* ---- the tables ---- */

/* Each value of a table has the answer that stands there, and values around it that no row has are
 * refused. */
static void commands_are_allowed_by_value(void **state)
{
    cleanup_wall struct wall w = make_wall(true);
    for (const struct call_rule *r = call_rules; r->names; r++) {
        const struct call_argument *a = r->arguments;
        for (const struct call_value *v = a->values; !a->flags && v->name; v++) {
            uint64_t args[6] = { 0 };
            args[a->index] = v->value;
            int number = seccomp_syscall_resolve_name(r->names);
            if (answer(&w, number, args) != v->answer)
                fail_msg("%s of %s gives %d", r->names, v->name, answer(&w, number, args));
            args[a->index] = v->value ^ 0x40000000;
            assert_int_equal(answer(&w, number, args), ENOSYS);
        }
    }
}

static void flags_are_allowed_by_bit(void **state)
{
    cleanup_wall struct wall w = make_wall(true);
    for (const struct call_rule *r = call_rules; r->names; r++) {
        char name[64];
        const char *names = r->names;
        while (r->arguments[0].flags && call_next_name(&names, name, sizeof name)) {
            uint64_t args[6] = { 0 };
            for (size_t i = 0; i < 2; i++) {
                const struct call_argument *a = &r->arguments[i];
                uint32_t allowed = 0;
                for (const struct call_value *v = a->values; v && v->name; v++)
                    allowed |= v->answer == CALL_ALLOWED ? v->value : 0;
                for (int bit = 0; a->values && bit < 32; bit++) {
                    args[a->index] = 1ull << bit;
                    int got = answer(&w, seccomp_syscall_resolve_name(name), args);
                    if ((got == ALLOWED) != (allowed >> bit & 1))
                        fail_msg(
                            "%s with bit %d of argument %u gives %d", name, bit, a->index, got);
                }
                args[a->index] = allowed; /* all of them together */
                assert_int_equal(answer(&w, seccomp_syscall_resolve_name(name), args), ALLOWED);
            }
        }
    }
}

/* What is dangerous, named here and not only in the table. */
static void what_reaches_others_is_refused(void **state)
{
    cleanup_wall struct wall w = make_wall(true);
    const uint64_t anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    assert_int_equal(ASK(&w, "mmap", 0, 1 << 21, PROT_READ, anonymous | MAP_HUGETLB, -1ull), EPERM);
    assert_int_equal(ASK(&w, "mmap", 0, 1 << 21, PROT_READ, anonymous, -1ull), ALLOWED);
    assert_int_equal(ASK(&w, "memfd_create", 0, MFD_CLOEXEC | MFD_HUGETLB), EPERM);
    assert_int_equal(ASK(&w, "memfd_create", 0, MFD_CLOEXEC), ALLOWED);
    assert_int_equal(ASK(&w, "madvise", 0, 4096, MADV_MERGEABLE), EPERM);
    assert_int_equal(ASK(&w, "madvise", 0, 4096, MADV_HUGEPAGE), ALLOWED);
    assert_int_equal(ASK(&w, "fcntl", 0, F_SETPIPE_SZ, 65536), ALLOWED);
    assert_int_equal(ASK(&w, "fcntl", 0, F_SETPIPE_SZ, 65537), EPERM);
    assert_int_equal(ASK(&w, "fcntl", 0, F_SETLEASE, F_RDLCK), EPERM);
    assert_int_equal(ASK(&w, "ioctl", 0, TIOCSTI), EPERM);
    assert_int_equal(ASK(&w, "ioctl", 0, 0x5760 /* IOC_WATCH_QUEUE_SET_SIZE */), ENOSYS);
    assert_int_equal(ASK(&w, "pipe2", 0, O_CLOEXEC | O_EXCL), EPERM);
    assert_int_equal(ASK(&w, "prctl", PR_SET_SECCOMP, 2), EPERM);
    assert_int_equal(ASK(&w, "seccomp", 1, 0), EPERM);
    assert_int_equal(ASK(&w, "membarrier", 1), EPERM);
    assert_int_equal(ASK(&w, "vmsplice", 1), EPERM);
    static const char *const shared[] = { "bpf", "add_key", "keyctl", "fanotify_init",
        "perf_event_open", "userfaultfd", "io_uring_setup", "ioprio_set", "sched_setattr",
        "mlockall", "inotify_init1", "epoll_create1", "mq_open", "shmget", "msgget", "semget",
        "io_setup", "memfd_secret", "landlock_create_ruleset", "clone3", "mount", "unshare" };
    for (size_t i = 0; i < array_length(shared); i++) {
        assert_true(seccomp_syscall_resolve_name(shared[i]) >= 0);
        assert_int_not_equal(ASK(&w, shared[i], 0), ALLOWED);
    }
}

static void threads_and_processes_are_made_and_namespaces_are_not(void **state)
{
    const uint64_t thread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                            CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID |
                            CLONE_CHILD_CLEARTID;
    const uint64_t child = CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | 17;
    cleanup_wall struct wall w = make_wall(true);
    assert_int_equal(ASK(&w, "clone", thread), ALLOWED);
    assert_int_equal(ASK(&w, "clone", child), ALLOWED);
    assert_int_equal(ASK(&w, "clone", CLONE_VM | CLONE_VFORK | 17), ALLOWED);
    assert_int_equal(ASK(&w, "clone", CLONE_PIDFD | 17), ALLOWED);
    for (const struct call_value *v = call_clone_flags; v->name; v++) {
        assert_int_equal(ASK(&w, "clone", child | v->value), EPERM);
        assert_int_equal(ASK(&w, "clone", v->value), EPERM);
    }
}

static void sockets_are_allowed_by_family_type_and_protocol(void **state)
{
    cleanup_wall struct wall root = make_wall(true), files = make_wall(false);
    const uint64_t flags = SOCK_CLOEXEC | SOCK_NONBLOCK;
    assert_int_equal(ASK(&root, "socket", AF_UNIX, SOCK_STREAM | flags, 0), ALLOWED);
    assert_int_equal(ASK(&root, "socket", AF_INET6, SOCK_DGRAM | flags, IPPROTO_UDP), ALLOWED);
    assert_int_equal(ASK(&root, "socket", AF_INET, SOCK_RAW, IPPROTO_ICMP), ENOSYS);
    assert_int_equal(ASK(&root, "socket", AF_NETLINK, SOCK_RAW, 0), ENOSYS);
    assert_int_equal(ASK(&root, "socketpair", AF_UNIX, SOCK_SEQPACKET | flags, 0), ALLOWED);
    assert_int_equal(ASK(&root, "socketpair", AF_UNIX, SOCK_RAW, 0), ENOSYS);
    assert_int_equal(ASK(&root, "socketpair", 30 /* AF_TIPC */, SOCK_STREAM, 0), ENOSYS);
    assert_int_equal(ASK(&files, "socket", AF_UNIX, SOCK_STREAM, 0), EPERM);
    assert_int_equal(ASK(&files, "socketpair", AF_UNIX, SOCK_STREAM, 0), ALLOWED);
}

/* Among the host's files the priorities and limits of others, and what files are like, stay as they
 * are. */
static void a_guest_among_files_changes_itself_only(void **state)
{
    cleanup_wall struct wall root = make_wall(true), files = make_wall(false);
    assert_int_equal(ASK(&root, "chmod", 0), ALLOWED);
    assert_int_equal(ASK(&files, "chmod", 0), EPERM);
    assert_int_equal(ASK(&files, "setpriority", PRIO_PROCESS, 0, 5), ALLOWED);
    assert_int_not_equal(ASK(&files, "setpriority", PRIO_PROCESS, 77, 5), ALLOWED);
    assert_int_equal(ASK(&files, "prlimit64", 0, RLIMIT_NOFILE, 1), ALLOWED);
    assert_int_not_equal(ASK(&files, "prlimit64", 77, RLIMIT_NOFILE, 1), ALLOWED);
    assert_int_equal(ASK(&root, "setpriority", PRIO_PROCESS, 77, 5), ALLOWED);
    assert_int_equal(ASK(&root, "prlimit64", 0, RLIMIT_NOFILE, 1), ALLOWED);
    assert_int_equal(ASK(&root, "prlimit64", 1, RLIMIT_CPU, 1), EPERM);
    assert_int_equal(ASK(&root, "prlimit64", 77, RLIMIT_CPU, 1), EPERM);
    assert_int_equal(ASK(&root, "prlimit64", 77, RLIMIT_CPU, 0), ALLOWED);
    assert_int_equal(ASK(&root, "prlimit64", 0, RLIMIT_CORE, 1), ENOSYS);
}

/* A number that no kernel has yet, and what the tables do not name. */
static void all_else_is_as_if_it_were_not_there(void **state)
{
    cleanup_wall struct wall w = make_wall(true);
    for (int number = 470; number < 1200; number++)
        assert_int_equal(answer(&w, number, (const uint64_t[6]){ 0 }), ENOSYS);
    assert_int_equal(ASK(&w, "read", 0), ALLOWED);
    assert_int_equal(ASK(&w, "sync", 0), 0);
}

/* ---- for other machines ---- */

static bool filter_names_have(const char *names, const char *call)
{
    char name[64];
    while (call_next_name(&names, name, sizeof name))
        if (strcmp(name, call) == 0)
            return true;
    return false;
}

/* True if a row of any table, or a rule of jail/filter.c, is about this call. */
static bool filter_decides(const char *call)
{
    for (const struct call_group *g = call_groups; g->names; g++)
        if (filter_names_have(g->names, call))
            return true;
    for (const struct call_group *g = call_set_up; g->names; g++)
        if (filter_names_have(g->names, call))
            return true;
    for (const struct call_rule *r = call_rules; r->names; r++)
        if (filter_names_have(r->names, call))
            return true;
    return filter_names_have(
        "clone setpriority prlimit64 socket socketpair setsockopt getsockopt", call);
}

/* A call that 64-bit ARM has, and that no row names, is one that x86-64 has too: the tables leave
 * out the same calls there, and nothing that only ARM's C library needs. */
static void the_tables_cover_what_arm_has(void **state)
{
    unsigned decided = 0;
    for (int number = 0; number < 500; number++) {
        char *call = seccomp_syscall_resolve_num_arch(SCMP_ARCH_AARCH64, number);
        if (call && filter_decides(call))
            decided++;
        else if (call && seccomp_syscall_resolve_name_arch(SCMP_ARCH_X86_64, call) < 0)
            fail_msg("64-bit ARM has %s (%d), which no table names", call, number);
        free(call);
    }
    assert_true(decided > 200);
}

/* Each name is a call of one of the two machines: libseccomp skips unknown names silently, and a
 * misspelt one would be denied. Versions of it may be older than a call. */
static void every_name_is_a_call(void **state)
{
    char name[64];
    for (const struct call_group *g = call_groups; g->names; g++)
        for (const char *names = g->names; call_next_name(&names, name, sizeof name);)
            if (seccomp_syscall_resolve_name_arch(SCMP_ARCH_X86_64, name) < 0 &&
                seccomp_syscall_resolve_name_arch(SCMP_ARCH_AARCH64, name) < 0)
                assert_true(filter_names_have(NEWER_THAN_LIBSECCOMP, name));
}

/* The flag has another number on 64-bit ARM. */
static void pipes_may_have_packets(void **state)
{
    cleanup_wall struct wall w = make_wall(true);
    assert_int_equal(ASK(&w, "pipe2", 0, O_DIRECT), ALLOWED);
    assert_int_equal(ASK(&w, "pipe2", 0, O_EXCL), EPERM);
}

/* ---- for containers ---- */

/* What a profile says of a call without conditions: an errno, 0 where it is allowed, -1:
 * nothing. */
static int profile_answer(struct json_object *profile, const char *call)
{
    struct json_object *calls = json_get_typed(profile, "syscalls", json_type_array);
    for (size_t i = 0; i < json_object_array_length(calls); i++) {
        struct json_object *row = json_object_array_get_idx(calls, i);
        struct json_object *names = json_get_typed(row, "names", json_type_array);
        if (json_object_array_length(json_get_typed(row, "args", json_type_array)) > 0)
            continue;
        for (size_t n = 0; n < json_object_array_length(names); n++)
            if (strcmp(json_object_get_string(json_object_array_get_idx(names, n)), call) == 0)
                return (int)json_get_int(row, "errnoRet", 0);
    }
    return -1;
}

/* Every group of the table is in the profile with its answer, and epoll, which an image's programs
 * need, is allowed. */
static void a_container_has_the_list(void **state)
{
    cleanup_buf struct buf text = { 0 };
    cleanup_json struct json_object *profile = NULL;
    char name[64];
    assert_ok(filter_profile(&text, err));
    assert_ok(json_parse(text.data, text.len, &json_limits_large, &profile, err));
    assert_string_equal(json_get_string(profile, "defaultAction", ""), "SCMP_ACT_ERRNO");
    assert_int_equal(json_get_int(profile, "defaultErrnoRet", 0), ENOSYS);
    for (const struct call_group *g = call_groups; g->names; g++)
        for (const char *names = g->names; call_next_name(&names, name, sizeof name);) {
            int answer = g->where == CALL_IN_CONTAINER ? 0 : g->answer;
            assert_int_equal(
                profile_answer(profile, name), answer == CALL_DOES_NOTHING ? 0 : answer);
        }
    assert_int_equal(profile_answer(profile, "io_uring_setup"), EPERM);
    assert_int_equal(profile_answer(profile, "clone3"), ENOSYS);
    assert_int_equal(profile_answer(profile, "mount"), EPERM);
    assert_int_equal(profile_answer(profile, "epoll_wait"), 0);
    assert_int_equal(profile_answer(profile, "clone"), -1); /* with conditions only */
    assert_int_equal(profile_answer(profile, "prctl"), -1);
}

/* Other sandboxes do not have the driver's commands, and no sandbox has those that type into a
 * terminal, those of frame buffers, and the driver's own tests. */
static void commands_of_a_gpu_are_for_sandboxes_with_one(void **state)
{
    static const uint32_t refused[] = { TIOCSTI, 0x4600, 0x4606, 0x40084608, 0x800846C8,
        0xC0084601 + 0x100, 128, 200, 255, 256, 0x30000000, 0x30000003, 0x5421 + 0x10000 };
    static const uint32_t sizes[] = { 0, 8, 0x3FFF };
    cleanup_wall struct wall none = make_wall(true), gpu = { 0 };
    assert_ok(filter_compile(FILTER_ZYGOTE, true, FILTER_NVIDIA, &gpu.list, err));
    assert_ok(filter_compile(FILTER_GUEST, true, 0, &gpu.own, err));
    for (uint32_t number = 0; number < 256; number++)
        for (size_t i = 0; i < array_length(sizes); i++) {
            uint64_t command = 0xC0004600u | sizes[i] << 16 | number;
            assert_int_equal(ASK(&gpu, "ioctl", 3, command), ALLOWED);
            assert_int_equal(ASK(&none, "ioctl", 3, command), ENOSYS);
        }
    for (uint32_t number = 0; number < 128; number++) {
        assert_int_equal(ASK(&gpu, "ioctl", 3, number), ALLOWED);
        assert_int_equal(ASK(&none, "ioctl", 3, number), ENOSYS);
    }
    assert_int_equal(ASK(&gpu, "ioctl", 3, 0x30000001), ALLOWED);
    for (size_t i = 0; i < array_length(refused); i++)
        assert_int_not_equal(ASK(&gpu, "ioctl", 3, refused[i]), ALLOWED);
    assert_int_equal(ASK(&gpu, "ioctl", 3, TIOCGWINSZ), ALLOWED);
    assert_int_equal(ASK(&gpu, "epoll_create1", 0), ENOSYS);
}

/* ---- in words ---- */

static void every_row_says_why(void **state)
{
    cleanup_buf struct buf out = { 0 };
    for (const struct call_group *g = call_groups; g->names; g++)
        assert_true(g->why && g->why[0]);
    for (const struct call_option *o = call_options; o->name; o++)
        assert_true(o->why && o->why[0]);
    calls_print(CALL_IN_OWN_ROOT, &out);
    assert_non_null(
        strstr(buf_text(&out), "EPERM        SO_ATTACH_FILTER: a program in the kernel"));
    assert_non_null(strstr(buf_text(&out), "allowed      SO_KEEPALIVE: "));
    assert_non_null(strstr(buf_text(&out), "F_SETPIPE_SZ up to 65536"));
    buf_clear(&out);
    calls_print(CALL_AMONG_FILES, &out);
    assert_non_null(strstr(buf_text(&out), "socketpair (socket: EPERM)"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_socket_option_but_those_of_the_list_can_be_set),
        cmocka_unit_test(programs_on_sockets_are_refused_by_name),
        cmocka_unit_test(no_level_but_those_of_the_list_has_options),
        cmocka_unit_test(commands_are_allowed_by_value),
        cmocka_unit_test(flags_are_allowed_by_bit),
        cmocka_unit_test(what_reaches_others_is_refused),
        cmocka_unit_test(threads_and_processes_are_made_and_namespaces_are_not),
        cmocka_unit_test(sockets_are_allowed_by_family_type_and_protocol),
        cmocka_unit_test(a_guest_among_files_changes_itself_only),
        cmocka_unit_test(all_else_is_as_if_it_were_not_there),
        cmocka_unit_test(the_tables_cover_what_arm_has),
        cmocka_unit_test(every_name_is_a_call),
        cmocka_unit_test(pipes_may_have_packets),
        cmocka_unit_test(a_container_has_the_list),
        cmocka_unit_test(commands_of_a_gpu_are_for_sandboxes_with_one),
        cmocka_unit_test(every_row_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
