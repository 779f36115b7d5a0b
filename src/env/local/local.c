/* env/local/local.c: the environment `local`.
 *
 * A sandbox consists of a keeper and a worker (guest/zygote/zygote.c) and four descriptors in the
 * host: the channel, the read ends of standard output and error, and the status pipe, on which the
 * keeper reports how the worker ended. End of file on the status pipe is the end of the sandbox:
 * the host reads what is left in the other three and then calls `ended`.
 *
 * Each sandbox has its own cgroup if cgroups are available; otherwise the host measures its memory
 * (env/local/memory_watch.c). There is one zygote per kind of sandbox, which lives as long as the
 * environment.
 */
#include "env/local/local.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/tree.h"
#include "env/local/cgroup.h"
#include "env/local/cpu_priority.h"
#include "env/local/memory_watch.h"
#include "env/common/scratch_dir.h"
#include "env/common/send_queue.h"
#include "env/common/mounts.h"
#include "env/local/pool.h"
#include "env/common/fair_reading.h"
#include "env/local/zygote.h"
#include "jail/calls.h"

enum {
    ZYGOTES_MAX = 16,
    READ_SIZE = 65536,
    DRAIN_ROUNDS = 16,    /* a guest can enlarge a pipe to a MiB */
    KEEPER_END_MS = 2000, /* for killed processes to disappear; milliseconds in practice */
};

struct local {
    struct environment_base base;
    struct zygote *zygotes[ZYGOTES_MAX];
    size_t zygote_count;
    struct pool *pool;
    struct cgroups *groups; /* NULL: no_cgroups has the reason */
    struct error no_cgroups;
    struct fair_reading *fair_reading;
    struct quotas *quotas;
    struct memory_watches *memory_watches;
    struct users *users;
    bool weighs;        /* cgroups have weights */
    unsigned sandboxes; /* in use */
    unsigned most;      /* the largest number since memory was last returned */
};

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

enum port { PORT_CHANNEL, PORT_OUT, PORT_ERR, PORT_STATUS, PORT_COUNT };

struct sandbox {
    struct sandbox_base base;
    struct local *env;
    struct zygote *zygote;
    uint32_t clone_id; /* of the clone in progress; 0 once it is answered */
    enum isolation isolation;
    struct jail_plan *plan;
    struct cgroup *cgroup; /* NULL: its limits are rlimits */
    uint32_t user;         /* its own uid outside the sandbox; 0: its zygote's */
    char *workdir;         /* without a private /tmp: its temporary directory, removed at the end */
    struct scratch_dir *scratch_dir; /* contains the workdir */
    struct mounts mounts;
    /* the limit that the host found exceeded; LIMIT_NONE: none */
    enum limit over;
    struct memory_watch *memory_watch; /* NULL: a cgroup counts its memory, or there is no limit */
    struct sandbox_events events;
    void *arg;
    int fds[PORT_COUNT];
    struct watch *watches[PORT_COUNT];
    struct fair_reader waiting[PORT_STATUS]; /* of the ports with unbounded output */
    int pidfd;
    struct cpu_priority *cpu_priority; /* NULL until the clone exists */
    bool wants_kill, wants_interrupt;  /* requested before the pidfd was known */
    bool in_use;                       /* not in the pool */
    bool held;                         /* its channel is not read for now */
    bool ended;
    struct sandbox_exit how;
    struct sandbox_usage usage;   /* figures as of its end */
    struct send_queue send_queue; /* for the channel */
};

/* Why it could not start: an operation of its plan, or the clone itself, failed with this errno. */
static void explain_failure(struct sandbox *s, uint32_t op, int sys)
{
    cleanup_buf struct buf what = { 0 };
    if (op == ZYGOTE_NO_OP && sys == ENOSYS && s->cgroup) {
        error_set(&s->how.error, ERROR_ENVIRONMENT,
            "starting a sandbox in a cgroup: the system call clone3 is forbidden here; allow it in "
            "the container's seccomp profile, or give the container no cgroup of its own");
        return;
    }
    jail_print_op(s->plan, op, &what);
    error_set(&s->how.error, ERROR_ENVIRONMENT,
        "starting a sandbox with isolation '%s': %.80s: %s; see `droste doctor`",
        isolation_name(s->isolation), buf_text(&what), strerror(sys));
}

