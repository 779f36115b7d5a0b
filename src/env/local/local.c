/* env/local/local.c: the environment `local`.
 *
 * A sandbox consists of a keeper and a worker (guest/zygote/zygote.c) and three descriptors in the
 * host: the channel, and the read ends of standard output and error. The keeper reports how the
 * worker ended, on a socket that it shares with other keepers (env/local/reports.h). Without a pid
 * namespace, processes can outlive their keeper, so the host has two more descriptors: a pidfd and
 * a status pipe, whose end of file is the end of the sandbox. The host then reads what is left in
 * the others and calls `ended`.
 *
 * Each sandbox has its own cgroup if cgroups are available; otherwise the host measures its memory
 * (env/local/memory_watch.c). There is one zygote per kind of sandbox, which lives as long as the
 * environment.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "env/local/pool.h"
#include "env/local/sandbox.h"
#include "jail/calls.h"

/* ---- operations of a sandbox ---- */

static size_t local_unread(const struct sandbox *s)
{
    return s->send_queue.bytes;
}

static bool local_takes_fd(const struct sandbox *s)
{
    return !s->ended && send_queue_is_clear(&s->send_queue, s->fds[PORT_CHANNEL]);
}

static void local_begin_operation(struct sandbox *s)
{
    cpu_priority_begin(s->cpu_priority);
    memory_watch_busy(s->memory_watch, true);
    ports_forget_use(s);
}

/* Nothing to wait for. */
static bool local_settle(struct sandbox *s)
{
    cpu_priority_settle(s->cpu_priority);
    memory_watch_busy(s->memory_watch, false);
    return false;
}

static void local_charge(struct sandbox *s, uint64_t ns)
{
    fair_reading_charge(s->env->fair_reading, &s->waiting[PORT_CHANNEL], ns);
}

/* ---- opening ---- */

static void drop_dead_zygotes(struct local *env)
{
    size_t kept = 0;
    for (size_t i = 0; i < env->zygote_count; i++) {
        if (!zygote_is_gone(env->zygotes[i])) {
            env->zygotes[kept++] = env->zygotes[i];
            continue;
        }
        pool_forget(env->pool, env->zygotes[i]);
        zygote_stop(env->zygotes[i]);
    }
    env->zygote_count = kept;
}

static int find_zygote(
    struct local *env, const struct sandbox_spec *spec, struct zygote **out, struct error *err)
{
    drop_dead_zygotes(env);
    for (size_t i = 0; i < env->zygote_count; i++) {
        *out = env->zygotes[i];
        if (zygote_serves(*out, spec))
            return 0;
    }
    if (env->zygote_count == LOCAL_ZYGOTES_MAX)
        return error_set(err, ERROR_ENVIRONMENT,
            "more than %d kinds of local sandbox in one context; use another context",
            LOCAL_ZYGOTES_MAX);
    const struct zygote_groups groups = { env->groups, env->cpu_group };
    int rc = zygote_start(env->base.loop, spec, &groups, out, err);
    if (rc == 0)
        env->zygotes[env->zygote_count++] = *out;
    return rc;
}

/* For the pool. */
static int make_sandbox(void *arg, struct zygote *z, const struct jail_limits *limits,
    const struct sandbox_events *events, void *events_arg, struct sandbox **out, struct error *err)
{
    return local_make(arg, z, limits, NULL, events, events_arg, out, err);
}

/* Looks for cgroups, once. */
static void find_cgroups(struct local *env)
{
    if (env->groups || env->no_cgroups.code != ERROR_NONE)
        return;
    cleanup_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    cgroups_open(env->base.loop, root, &env->groups, &env->no_cgroups);
    env->weighs = env->groups && cgroups_have_weights(env->groups);
    if (!env->groups && cpu_priority_can_raise())
        cpu_group_open(root, &env->cpu_group, NULL);
    env->cpu_priorities.apart = env->cpu_group != NULL;
}

static int local_open_sandbox(struct environment *base, const struct sandbox_spec *spec,
    const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err)
{
    struct local *env = (struct local *)base;
    struct zygote *z = NULL;
    find_cgroups(env);
    int rc = find_zygote(env, spec, &z, err);
    if (rc < 0)
        return rc;
    /* In the pool, a sandbox would keep an unused volume in use, and it has no workspace, and no
     * proxy. */
    bool poolable = !spec->volume && !spec->workspace && !spec->egress;
    *out = poolable ? pool_take(env->pool, z, &spec->limits) : NULL;
    if (*out) {
        (*out)->events = *events;
        (*out)->arg = arg;
    } else {
        rc = local_make(env, z, &spec->limits, spec, events, arg, out, err);
    }
    if (rc == 0) {
        (*out)->in_use = true;
        env->cpu_priorities.sandboxes++;
        if (env->cpu_priorities.sandboxes > env->most)
            env->most = env->cpu_priorities.sandboxes;
    }
    if (rc == 0 && poolable)
        pool_keep(env->pool, z, &spec->limits, spec->pool);
    return rc;
}

