/* env/local/start.c: opens and closes sandboxes. */
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/tree.h"
#include "env/local/sandbox.h"

enum {
    PAUSED_RETRY_MS = 50, /* of a start beside a paused sandbox */
    KEEPER_END_MS = 2000, /* for killed processes to disappear; milliseconds in practice */
};

/* Without that signal, the keeper would end with its worker and take the forks along. The zygote
 * may answer long after the guest's first messages (a standby serves, and the zygote forwards), so
 * a guest is not asked to fork before its keeper is known and has been signalled. */
void local_announce_forks(struct sandbox *s)
{
    s->has_forked = true;
    local_keep_pidfd(s);
    local_signal_keeper(s, SIGUSR2);
    ports_hold_back(s, !local_has_keeper(s));
}

/* A volume or workspace is the family's. Only the receivers of events, which run later, change the
 * list. */
static void local_end_for_files(void *arg, enum limit limit)
{
    struct sandbox *first = arg;
    for (struct sandbox *s = first; s; s = s->next_fork)
        local_end_for_limit(s, limit);
}

static void local_clone_answered(void *arg, struct zygote_answer *answer);

/* The guest's uid outside the sandbox. */
static uid_t local_guest_uid(const struct sandbox *s)
{
    bool other = geteuid() == 0 && s->isolation != ISOLATION_PROCESS;
    if (!other)
        return geteuid();
    return s->user ? s->user : JAIL_NOBODY;
}

/* Clones a process that has the cgroup, user, directory and mounts of the one that it is beside. */
static int local_clone_companion(struct sandbox *s, struct error *err)
{
    struct sandbox *of = s->companion_of;
    bool joins = isolation_has_own_root(s->isolation);
    local_keep_pidfd(of);
    const int extra[ZYGOTE_EXTRA_COUNT] = { of->cgroup ? cgroup_fd(of->cgroup) : -1, -1, -1,
        joins ? of->pidfd : -1, -1 };
    struct jail_mount place = of->place;
    if (of->pidfd < 0)
        return error_set(err, ERROR_LOST, "the sandbox could not be started");
    if (s->isolation == ISOLATION_LANDLOCK)
        place.user_processes = users_count_processes(local_guest_uid(of));
    int rc = jail_compile_companion(
        s->isolation, zygote_plan(s->zygote), &of->limits, &place, &s->plan, err);
    if (rc == 0)
        rc = zygote_clone(
            s->zygote, s->plan, s->theirs, extra, 0, local_clone_answered, s, &s->clone_id, err);
    for (enum port p = 0; p < PORT_COUNT; p++)
        close_fd(&s->theirs[p]);
    return rc;
}

static void local_try_companion(void *arg)
{
    struct sandbox *s = arg;
    const struct sandbox *of = s->companion_of;
    if (local_has_keeper(of) && !of->ended && isolation_has_own_root(of->isolation) &&
        !local_is_set_up(of))
        timer_start(s->retry, 1, 0);
    else if (local_is_paused(of))
        timer_start(s->retry, PAUSED_RETRY_MS, 0);
    else if (local_clone_companion(s, &s->how.error) < 0)
        ports_finish(s);
}

/* What waits beside this one goes on, or fails. */
static void local_tell_companion(struct sandbox *s)
{
    struct sandbox *waits = steal(&s->waits);
    if (waits)
        timer_start(waits->retry, 0, 0);
}

/* For processes whose end the host waits for, or that may stay longer than standard error. */
static bool local_needs_pidfd(const struct sandbox *s)
{
    return !s->report_tag || s->has_forked || mounts_any(&s->mounts);
}

