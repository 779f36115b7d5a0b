/* jail/print.c: prints plans, for errors and `droste doctor --plan`. */
#include "jail/jail.h"

#include <linux/mount.h>
#include <sched.h>
#include <sys/resource.h>

#include "base/cleanup.h"
#include "jail/landlock.h"

static const char *const op_names[JAIL_OP_COUNT] = {
    [JAIL_UNSHARE] = "unshare",
    [JAIL_MAP_SELF] = "map ids",
    [JAIL_BECOME] = "become",
    [JAIL_BECOME_LENDER] = "become",
    [JAIL_PRIVATE] = "make mounts private",
    [JAIL_MOUNT] = "mount",
    [JAIL_TERMINALS] = "terminals",
    [JAIL_BIND] = "bind",
    [JAIL_GRAFT] = "bind",
    [JAIL_VOLUME] = "volume",
    [JAIL_ATTACH] = "idmapped volume",
    [JAIL_JOIN] = "join",
    [JAIL_READ_ONLY] = "make read-only",
    [JAIL_DIRECTORY] = "directory",
    [JAIL_FILE] = "file",
    [JAIL_SYMLINK] = "symlink",
    [JAIL_PIVOT] = "pivot root",
    [JAIL_DETACH] = "detach",
    [JAIL_CHDIR] = "change directory",
    [JAIL_HOSTNAME] = "host name",
    [JAIL_LOOPBACK] = "raise the loopback interface",
    [JAIL_LISTEN] = "listen at a port for the host",
    [JAIL_LIMIT] = "limit",
    [JAIL_SESSION] = "new session",
    [JAIL_GROUP] = "new process group",
    [JAIL_HIDE] = "hide",
    [JAIL_DROP_BOUND] = "drop the bounding set",
    [JAIL_DROP_CAPS] = "drop all capabilities",
    [JAIL_NO_NEW_PRIVS] = "no new privileges",
    [JAIL_KEYRING] = "new session keyring",
    [JAIL_SCHEDULE] = "ordinary scheduling",
    [JAIL_MASK] = "mask",
    [JAIL_RULESET] = "Landlock domain",
    [JAIL_RULE] = "allow",
    [JAIL_CONFINE] = "enter the Landlock domain",
    [JAIL_FILTER] = "filter system calls",
};

static const struct {
    uint64_t flag;
    const char *name;
} namespaces[] = {
    { CLONE_NEWUSER, "user" },
    { CLONE_NEWPID, "pid" },
    { CLONE_NEWNS, "mount" },
    { CLONE_NEWNET, "network" },
    { CLONE_NEWIPC, "ipc" },
    { CLONE_NEWUTS, "uts" },
};

static const struct {
    uint64_t resource;
    const char *name;
} limit_names[] = {
    { RLIMIT_DATA, "memory" },
    { RLIMIT_NOFILE, "open files" },
    { RLIMIT_FSIZE, "file size" },
    { RLIMIT_CORE, "core" },
    { RLIMIT_MEMLOCK, "locked memory" },
    { RLIMIT_SIGPENDING, "signals pending" },
    { RLIMIT_NPROC, "processes" },
    { RLIMIT_CPU, "cpu time" },
};

static void print_namespaces(struct buf *out, uint64_t flags)
{
    for (size_t i = 0; i < array_length(namespaces); i++)
        if (flags & namespaces[i].flag)
            buf_printf(out, " %s", namespaces[i].name);
}

static void print_numbers(const struct jail_op *op, struct buf *out)
{
    unsigned long long a = op->a, b = op->b;
    switch ((enum jail_op_kind)op->kind) {
    case JAIL_UNSHARE:
    case JAIL_JOIN:
        print_namespaces(out, op->a);
        break;
    case JAIL_MAP_SELF:
    case JAIL_BECOME:
        buf_printf(out, " uid %llu gid %llu", a, b);
        break;
    case JAIL_BECOME_LENDER:
        buf_printf(out, " uid %llu gid %llu, able to have each sandbox be another user", a, b);
        break;
    case JAIL_LIMIT:
        for (size_t i = 0; i < array_length(limit_names); i++)
            if (limit_names[i].resource == op->a)
                buf_printf(out, " %s to %llu", limit_names[i].name, b);
        break;
    case JAIL_BIND:
    case JAIL_GRAFT:
        buf_puts(out, op->a & MOUNT_ATTR_RDONLY ? " read-only" : "");
        break;
    case JAIL_RULESET:
        if (op->b >> 32 == LANDLOCK_SCOPE_SIGNALS)
            buf_puts(out, " over signals");
        else
            buf_printf(out, " over files%s%s", (uint32_t)op->b ? ", TCP" : "",
                op->b >> 32 ? ", abstract sockets, signals" : "");
        break;
    case JAIL_RULE:
        buf_puts(out, op->a == LANDLOCK_REFER       ? " to be moved in"
                      : op->a & LANDLOCK_MAKE_REG   ? " as its own"
                      : op->a & LANDLOCK_WRITE_FILE ? " to be written"
                                                    : " to be read");
        break;
    case JAIL_FILTER:
        buf_printf(out, " (%llu instructions)", a / 8);
        break;
    default:
        break;
    }
}

void jail_print_op(const struct jail_plan *plan, uint32_t index, struct buf *out)
{
    if (index >= plan->count) {
        buf_puts(out, "clone");
        return;
    }
    const struct jail_op *op = &plan->ops[index];
    const char *t0 = jail_plan_text(plan, op, 0), *t1 = jail_plan_text(plan, op, 1);
    buf_puts(out, op_names[op->kind]);
    if (t0[0] && op->kind != JAIL_FILTER)
        buf_printf(out, " %s", t0);
    if (t1[0] && op->kind != JAIL_FILE)
        buf_printf(out, " on %s", t1);
    if (jail_plan_text(plan, op, 2)[0])
        buf_printf(out, " (%s)", jail_plan_text(plan, op, 2));
    print_numbers(op, out);
}

void jail_print(const struct jail_plan *plan, struct buf *out)
{
    static const char *const stages[] = { "outside", "zygote", "keeper", "worker", "guard" };
    if (plan->clone_flags) {
        buf_puts(out, "    clone with new namespaces:");
        print_namespaces(out, plan->clone_flags);
        buf_putc(out, '\n');
    }
    if (plan->user)
        buf_printf(out, "    as uid %u gid %u outside, which no other sandbox is\n", plan->user,
            plan->group);
    for (uint32_t i = 0; i < plan->count; i++) {
        buf_printf(out, "%3u %-6s ", i, stages[plan->ops[i].stage]);
        jail_print_op(plan, i, out);
        buf_puts(out, plan->ops[i].optional ? ", if it is there\n" : "\n");
    }
}