/* ---- input from the guest ---- */

/* True if more is expected, which is always the case for output. */
static bool local_tell(struct sandbox *s, enum port port, const char *data, size_t len)
{
    if (port == PORT_CHANNEL)
        return s->events.bytes(s->arg, data, len);
    s->events.output(s->arg, (int)port, data, len);
    return true;
}

/* Reads one piece: its length, 0 if nothing is there, -1 once the other end is closed. */
static ssize_t read_piece(struct sandbox *s, enum port port, bool *more)
{
    char data[READ_SIZE];
    ssize_t n;
    do
        n = read(s->fds[port], data, sizeof data);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (n <= 0)
        return -1;
    *more = local_tell(s, port, data, (size_t)n);
    return n;
}

/* Reads everything that the port holds now. */
static void drain_port(struct sandbox *s, enum port port)
{
    bool more;
    for (int i = 0; i < DRAIN_ROUNDS && !s->ended; i++)
        if (read_piece(s, port, &more) < READ_SIZE)
            return; /* a short read: it is empty */
}

static void local_unwatch(struct sandbox *s, enum port port)
{
    if (port != PORT_STATUS)
        fair_reading_leave(s->env->fair_reading, &s->waiting[port]);
    watch_free(s->watches[port]);
    s->watches[port] = NULL;
}

/* Sets the events that the loop waits for. */
static void watch_port(struct sandbox *s, enum port port)
{
    bool held = port == PORT_CHANNEL && s->held;
    bool reads = port == PORT_STATUS || !(s->waiting[port].waits || held);
    bool writes = port == PORT_CHANNEL && send_queue_waits(&s->send_queue);
    if (s->watches[port])
        watch_events(s->watches[port], (reads ? UV_READABLE : 0) | (writes ? UV_WRITABLE : 0));
}

static void forget_takings(struct sandbox *s)
{
    for (enum port p = 0; p < PORT_STATUS; p++)
        fair_reading_begin(s->env->fair_reading, &s->waiting[p]);
}

static void port_ready(struct sandbox *s, enum port port)
{
    struct fair_reader *turn = &s->waiting[port];
    bool more = false;
    if (port == PORT_CHANNEL && s->held)
        return;
    uint64_t begun = clock_ns(), worked = clock_thread_ns();
    ssize_t n = read_piece(s, port, &more);
    fair_reading_add_use(
        s->env->fair_reading, turn, clock_thread_ns() - worked, clock_ns() - begun);
    if (!s->watches[port])
        return;
    if (n < 0)
        local_unwatch(s, port);
    else if (more && fair_reading_wait(s->env->fair_reading, turn, (size_t)n))
        watch_port(s, port);
}

static void local_turn_came(void *arg, unsigned port)
{
    watch_port(arg, port);
}

/* The port was put off and is read now. */
static void local_read_put_off(void *arg, unsigned port)
{
    struct sandbox *s = arg;
    port_ready(s, port);
    watch_port(s, port);
}

static void port_readable(struct sandbox *s, enum port port)
{
    if (fair_reading_put_off(s->env->fair_reading, &s->waiting[port]))
        watch_port(s, port);
    else
        port_ready(s, port);
}

static void out_ready(void *arg, int status, int events)
{
    port_readable(arg, PORT_OUT);
}

static void err_ready(void *arg, int status, int events)
{
    port_readable(arg, PORT_ERR);
}

/* False if there is no record: the keeper itself was killed or never began. */
static bool read_status(struct sandbox *s)
{
    struct zygote_status status;
    ssize_t n = read(s->fds[PORT_STATUS], &status, sizeof status);
    if (n != sizeof status)
        return false;
    if (status.sys != 0) {
        explain_failure(s, status.op, status.sys);
        return true;
    }
    s->how.known = !s->wants_kill && status.wait_status != -1;
    s->how.wait_status = status.wait_status;
    s->usage.memory_peak = (uint64_t)status.max_rss_kib * 1024;
    s->usage.cpu_seconds = (double)status.cpu_us / 1e6;
    return true;
}