static enum isolation local_isolation(const struct sandbox *s)
{
    return s->isolation;
}

static void local_usage(const struct sandbox *s, struct sandbox_usage *out)
{
    bool out_of_memory;
    *out = s->usage;
    if (!s->ended)
        local_read_cgroup(s, out, &out_of_memory);
}

/* A fork's keeper descends from that of the first sandbox of its family. */
static bool local_figures(const struct sandbox *s, struct sandbox_figures *out)
{
    const struct sandbox *first = s->family ? s->family : s;
    struct process_list processes = { 0 };
    struct memory_now memory;
    if (first->ended || !local_has_keeper(first))
        return false;
    process_list_read(&processes, first->keeper, NULL, NULL);
    memory_now(first->keeper, &processes, &memory);
    *out = (struct sandbox_figures){ .memory = memory.private_bytes + memory.files,
        .files = memory.files,
        .files_limit = memory.files_limit };
    for (size_t i = 0; i < processes.count; i++)
        out->cpu_seconds += process_cpu_seconds(processes.pids[i]);
    free(processes.pids);
    return true;
}

static uint64_t local_busy_ns(const struct sandbox *s)
{
    return cpu_priority_busy_ns(s->cpu_priority);
}

static uint64_t local_lineage(const struct sandbox *s)
{
    return s->lineage;
}

static const char *local_volume(const struct sandbox *s)
{
    return mounts_volume(&(s->family ? s->family : s)->mounts);
}

static const char *local_workspace(const struct sandbox *s)
{
    return mounts_workspace(&(s->family ? s->family : s)->mounts);
}

static void local_describe(const struct environment *env, const struct sandbox *s, struct buf *out)
{
    if (local_has_zygote((const struct local *)env, s->zygote)) {
        buf_printf(out, "once, for all sandboxes of %s:\n", zygote_python(s->zygote));
        zygote_describe(s->zygote, out);
    }
    buf_puts(out, "then, for each sandbox:\n");
    if (s->cgroup)
        buf_printf(out, "    cgroup below %s: memory and processes of the sandbox as a whole\n",
            cgroups_path(((const struct local *)env)->groups));
    else if (s->memory_watch)
        buf_puts(out,
            "    no cgroup: the host adds up the memory of the sandbox as a whole, and ends it\n");
    if (((const struct local *)env)->cpu_group)
        buf_puts(
            out, "    one cgroup of version 1 for all sandboxes: their priorities count there\n");
    if (local_plan(s))
        jail_print(local_plan(s), out);
    if (s->isolation != ISOLATION_PROCESS)
        calls_print(
            isolation_has_own_root(s->isolation) ? CALL_IN_OWN_ROOT : CALL_AMONG_FILES, out);
}

static void local_free(struct environment *base)
{
    struct local *env = (struct local *)base;
    pool_close(env->pool);
    fair_reading_close(env->fair_reading);
    quotas_close(env->quotas);
    memory_watches_close(env->memory_watches);
    reports_close(env->reports);
    room_close(env->room);
    egress_hub_close(env->egress);
    users_free(env->users);
    for (size_t i = 0; i < env->zygote_count; i++)
        zygote_stop(env->zygotes[i]);
    cgroups_close(env->groups);
    cpu_group_close(env->cpu_group);
    free(env);
}