static void local_clone_answered(void *arg, struct zygote_answer *answer)
{
    struct sandbox *s = arg;
    s->clone_id = 0;
    network_cloned(&s->network);
    s->pidfd = answer->pidfd;
    s->keeper = answer->pid;
    bool started = s->pidfd >= 0;
    if (!local_needs_pidfd(s))
        close_fd(&s->pidfd);
    local_tell_companion(s);
    if (s->has_forked)
        local_announce_forks(s);
    if (answer->pid > 0)
        memory_watch_begin(s->memory_watch, answer->pid);
    if (answer->pid > 0 && !s->companion_of)
        cpu_priority_open(s->env->base.loop, answer->pid, s->env->weighs ? s->cgroup : NULL,
            &s->env->cpu_priorities, &s->cpu_priority, NULL);
    if (!started) {
        local_explain_failure(s, ZYGOTE_NO_OP, answer->sys);
        ports_finish(s);
        return;
    }
    if (s->wants_kill)
        local_kill(s);
    else if (s->wants_interrupt)
        local_interrupt(s);
    if (ports_saw_end(s))
        ports_finish(s);
}

static int local_make_workdir(struct sandbox *s, struct jail_mount *place, struct error *err)
{
    s->scratch_dir = scratch_dir_hold(zygote_scratch_dir(s->zygote));
    int rc = scratch_dir_add(s->scratch_dir, local_guest_uid(s), &s->workdir, err);
    place->workdir = s->workdir;
    if (rc == 0 && s->isolation == ISOLATION_LANDLOCK)
        place->user_processes = users_count_processes(local_guest_uid(s));
    return rc;
}

/* The keeper ends last. After it no process can create files during removal or write to the
 * volume. */
static void local_wait_for_keeper(const struct sandbox *s)
{
    struct pollfd keeper = { .fd = s->pidfd, .events = POLLIN };
    if (s->pidfd >= 0 && (s->workdir || mounts_any(&s->mounts)))
        poll(&keeper, 1, KEEPER_END_MS);
}

static void local_remove_workdir(struct sandbox *s)
{
    if (s->workdir)
        tree_remove(AT_FDCWD, s->workdir);
    free(steal(&s->workdir));
    scratch_dir_release(steal(&s->scratch_dir));
}

/* The allocator keeps memory of the buffers for many simultaneous sandboxes. Returns it to the
 * system once half of them have gone. */
static void give_memory_back(struct local *env)
{
    enum { FEW = 8 };
    if (env->most < FEW || env->cpu_priorities.sandboxes > env->most / 2)
        return;
    malloc_trim(0);
    env->most = env->cpu_priorities.sandboxes;
}

/* Ends the process; its channel is closed. */
static void local_end(struct sandbox *s)
{
    bool was_running = !s->ended;
    s->ended = true;
    room_leave(s->env->room, s);
    if (s->clone_id)
        zygote_forget(s->zygote, s->clone_id);
    if (was_running && (local_has_keeper(s) || s->family))
        local_kill(s);
    ports_close(s);
    cpu_priority_close(steal(&s->cpu_priority));
    memory_watch_close(steal(&s->memory_watch));
}

/* Ends what remains of a sandbox whose worker and forks have ended. */
static void local_end_family(struct sandbox *s)
{
    if (s->has_forked)
        local_kill_family(s);
    local_wait_for_keeper(s);
    mounts_leave(&s->mounts);
    local_remove_workdir(s);
    cgroup_free(s->cgroup);
    users_give_back(s->env->users, s->user);
    network_close(&s->network);
    close_fd(&s->pidfd);
    free(s->plan);
    free(s->pause.already);
    give_memory_back(s->env);
    free(s);
}

static void local_close_companion(struct sandbox *s)
{
    struct sandbox **at = &s->companion_of->companions;
    if (s->companion_of->waits == s)
        s->companion_of->waits = NULL;
    while (*at && *at != s)
        at = &(*at)->next_companion;
    if (*at)
        *at = s->next_companion;
    for (enum port p = 0; p < PORT_COUNT; p++)
        close_fd(&s->theirs[p]);
    close_fd(&s->pidfd);
    timer_free(s->retry);
    free(s->plan);
    free(s);
}

