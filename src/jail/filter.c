/* jail/filter.c: compiles the tables in jail/calls.c with libseccomp into an allow-list.
 *
 * The list covers CPython, its standard library and common packages. Everything else is ENOSYS,
 * except known attack targets, which are EPERM so that reports name them. If a call takes commands,
 * options or flags, these have allow-lists too.
 *
 * Guests among the host's files (isolation `landlock`) are also denied what Landlock does not
 * control: connecting to a socket by its path (before Linux 7.1), changing owners, modes, times and
 * attributes of files that they may only read, and changing other processes' priorities. A guest
 * changes its own limits only, at every level.
 *
 * clone3 passes its flags in memory, which a filter cannot read; on ENOSYS the C library falls back
 * to clone. io_uring works outside the filter's view and is not in the list.
 */
#include "jail/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/os/file.h"
#include "jail/calls.h"

/* The kernel uses 32 bits of an int, so the filter must compare only those. */
#define INT_MASK 0xFFFFFFFFull

static uint32_t action_of(int answer)
{
    return answer == CALL_ALLOWED        ? SCMP_ACT_ALLOW
           : answer == CALL_DOES_NOTHING ? SCMP_ACT_ERRNO(0)
                                         : SCMP_ACT_ERRNO((uint32_t)answer);
}

/* Where rules are added: libseccomp's filter, or a profile for a container daemon. */
struct filter_target {
    scmp_filter_ctx ctx;
    struct buf *profile; /* its `syscalls`; NULL: use the filter */
    unsigned more;       /* FILTER_… */
};

static void profile_condition(struct buf *out, const struct scmp_arg_cmp *c)
{
    static const char *const operators[] = { [SCMP_CMP_NE] = "SCMP_CMP_NE",
        [SCMP_CMP_LT] = "SCMP_CMP_LT",
        [SCMP_CMP_LE] = "SCMP_CMP_LE",
        [SCMP_CMP_EQ] = "SCMP_CMP_EQ",
        [SCMP_CMP_GE] = "SCMP_CMP_GE",
        [SCMP_CMP_GT] = "SCMP_CMP_GT",
        [SCMP_CMP_MASKED_EQ] = "SCMP_CMP_MASKED_EQ" };
    field_open(out, NULL, '{');
    field_int(out, "index", c->arg);
    field_int(out, "value", (int64_t)c->datum_a);
    field_int(out, "valueTwo", (int64_t)c->datum_b);
    field_string(out, "op", operators[c->op]);
    field_close(out, '}');
}

/* Adds all names, including those that this machine lacks: the daemon may be on another one, and
 * ignores unknown names. */
static int profile_add(struct buf *out, uint32_t action, const char *names, unsigned count,
    const struct scmp_arg_cmp *arguments)
{
    char name[64];
    bool allowed = action == SCMP_ACT_ALLOW;
    field_open(out, NULL, '{');
    field_open(out, "names", '[');
    while (call_next_name(&names, name, sizeof name))
        field_string(out, NULL, name);
    field_close(out, ']');
    field_open(out, "args", '[');
    for (unsigned i = 0; i < count; i++)
        profile_condition(out, &arguments[i]);
    field_close(out, ']');
    field_string(out, "action", allowed ? "SCMP_ACT_ALLOW" : "SCMP_ACT_ERRNO");
    if (!allowed)
        field_int(out, "errnoRet", action & SECCOMP_RET_DATA);
    field_close(out, '}');
    return 0;
}

/* Adds a rule for each name, unless this architecture lacks the call (libseccomp then returns a
 * negative number). */
static int filter_rules(const struct filter_target *to, uint32_t action, const char *names,
    unsigned count, const struct scmp_arg_cmp *arguments)
{
    char name[64];
    int rc = 0;
    if (to->profile)
        return profile_add(to->profile, action, names, count, arguments);
    while (rc == 0 && call_next_name(&names, name, sizeof name)) {
        int number = seccomp_syscall_resolve_name(name);
        if (number >= 0)
            rc = seccomp_rule_add_array(to->ctx, action, number, count, arguments);
    }
    return rc;
}