static void read_cgroup(const struct sandbox *s, struct sandbox_usage *out, bool *out_of_memory)
{
    struct cgroup_usage used;
    if (!s->cgroup)
        return;
    cgroup_read(s->cgroup, &used);
    if (used.memory_peak)
        out->memory_peak = used.memory_peak;
    if (used.cpu_seconds > 0)
        out->cpu_seconds = used.cpu_seconds;
    *out_of_memory = used.out_of_memory;
}

/* The kernel counts the kill before it kills, and kills all processes at once (memory.oom.group),
 * so the keeper has reported nothing. A kill by the host is not a limit. */
static void judge_end(struct sandbox *s)
{
    bool out_of_memory = false;
    read_cgroup(s, &s->usage, &out_of_memory);
    if (s->over != LIMIT_NONE)
        s->how.limit = s->over;
    else if (out_of_memory && !s->wants_kill)
        s->how.limit = LIMIT_MEMORY;
}

static void local_finish(struct sandbox *s)
{
    for (enum port p = PORT_CHANNEL; p <= PORT_ERR; p++)
        if (s->watches[p])
            drain_port(s, p);
    for (enum port p = 0; p < PORT_COUNT; p++)
        if (s->watches[p])
            local_unwatch(s, p);
    if (s->ended)
        return;
    s->ended = true;
    judge_end(s);
    cpu_priority_close(steal(&s->cpu_priority)); /* the keeper's pid may be reused from now on */
    memory_watch_close(steal(&s->memory_watch));
    s->events.ended(s->arg, &s->how);
}

/* The end of a failed clone may be seen before the zygote's reason: a standby closes the pipe while
 * its report is being forwarded (guest/zygote/zygote.c). */
static void status_ready(void *arg, int status, int events)
{
    struct sandbox *s = arg;
    if (read_status(s) || !s->clone_id)
        local_finish(s);
    else
        local_unwatch(s, PORT_STATUS);
}

/* ---- messages to the guest ---- */

static void channel_ready(void *arg, int status, int events)
{
    struct sandbox *s = arg;
    size_t unread = s->send_queue.bytes;
    if ((events & UV_WRITABLE) && send_queue_flush(&s->send_queue, s->fds[PORT_CHANNEL]))
        watch_port(s, PORT_CHANNEL);
    if (s->send_queue.bytes < unread && s->events.room)
        s->events.room(s->arg);
    if (status < 0)
        port_ready(s, PORT_CHANNEL);
    else if (events & UV_READABLE)
        port_readable(s, PORT_CHANNEL);
}

static int local_send(
    struct sandbox *s, const struct iovec *iov, int count, int fd_given, struct error *err)
{
    cleanup_fd int fd = fd_given;
    if (s->ended)
        return 0;
    bool waited = send_queue_waits(&s->send_queue);
    memory_watch_exclude(s->memory_watch, fd);
    int rc = send_queue_send(&s->send_queue, s->fds[PORT_CHANNEL], iov, count, steal_fd(&fd), err);
    if (!waited && send_queue_waits(&s->send_queue))
        watch_port(s, PORT_CHANNEL);
    return rc;
}

static size_t local_unread(const struct sandbox *s)
{
    return s->send_queue.bytes;
}

static void local_hold(struct sandbox *s, bool on)
{
    s->held = on;
    if (!s->ended)
        watch_port(s, PORT_CHANNEL);
}

static bool local_takes_fd(const struct sandbox *s)
{
    return !s->ended && send_queue_is_clear(&s->send_queue, s->fds[PORT_CHANNEL]);
}

/* ---- opening and closing ---- */

static void signal_keeper(struct sandbox *s, int signal)
{
    if (s->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, s->pidfd, signal, NULL, 0);
}

static void local_begin_operation(struct sandbox *s)
{
    cpu_priority_begin(s->cpu_priority);
    memory_watch_busy(s->memory_watch, true);
    forget_takings(s);
}

/* Nothing to wait for. */
static bool local_settle(struct sandbox *s)
{
    memory_watch_busy(s->memory_watch, false);
    return false;
}

static void local_charge(struct sandbox *s, uint64_t ns)
{
    fair_reading_charge(s->env->fair_reading, &s->waiting[PORT_CHANNEL], ns);
}