static void local_close_fork(struct sandbox *s)
{
    struct sandbox *first = s->family, *at = first;
    while (at->next_fork != s)
        at = at->next_fork;
    at->next_fork = s->next_fork;
    close_fd(&s->pidfd);
    free(s);
    if (--first->forks == 0 && first->closed)
        local_end_family(first);
}

void local_close(struct sandbox *s)
{
    if (!s)
        return;
    local_end(s);
    if (s->companion_of) {
        local_close_companion(s);
        return;
    }
    s->env->cpu_priorities.sandboxes -= s->in_use;
    room_changed(s->env->room, s->env->cpu_priorities.sandboxes);
    if (s->family) {
        local_close_fork(s);
        return;
    }
    s->closed = true;
    if (s->forks == 0)
        local_end_family(s);
}

struct sandbox *local_sandbox_new(
    struct local *env, struct zygote *z, const struct sandbox_events *events, void *arg)
{
    struct sandbox *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    *s = (struct sandbox){
        .env = env,
        .zygote = z,
        .lineage = zygote_lineage(z),
        .isolation = zygote_isolation(z),
        .events = *events,
        .arg = arg,
        .pidfd = -1,
    };
    for (enum port p = 0; p < PORT_COUNT; p++)
        s->theirs[p] = -1;
    ports_init(s);
    network_init(&s->network);
    return s;
}

/* Sets limits of the whole sandbox. Without cgroups, limits that have no rlimit are an error. */
static int local_make_cgroup(
    struct sandbox *s, const struct local *env, const struct jail_limits *limits, struct error *err)
{
    if (env->groups)
        return cgroup_new(env->groups, limits, &s->cgroup, err);
    if (limits->cpus > 0)
        return error_set(
            err, ERROR_UNSUPPORTED, "--cpus needs a cgroup: %.180s", env->no_cgroups.text);
    return 0;
}

/* Data that several sessions share belongs to the user `nobody`. A sandbox with a volume or
 * workspace therefore gets its own user only if the mount can be id-mapped. */
static int local_take_user(struct sandbox *s, const struct user_range *users, struct error *err)
{
    int rc = users_take(s->env->users, users, &s->user, err);
    if (rc < 0 || s->user == 0 || !mounts_any(&s->mounts) || mounts_map(&s->mounts, s->user))
        return rc;
    users_give_back(s->env->users, s->user);
    s->user = 0;
    return 0;
}

static int local_start(
    struct sandbox *s, struct zygote *z, const struct jail_limits *limits, struct error *err)
{
    int theirs[PORT_COUNT] = { -1, -1, -1, -1 };
    struct jail_mount place = { .shares_session = cpu_priority_can_raise(),
        .python = zygote_executable(z) };
    s->limits = *limits;
    int rc = local_make_cgroup(s, s->env, limits, err);
    if (rc == 0)
        rc = local_watch_memory(s, limits->memory, err);
    if (rc == 0)
        rc = local_take_user(s, zygote_users(z), err);
    place.user = s->user;
    if (rc == 0)
        rc = network_prepare(s, err);
    place.proxy_port = s->network.grant ? EGRESS_PORT : 0;
    if (rc == 0 && !isolation_has_own_root(s->isolation))
        rc = local_make_workdir(s, &place, err);
    if (rc == 0)
        rc = mounts_enter(&s->mounts, s->env->quotas, s->user ? JAIL_NOBODY : local_guest_uid(s),
            local_end_for_files, s, &place, err);
    s->place = place;
    if (rc == 0)
        rc = jail_compile_sandbox(s->isolation, zygote_plan(z), limits, &place, &s->plan, err);
    for (enum limit l = LIMIT_NONE + 1; rc == 0 && l < LIMIT_COUNT; l++)
        s->usage.means[l] = limit_means(l, limits, s->plan, s->cgroup != NULL);
    /* An image's zygote must not be able to report on other sandboxes. */
    if (rc == 0 && s->plan->clone_flags & CLONE_NEWPID && zygote_is_trusted(z))
        rc = reports_expect(s->env->reports, s, &s->report_tag, err);
    if (rc == 0)
        rc = ports_make(s, theirs, err);
    const int extra[ZYGOTE_EXTRA_COUNT] = { s->cgroup ? cgroup_fd(s->cgroup) : -1,
        s->mounts.mounts[0], s->mounts.mounts[1], -1, s->network.ends[1] };
    if (rc == 0)
        rc = zygote_clone(
            z, s->plan, theirs, extra, s->report_tag, local_clone_answered, s, &s->clone_id, err);
    if (rc == 0) /* while the zygote works */
        rc = ports_watch(s, err);
    for (enum port p = 0; p < PORT_COUNT; p++)
        close_fd(&theirs[p]);
    return rc;
}