static int add_groups(const struct filter_target *to, bool own_root)
{
    int rc = 0;
    for (const struct call_group *g = call_groups; rc == 0 && g->names; g++) {
        bool as_container =
            to->profile || (to->more & FILTER_EPOLL && g->where == CALL_IN_CONTAINER);
        int answer = call_answer(g, as_container ? CALL_IN_CONTAINER
                                    : own_root   ? CALL_IN_OWN_ROOT
                                                 : CALL_AMONG_FILES);
        /* the default action, except for daemons before 23.0 */
        if (answer != ENOSYS || to->profile)
            rc = filter_rules(to, action_of(answer), g->names, 0, NULL);
    }
    return rc;
}

/* Adds one rule for a value, or two if its companion argument has a limit. */
static int filter_add_value(
    const struct filter_target *to, const char *names, unsigned index, const struct call_value *v)
{
    const struct scmp_arg_cmp is = SCMP_CMP(index, SCMP_CMP_MASKED_EQ, INT_MASK, v->value);
    const struct scmp_arg_cmp within[] = { is, SCMP_CMP(index + 1, SCMP_CMP_LE, v->most) };
    const struct scmp_arg_cmp beyond[] = { is, SCMP_CMP(index + 1, SCMP_CMP_GT, v->most) };
    if (v->most == 0)
        return filter_rules(to, action_of(v->answer), names, 1, &is);
    int rc = filter_rules(to, action_of(v->answer), names, 2, within);
    return rc < 0 ? rc : filter_rules(to, SCMP_ACT_ERRNO(EPERM), names, 2, beyond);
}

/* Matches if an argument has only allowed bits. */
static struct scmp_arg_cmp only_allowed_bits(const struct call_argument *a)
{
    scmp_datum_t allowed = 0;
    for (const struct call_value *v = a->values; v->name; v++)
        if (v->answer == CALL_ALLOWED)
            allowed |= v->value;
    return SCMP_CMP(a->index, SCMP_CMP_MASKED_EQ, INT_MASK & ~allowed, 0);
}

static int refuse_bits(
    const struct filter_target *to, const char *names, const struct call_argument *a)
{
    int rc = 0;
    for (const struct call_value *v = a->values; rc == 0 && v->name; v++) {
        const struct scmp_arg_cmp set = SCMP_CMP(a->index, SCMP_CMP_MASKED_EQ, v->value, v->value);
        if (v->answer != CALL_ALLOWED)
            rc = filter_rules(to, action_of(v->answer), names, 1, &set);
    }
    return rc;
}

static int filter_add_rule(const struct filter_target *to, const struct call_rule *r)
{
    const struct call_argument *a = r->arguments;
    int rc = 0;
    if (!a[0].flags) {
        for (const struct call_value *v = a[0].values; rc == 0 && v->name; v++)
            rc = filter_add_value(to, r->names, a[0].index, v);
        return rc;
    }
    unsigned count = a[1].values ? 2 : 1;
    struct scmp_arg_cmp all[2];
    for (unsigned i = 0; rc == 0 && i < count; i++) {
        all[i] = only_allowed_bits(&a[i]);
        rc = refuse_bits(to, r->names, &a[i]);
    }
    return rc < 0 ? rc : filter_rules(to, SCMP_ACT_ALLOW, r->names, count, all);
}

/* Priorities and limits: of the caller only, or of any process that it can see. */
static int add_processes(const struct filter_target *to, bool own_root)
{
    if (own_root)
        return filter_rules(to, SCMP_ACT_ALLOW, "setpriority prlimit64", 0, NULL);
    const struct scmp_arg_cmp itself[] = { SCMP_A0(SCMP_CMP_EQ, PRIO_PROCESS),
        SCMP_A1(SCMP_CMP_EQ, 0) };
    int rc = filter_rules(to, SCMP_ACT_ALLOW, "setpriority", 2, itself);
    const struct scmp_arg_cmp own = SCMP_A0(SCMP_CMP_EQ, 0);
    return rc < 0 ? rc : filter_rules(to, SCMP_ACT_ALLOW, "prlimit64", 1, &own);
}