static const struct feature_state local_features[FEATURE_COUNT] = {
    [FEATURE_STREAM] = FEATURE_YES("a socket"),
    [FEATURE_REATTACH] = FEATURE_NO("local sandboxes have no connection that could be lost"),
    [FEATURE_SNAPSHOT] = FEATURE_NO("preload is nearest"),
    [FEATURE_RESUME] = FEATURE_NO("a sandbox ends with its session; a volume stays"),
    [FEATURE_IDLE] = FEATURE_NO("a session that waits costs nothing but memory"),
    [FEATURE_IMAGE] = FEATURE_YES("unpacked once, read-only, at full and light"),
    [FEATURE_PULL] = FEATURE_YES("by skopeo"),
    [FEATURE_VOLUME] = FEATURE_YES("at /data"),
    [FEATURE_WORKSPACE] = FEATURE_YES("at /workspace"),
    [FEATURE_FILES] = FEATURE_YES("a process beside the guest"),
    [FEATURE_READ] = FEATURE_YES("at their own paths"),
    [FEATURE_NETWORK] = FEATURE_NO(
        "there is none, except at isolation process, which has the host's; see allow-net"),
    [FEATURE_ALLOW] = FEATURE_NO("use allow-net"),
    [FEATURE_MEMORY] =
        FEATURE_YES("of the sandbox as a whole; without a cgroup the host measures it"),
    [FEATURE_PROCESSES] = FEATURE_YES("of the whole"),
    [FEATURE_CPUS] = FEATURE_YES("with a cgroup"),
    [FEATURE_DISK] =
        FEATURE_NO("tmp-size, volume-size and workspace-size limit what can be written"),
    [FEATURE_GPUS] = FEATURE_NO("use device"),
    [FEATURE_DEVICE] = FEATURE_YES("NVIDIA's GPUs, at full and light"),
    [FEATURE_USER] = FEATURE_NO("sandbox-users, if you are root; else your own"),
    [FEATURE_SECCOMP] = FEATURE_NO("it is always Droste's, except at isolation process"),
    [FEATURE_READ_ONLY] = FEATURE_NO("always, except for /tmp, the volume and staged files"),
    [FEATURE_ROOT] = FEATURE_YES("in memory, at full and light"),
    [FEATURE_ROOTFS] = FEATURE_YES("read-only, at full and light"),
    [FEATURE_LABELS] = FEATURE_NO("nothing reads them"),
    [FEATURE_REUSE] = FEATURE_NO("a new one takes 2 ms"),
    [FEATURE_ISOLATION] = FEATURE_YES("full, light, landlock, process, auto"),
    [FEATURE_PRELOAD] = FEATURE_YES("once for all sandboxes"),
    [FEATURE_HUGE_PAGES] = FEATURE_YES("where the kernel gives them"),
    [FEATURE_PACKAGES] = FEATURE_YES("built once, in a sandbox of its own"),
    [FEATURE_LOOPBACK] = FEATURE_YES("at full and light"),
    [FEATURE_EGRESS] = FEATURE_YES("through a proxy in the host, at full and light"),
};

static void local_forked(struct environment *base)
{
    users_forked(((struct local *)base)->users);
    reports_forked(((struct local *)base)->reports);
}

static const struct environment_ops local_ops = {
    .name = "local",
    .traits = TRAIT_MEMFD | TRAIT_SIGNAL | TRAIT_IMAGES,
    .features = local_features,
    .open = local_open_sandbox,
    .open_companion = local_make_companion,
    .fork = local_fork,
    .rebind = local_rebind,
    .memory = local_memory,
    .lineage = local_lineage,
    .send = ports_send,
    .unread = local_unread,
    .hold = ports_hold,
    .takes_fd = local_takes_fd,
    .begin_operation = local_begin_operation,
    .charge = local_charge,
    .settle = local_settle,
    .interrupt = local_interrupt,
    .kill = local_kill,
    .pause = local_pause,
    .paused_ns = local_paused_ns,
    .drain = ports_drain,
    .isolation = local_isolation,
    .usage = local_usage,
    .figures = local_figures,
    .waits = local_waits,
    .busy_ns = local_busy_ns,
    .volume = local_volume,
    .workspace = local_workspace,
    .describe = local_describe,
    .close = local_close,
    .forked = local_forked,
    .free = local_free,
};

static int local_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err)
{
    struct local *env = calloc(1, sizeof *env);
    if (!env)
        return error_memory(err);
    env->base = (struct environment_base){ .ops = &local_ops, .loop = loop };
    int rc = pool_open(loop, make_sandbox, local_close, env, &env->pool, err);
    env->users = users_new();
    if (rc == 0 && !env->users)
        rc = error_memory(err);
    if (rc == 0)
        rc = fair_reading_open(loop, &env->fair_reading, err);
    if (rc == 0)
        rc = quotas_open(loop, &env->quotas, err);
    if (rc == 0)
        rc = memory_watches_open(loop, &env->memory_watches, err);
    if (rc == 0)
        rc = reports_open(loop, ports_reported, &env->reports, err);
    if (rc == 0)
        rc = egress_hub_open(loop, &env->egress, err);
    if (rc == 0)
        rc = room_open(loop, local_start_waiting, &env->room, err);
    if (rc < 0) {
        local_free((struct environment *)env);
        return rc;
    }
    *out = (struct environment *)env;
    return 0;
}

const struct environment_kind local_environment = {
    .name = "local",
    .about = "processes of this machine, behind its kernel's walls",
    .variables = "",
    .features = local_features,
    .open = local_open,
};