/* A dead zygote may be freed before its sandboxes are closed. */
bool local_has_zygote(const struct local *env, const struct zygote *z)
{
    for (size_t i = 0; i < env->zygote_count; i++)
        if (env->zygotes[i] == z)
            return true;
    return false;
}

void local_start_waiting(struct sandbox *s, const struct error *why)
{
    int rc = -1;
    if (why)
        s->how.error = *why;
    else if (!local_has_zygote(s->env, s->zygote))
        rc = error_set(&s->how.error, ERROR_ENVIRONMENT,
            "the zygote died while this sandbox waited for room; open the session again");
    else
        rc = local_start(s, s->zygote, &s->limits, &s->how.error);
    if (rc == 0)
        return;
    local_tell_companion(s);
    ports_finish(s);
}

/* Others that wait come first. */
static int local_start_or_wait(
    struct sandbox *s, double seconds, const struct jail_limits *limits, struct error *err)
{
    struct room *room = s->env->room;
    struct error why = { 0 };
    int rc = room_check(room, s->env->cpu_priorities.sandboxes, &why);
    if (rc == 0 && !(seconds > 0 && room_is_awaited(room)))
        return local_start(s, s->zygote, limits, err);
    s->limits = *limits;
    if (seconds > 0)
        return room_wait(room, s, seconds, err);
    if (err)
        *err = why;
    return rc;
}

int local_make(struct local *env, struct zygote *z, const struct jail_limits *limits,
    const struct sandbox_spec *spec, const struct sandbox_events *events, void *events_arg,
    struct sandbox **out, struct error *err)
{
    struct sandbox *s = local_sandbox_new(env, z, events, events_arg);
    if (!s)
        return error_memory(err);
    mounts_hold(&s->mounts, s->isolation, spec);
    s->network.grant = spec ? egress_grant_hold(spec->grant) : NULL;
    int rc = local_start_or_wait(s, spec ? spec->start_wait : 0, limits, err);
    if (rc < 0) {
        local_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

int local_make_companion(struct sandbox *of, const struct sandbox_events *events, void *arg,
    struct sandbox **out, struct error *err)
{
    struct sandbox *first = of->family ? of->family : of;
    if (of->ended || first->waits)
        return error_set(err, ERROR_LOST, "the sandbox has ended");
    struct sandbox *s = local_sandbox_new(of->env, of->zygote, events, arg);
    if (!s)
        return error_memory(err);
    s->companion_of = first;
    s->next_companion = first->companions;
    first->companions = s;
    s->mounts.mounts[0] = s->mounts.mounts[1] = -1;
    int rc = ports_make(s, s->theirs, err);
    if (rc == 0)
        rc = ports_watch(s, err);
    if (rc == 0 && !(s->retry = timer_new(of->env->base.loop, local_try_companion, s)))
        rc = error_memory(err);
    if (rc == 0 && (first->clone_id || local_waits(first)))
        first->waits = s;
    else if (rc == 0)
        timer_start(s->retry, 0, 0);
    if (rc < 0) {
        local_close(s);
        return rc;
    }
    *out = s;
    return 0;
}