static int add_socket(const struct filter_target *to, const struct call_socket *s, bool pairs)
{
    const struct scmp_arg_cmp all[] = {
        SCMP_A0(SCMP_CMP_MASKED_EQ, INT_MASK, s->family),
        SCMP_A1(
            SCMP_CMP_MASKED_EQ, INT_MASK & ~(scmp_datum_t)(SOCK_CLOEXEC | SOCK_NONBLOCK), s->type),
        SCMP_A2(SCMP_CMP_MASKED_EQ, INT_MASK, s->protocol),
    };
    return filter_rules(to, SCMP_ACT_ALLOW, pairs ? "socketpair" : "socket", 3, all);
}

static int add_sockets(const struct filter_target *to, bool own_root)
{
    int rc = own_root ? 0 : filter_rules(to, SCMP_ACT_ERRNO(EPERM), "socket", 0, NULL);
    for (const struct call_socket *s = call_sockets; rc == 0 && s->name; s++) {
        if (own_root && !s->pairs_only)
            rc = add_socket(to, s, false);
        if (rc == 0 && s->family == AF_UNIX)
            rc = add_socket(to, s, true);
    }
    return rc;
}

static int add_options(const struct filter_target *to)
{
    int rc = 0;
    for (const struct call_option *o = call_options; rc == 0 && o->name; o++) {
        const struct scmp_arg_cmp is[] = { SCMP_A1(SCMP_CMP_MASKED_EQ, INT_MASK, o->level),
            SCMP_A2(SCMP_CMP_MASKED_EQ, INT_MASK, o->option) };
        uint32_t action = o->may ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM);
        if (o->may & OPTION_SET || !o->may)
            rc = filter_rules(to, action, "setsockopt", 2, is);
        if (rc == 0 && (o->may & OPTION_GET || !o->may))
            rc = filter_rules(to, action, "getsockopt", 2, is);
    }
    return rc;
}

static int filter_add_list(const struct filter_target *to, bool own_root)
{
    int rc = add_groups(to, own_root);
    for (const struct call_rule *r = call_rules; rc == 0 && r->names; r++)
        rc = filter_add_rule(to, r);
    if (rc == 0)
        rc = add_processes(to, own_root);
    if (rc == 0)
        rc = add_sockets(to, own_root);
    return rc < 0 ? rc : add_options(to);
}

/* Only the guest gets their answers. */
static int add_set_up_prctls(const struct filter_target *to, bool guest)
{
    int rc = 0;
    for (const struct call_value *v = call_set_up_prctls; rc == 0 && v->name; v++) {
        const struct scmp_arg_cmp is = SCMP_A0(SCMP_CMP_MASKED_EQ, INT_MASK, v->value);
        rc = filter_rules(to, action_of(guest ? v->answer : CALL_ALLOWED), "prctl", 1, &is);
    }
    return rc;
}

static int add_device_commands(const struct filter_target *to)
{
    int rc = 0;
    for (const struct call_commands *c = call_device_commands; rc == 0 && c->name; c++) {
        const struct scmp_arg_cmp among = SCMP_CMP(1, SCMP_CMP_MASKED_EQ, c->mask, c->value);
        rc = filter_rules(to, SCMP_ACT_ALLOW, "ioctl", 1, &among);
    }
    return rc;
}

/* Additional calls for the zygote. */
static int add_set_up(const struct filter_target *to, bool own_root)
{
    int rc = filter_rules(to, SCMP_ACT_ALLOW, "clone", 0, NULL);
    for (const struct call_group *g = call_set_up; rc == 0 && g->names; g++)
        rc = filter_rules(to, SCMP_ACT_ALLOW, g->names, 0, NULL);
    if (rc == 0 && own_root)
        rc = add_socket(to, &call_set_up_socket, false);
    return rc < 0 ? rc : add_set_up_prctls(to, false);
}

/* Denies changes of the core limit. Its value 1 prevents the kernel from starting a core-dump
 * program on the host (core(5), "Piping core dumps to a program"); with 0 it would start it.
 * Programs that set the limit to 0 handle ENOSYS better than EPERM. */
static int keep_core_limit(const struct filter_target *to)
{
    const struct scmp_arg_cmp is = SCMP_A0(SCMP_CMP_MASKED_EQ, INT_MASK, RLIMIT_CORE);
    const struct scmp_arg_cmp new[] = { SCMP_A1(SCMP_CMP_MASKED_EQ, INT_MASK, RLIMIT_CORE),
        SCMP_A2(SCMP_CMP_NE, 0) };
    int rc = filter_rules(to, SCMP_ACT_ERRNO(ENOSYS), "setrlimit", 1, &is);
    return rc < 0 ? rc : filter_rules(to, SCMP_ACT_ERRNO(ENOSYS), "prlimit64", 2, new);
}