static void local_interrupt(struct sandbox *s)
{
    s->wants_interrupt = s->pidfd < 0;
    signal_keeper(s, SIGUSR1);
}

static void local_kill(struct sandbox *s)
{
    s->wants_kill = true;
    /* A pid namespace dies with its first process. Without one, the keeper must kill the tree, and
     * the guest may have stopped the keeper. */
    signal_keeper(s, s->plan->clone_flags ? SIGKILL : SIGTERM);
    if (!s->plan->clone_flags)
        signal_keeper(s, SIGCONT);
}

/* The host found a limit exceeded. */
static void end_for_limit(void *arg, enum limit limit)
{
    struct sandbox *s = arg;
    if (s->ended || s->wants_kill)
        return;
    s->over = limit;
    local_kill(s);
}

static void end_for_memory(void *arg)
{
    end_for_limit(arg, LIMIT_MEMORY);
}

static int watch_memory(struct sandbox *s, uint64_t limit, struct error *err)
{
    const struct memory_watch_options options = { .limit = limit,
        .own_root = isolation_has_own_root(s->isolation),
        .over = end_for_memory,
        .arg = s };
    if (limit == 0 || s->cgroup)
        return 0;
    return memory_watch_open(s->env->memory_watches, &options, &s->memory_watch, err);
}

static void clone_answered(void *arg, struct zygote_answer *answer)
{
    struct sandbox *s = arg;
    s->clone_id = 0;
    s->pidfd = answer->pidfd;
    if (s->pidfd >= 0)
        memory_watch_begin(s->memory_watch, answer->pid);
    if (s->pidfd >= 0)
        cpu_priority_open(s->env->base.loop, answer->pid, s->env->weighs ? s->cgroup : NULL,
            &s->env->sandboxes, &s->cpu_priority, NULL);
    if (s->pidfd < 0) {
        explain_failure(s, ZYGOTE_NO_OP, answer->sys);
        local_finish(s);
        return;
    }
    if (s->wants_kill)
        local_kill(s);
    else if (s->wants_interrupt)
        local_interrupt(s);
    if (!s->watches[PORT_STATUS]) /* it has ended already */
        local_finish(s);
}