/* A guest may change its own limits, but not those of other processes. Without processor time its
 * keeper could not report how it ended, and forks of one session, which have the same user, are in
 * the same namespaces. Keepers of forks have any pid, so no rule can name them. */
static int keep_limits_of_others(const struct filter_target *to)
{
    const struct scmp_arg_cmp new[] = { SCMP_A0(SCMP_CMP_NE, 0), SCMP_A2(SCMP_CMP_NE, 0) };
    return filter_rules(to, SCMP_ACT_ERRNO(EPERM), "prlimit64", 2, new);
}

/* For a clone into a namespace the C library sees EPERM, as without privileges. */
static int take_set_up_away(const struct filter_target *to)
{
    static const struct call_argument flags = { 0, true, call_clone_flags };
    int rc = refuse_bits(to, "clone", &flags);
    for (const struct call_group *g = call_set_up; rc == 0 && g->names; g++)
        rc = filter_rules(to, action_of(g->answer), g->names, 0, NULL);
    if (rc == 0)
        rc = keep_core_limit(to);
    if (rc == 0)
        rc = keep_limits_of_others(to);
    const struct scmp_arg_cmp family =
        SCMP_A0(SCMP_CMP_MASKED_EQ, INT_MASK, call_set_up_socket.family);
    if (rc == 0)
        rc = filter_rules(to, SCMP_ACT_ERRNO(ENOSYS), "socket", 1, &family);
    return rc < 0 ? rc : add_set_up_prctls(to, true);
}

/* The list for a container's processes: a guest's calls, and those of the supervisor. Nothing is
 * dropped later. */
static int add_container(const struct filter_target *to)
{
    static const struct call_argument flags = { 0, true, call_clone_flags };
    scmp_datum_t refused = 0;
    for (const struct call_value *v = call_clone_flags; v->name; v++)
        refused |= v->value;
    const struct scmp_arg_cmp none = SCMP_A0(SCMP_CMP_MASKED_EQ, refused, 0);
    int rc = filter_add_list(to, true);
    if (rc == 0)
        rc = filter_rules(to, SCMP_ACT_ALLOW, "clone", 1, &none);
    if (rc == 0)
        rc = refuse_bits(to, "clone", &flags);
    for (const struct call_group *g = call_set_up; rc == 0 && g->names; g++)
        rc = filter_rules(to, action_of(g->answer), g->names, 0, NULL);
    return rc < 0 ? rc : add_set_up_prctls(to, false);
}

static int filter_build(scmp_filter_ctx ctx, enum filter_part part, bool own_root, unsigned more)
{
    const struct filter_target to = { .ctx = ctx, .more = more };
    /* A binary tree: a linear list of this length would take a millisecond to load. */
    int rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (rc == 0)
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (rc == 0 && part == FILTER_GUEST)
        return take_set_up_away(&to);
    if (rc == 0)
        rc = filter_add_list(&to, own_root);
    if (rc == 0 && more & FILTER_NVIDIA)
        rc = add_device_commands(&to);
    return rc < 0 ? rc : add_set_up(&to, own_root);
}

int filter_compile(
    enum filter_part part, bool own_root, unsigned more, struct buf *out, struct error *err)
{
    cleanup_fd int fd = file_memfd("droste-filter", err);
    if (fd < 0)
        return fd;
    scmp_filter_ctx ctx =
        seccomp_init(part == FILTER_GUEST ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(ENOSYS));
    if (!ctx)
        return error_memory(err);
    int rc = filter_build(ctx, part, own_root, more);
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

int filter_profile(struct buf *out, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    const struct filter_target to = { .profile = &text };
    buf_putc(&text, '{');
    field_string(&text, "defaultAction", "SCMP_ACT_ERRNO");
    field_int(&text, "defaultErrnoRet", ENOSYS);
    field_open(&text, "syscalls", '[');
    add_container(&to);
    buf_puts(&text, "]}");
    buf_append(out, buf_text(&text), text.len);
    return buf_failed(&text) || buf_failed(out) ? error_memory(err) : 0;
}