static void drop_dead_zygotes(struct local *env)
{
    size_t kept = 0;
    for (size_t i = 0; i < env->zygote_count; i++) {
        if (zygote_is_gone(env->zygotes[i]))
            zygote_stop(env->zygotes[i]);
        else
            env->zygotes[kept++] = env->zygotes[i];
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
    if (env->zygote_count == ZYGOTES_MAX)
        return error_set(err, ERROR_ENVIRONMENT,
            "more than %d kinds of local sandbox in one context; use another context", ZYGOTES_MAX);
    int rc = zygote_start(env->base.loop, spec, env->groups, out, err);
    if (rc == 0)
        env->zygotes[env->zygote_count++] = *out;
    return rc;
}

/* The guest's uid outside the sandbox. */
static uid_t guest_uid(const struct sandbox *s)
{
    bool other = geteuid() == 0 && s->isolation != ISOLATION_PROCESS;
    if (!other)
        return geteuid();
    return s->user ? s->user : JAIL_NOBODY;
}

static int local_make_workdir(struct sandbox *s, struct jail_mount *place, struct error *err)
{
    s->scratch_dir = scratch_dir_hold(zygote_scratch_dir(s->zygote));
    int rc = scratch_dir_add(s->scratch_dir, guest_uid(s), &s->workdir, err);
    place->workdir = s->workdir;
    if (rc == 0 && s->isolation == ISOLATION_LANDLOCK)
        place->user_processes = users_count_processes(guest_uid(s));
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

static void remove_workdir(struct sandbox *s)
{
    if (!s->workdir) {
        scratch_dir_release(steal(&s->scratch_dir));
        return;
    }
    tree_remove(AT_FDCWD, s->workdir);
    free(steal(&s->workdir));
    scratch_dir_release(steal(&s->scratch_dir));
}

/* Creates pairs of descriptors: `mine` stay here, `theirs` go to the clone. */
static int make_ports(int mine[PORT_COUNT], int theirs[PORT_COUNT], struct error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "making a channel");
    mine[PORT_CHANNEL] = pair[0];
    /* Refuses descriptors from the guest, which this process would have to close. Not possible
     * before Linux 6.16. */
    (void)!setsockopt(pair[0], SOL_SOCKET, SO_PASSRIGHTS, &(int){ 0 }, sizeof(int));
    theirs[PORT_CHANNEL] = pair[1];
    for (enum port p = PORT_OUT; p < PORT_COUNT; p++) {
        if (pipe2(pair, O_CLOEXEC) < 0)
            return error_set_errno(err, ERROR_ENVIRONMENT, "making a pipe");
        mine[p] = pair[0];
        theirs[p] = pair[1];
    }
    for (enum port p = 0; p < PORT_COUNT; p++)
        if (fcntl(mine[p], F_SETFL, O_NONBLOCK) < 0)
            return error_set_errno(err, ERROR_ENVIRONMENT, "making a channel");
    return 0;
}

static int watch_ports(struct sandbox *s, struct loop *loop, struct error *err)
{
    static watch_fn *const handlers[PORT_COUNT] = { channel_ready, out_ready, err_ready,
        status_ready };
    for (enum port p = 0; p < PORT_COUNT; p++) {
        s->watches[p] = watch_new(loop, s->fds[p], handlers[p], s);
        if (!s->watches[p])
            return error_memory(err);
        watch_port(s, p);
    }
    return 0;
}

/* The allocator keeps memory of the buffers for many simultaneous sandboxes. Returns it to the
 * system once half of them have gone. */
static void give_memory_back(struct local *env)
{
    enum { FEW = 8 };
    if (env->most < FEW || env->sandboxes > env->most / 2)
        return;
    malloc_trim(0);
    env->most = env->sandboxes;
}

static void local_close(struct sandbox *s)
{
    if (!s)
        return;
    bool was_running = !s->ended;
    s->ended = true;
    s->env->sandboxes -= s->in_use;
    if (s->clone_id)
        zygote_forget(s->zygote, s->clone_id);
    if (was_running && s->pidfd >= 0)
        local_kill(s);
    for (enum port p = 0; p < PORT_COUNT; p++) {
        local_unwatch(s, p);
        close_fd(&s->fds[p]);
    }
    forget_takings(s);
    send_queue_drop(&s->send_queue);
    cpu_priority_close(s->cpu_priority);
    memory_watch_close(s->memory_watch);
    local_wait_for_keeper(s);
    mounts_leave(&s->mounts);
    remove_workdir(s);
    cgroup_free(s->cgroup);
    users_give_back(s->env->users, s->user);
    close_fd(&s->pidfd);
    free(s->plan);
    give_memory_back(s->env);
    free(s);
}

static struct sandbox *sandbox_new(
    struct local *env, struct zygote *z, const struct sandbox_events *events, void *arg)
{
    struct sandbox *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    *s = (struct sandbox){
        .base = { env->base.ops },
        .env = env,
        .zygote = z,
        .isolation = zygote_isolation(z),
        .events = *events,
        .arg = arg,
        .fds = { -1, -1, -1, -1 },
        .pidfd = -1,
    };
    for (enum port p = 0; p < PORT_STATUS; p++)
        s->waiting[p] = (struct fair_reader){
            .next = local_turn_came, .read = local_read_put_off, .arg = s, .port = p
        };
    return s;
}

/* Sets limits of the whole sandbox. Without cgroups, limits that have no rlimit are an error. */
static int make_cgroup(
    struct sandbox *s, const struct local *env, const struct jail_limits *limits, struct error *err)
{
    if (env->groups)
        return cgroup_new(env->groups, limits, &s->cgroup, err);
    if (limits->cpus > 0)
        return error_set(
            err, ERROR_UNSUPPORTED, "--cpus needs a cgroup: %.180s", env->no_cgroups.text);
    return 0;
}

/* Data shared by several sessions belongs to one user, nobody. A sandbox with a volume or workspace
 * therefore gets its own user only if the mount can be id-mapped. */
static int take_user(struct sandbox *s, const struct user_range *users, struct error *err)
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
    struct jail_mount place = { .shares_session = cpu_priority_can_raise() };
    int rc = make_cgroup(s, s->env, limits, err);
    if (rc == 0)
        rc = watch_memory(s, limits->memory, err);
    if (rc == 0)
        rc = take_user(s, zygote_users(z), err);
    place.user = s->user;
    if (rc == 0 && !isolation_has_own_root(s->isolation))
        rc = local_make_workdir(s, &place, err);
    if (rc == 0)
        rc = mounts_enter(&s->mounts, s->env->quotas, s->user ? JAIL_NOBODY : guest_uid(s),
            end_for_limit, s, &place, err);
    if (rc == 0)
        rc = jail_compile_sandbox(s->isolation, zygote_plan(z), limits, &place, &s->plan, err);
    for (enum limit l = LIMIT_NONE + 1; rc == 0 && l < LIMIT_COUNT; l++)
        s->usage.means[l] = limit_means(l, limits, s->plan, s->cgroup != NULL);
    if (rc == 0)
        rc = make_ports(s->fds, theirs, err);
    const int extra[] = { s->cgroup ? cgroup_fd(s->cgroup) : -1, s->mounts.mounts[0],
        s->mounts.mounts[1] };
    if (rc == 0)
        rc = zygote_clone(z, s->plan, theirs, extra, clone_answered, s, &s->clone_id, err);
    if (rc == 0) /* while the zygote works */
        rc = watch_ports(s, s->env->base.loop, err);
    for (enum port p = 0; p < PORT_COUNT; p++)
        close_fd(&theirs[p]);
    return rc;
}

/* `kept`: the specification with the volume and workspace; NULL: none. */
static int make_with(struct local *env, struct zygote *z, const struct jail_limits *limits,
    const struct sandbox_spec *kept, const struct sandbox_events *events, void *events_arg,
    struct sandbox **out, struct error *err)
{
    struct sandbox *s = sandbox_new(env, z, events, events_arg);
    if (!s)
        return error_memory(err);
    mounts_hold(&s->mounts, s->isolation, kept);
    int rc = local_start(s, z, limits, err);
    if (rc < 0) {
        local_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

/* For the pool. */
static int make_sandbox(void *arg, struct zygote *z, const struct jail_limits *limits,
    const struct sandbox_events *events, void *events_arg, struct sandbox **out, struct error *err)
{
    return make_with(arg, z, limits, NULL, events, events_arg, out, err);
}

/* Looks for cgroups, once. */
static void find_cgroups(struct local *env)
{
    if (env->groups || env->no_cgroups.code != ERROR_NONE)
        return;
    cleanup_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    cgroups_open(env->base.loop, root, &env->groups, &env->no_cgroups);
    env->weighs = env->groups && cgroups_have_weights(env->groups);
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
    /* In the pool, a sandbox would keep an unused volume in use, and it has no workspace. */
    bool poolable = !spec->volume && !spec->workspace;
    *out = poolable ? pool_take(env->pool, z, &spec->limits) : NULL;
    if (*out) {
        (*out)->events = *events;
        (*out)->arg = arg;
    } else {
        rc = make_with(env, z, &spec->limits, spec, events, arg, out, err);
    }
    if (rc == 0) {
        (*out)->in_use = true;
        env->sandboxes++;
        if (env->sandboxes > env->most)
            env->most = env->sandboxes;
    }
    if (rc == 0 && poolable)
        pool_keep(env->pool, z, &spec->limits, spec->pool);
    return rc;
}

static void local_drain(struct sandbox *s)
{
    for (enum port p = PORT_OUT; p <= PORT_ERR; p++)
        if (s->watches[p])
            drain_port(s, p);
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
        read_cgroup(s, out, &out_of_memory);
}

static uint64_t local_busy_ns(const struct sandbox *s)
{
    return cpu_priority_busy_ns(s->cpu_priority);
}

static const char *local_volume(const struct sandbox *s)
{
    return mounts_volume(&s->mounts);
}

static const char *local_workspace(const struct sandbox *s)
{
    return mounts_workspace(&s->mounts);
}

/* A dead zygote may be freed before its sandboxes are closed. */
static bool has_zygote(const struct local *env, const struct zygote *z)
{
    for (size_t i = 0; i < env->zygote_count; i++)
        if (env->zygotes[i] == z)
            return true;
    return false;
}

static void local_describe(const struct environment *env, const struct sandbox *s, struct buf *out)
{
    if (has_zygote((const struct local *)env, s->zygote)) {
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
    jail_print(s->plan, out);
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
    users_free(env->users);
    for (size_t i = 0; i < env->zygote_count; i++)
        zygote_stop(env->zygotes[i]);
    cgroups_close(env->groups);
    free(env);
}

const struct features
    local_features = { .of = {
                           [FEATURE_STREAM] = FEATURE_YES("a socket"),
                           [FEATURE_REATTACH] = FEATURE_NO("there is nothing between to be cut"),
                           [FEATURE_SNAPSHOT] = FEATURE_NO("preload is nearest"),
                           [FEATURE_RESUME] =
                               FEATURE_NO("a sandbox ends with its session; a volume stays"),
                           [FEATURE_IDLE] =
                               FEATURE_NO("a session that waits costs nothing but memory"),
                           [FEATURE_IMAGE] = FEATURE_NO("it is this machine's Python, or python's"),
                           [FEATURE_PULL] = FEATURE_NO("there is no image"),
                           [FEATURE_VOLUME] = FEATURE_YES("at /data"),
                           [FEATURE_WORKSPACE] = FEATURE_YES("at /workspace"),
                           [FEATURE_READ] = FEATURE_YES("at their own paths"),
                           [FEATURE_NETWORK] = FEATURE_NO(
                               "there is none, but with isolation process, which has the host's"),
                           [FEATURE_ALLOW] = FEATURE_NO("there is no network"),
                           [FEATURE_MEMORY] =
                               FEATURE_YES("of the whole; measured where there is no cgroup"),
                           [FEATURE_PROCESSES] = FEATURE_YES("of the whole"),
                           [FEATURE_CPUS] = FEATURE_YES("with a cgroup"),
                           [FEATURE_DISK] = FEATURE_NO(
                               "tmp-size, volume-size and workspace-size bound what can be written"),
                           [FEATURE_GPUS] = FEATURE_NO(
                               "with isolation process the code has what the user may open"),
                           [FEATURE_USER] = FEATURE_NO(
                               "sandbox-users says whose it is if you are root; else it is yours"),
                           [FEATURE_SECCOMP] =
                               FEATURE_NO("it is always Droste's, but at isolation process"),
                           [FEATURE_READ_ONLY] =
                               FEATURE_NO("all but /tmp, the volume and staged files always is"),
                           [FEATURE_LABELS] = FEATURE_NO("nothing reads them"),
                           [FEATURE_REUSE] = FEATURE_NO("a new one takes 2 ms"),
                           [FEATURE_ISOLATION] =
                               FEATURE_YES("full, light, landlock, process, auto"),
                           [FEATURE_PRELOAD] = FEATURE_YES("once for all sandboxes"),
                       } };

static void local_forked(struct environment *base)
{
    users_forked(((struct local *)base)->users);
}

static const struct environment_ops local_ops = {
    .name = "local",
    .traits = TRAIT_MEMFD | TRAIT_SIGNAL,
    .features = &local_features,
    .open = local_open_sandbox,
    .send = local_send,
    .unread = local_unread,
    .hold = local_hold,
    .takes_fd = local_takes_fd,
    .begin_operation = local_begin_operation,
    .charge = local_charge,
    .settle = local_settle,
    .interrupt = local_interrupt,
    .kill = local_kill,
    .drain = local_drain,
    .isolation = local_isolation,
    .usage = local_usage,
    .busy_ns = local_busy_ns,
    .volume = local_volume,
    .workspace = local_workspace,
    .describe = local_describe,
    .close = local_close,
    .forked = local_forked,
    .free = local_free,
};

int local_open(struct loop *loop, const struct environment_options *options,
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
    if (rc < 0) {
        pool_close(env->pool);
        fair_reading_close(env->fair_reading);
        quotas_close(env->quotas);
        users_free(env->users);
        free(env);
        return rc;
    }
    *out = (struct environment *)env;
    return 0;
}
