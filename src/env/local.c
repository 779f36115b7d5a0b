/* env/local.c: sandboxes on this machine.
 *
 * A sandbox is a keeper and a worker (guest/zygote.c) and four descriptors here: the channel, the
 * read ends of its standard output and error, and the status pipe on which the keeper says how the
 * worker ended. The status pipe's end is the sandbox's end: what is left in the other three is read
 * first, and then `ended` is told. Zygotes are kept per kind of sandbox and live as long as the
 * environment.
 */
#include "env/local.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "env/pace.h"
#include "env/pool.h"
#include "env/turns.h"
#include "env/zygote.h"

enum {
    ZYGOTES_MAX = 16,
    READ_SIZE = 65536,
    DRAIN_ROUNDS = 16, /* a guest can make a pipe hold a MiB */
    KEEPER_END_MS = 2000, /* for killed processes to be gone; milliseconds in practice */
};

struct local {
    struct environment_base base;
    struct zygote *zygotes[ZYGOTES_MAX];
    size_t zygote_count;
    struct pool *pool;
    struct turns *turns;
    unsigned sandboxes; /* that are in use */
};

/* Bytes that the guest has not taken yet. */
struct unsent {
    struct unsent *next;
    int fd; /* goes with the first byte; -1: none, or gone */
    size_t at, len;
    char data[];
};

enum port { PORT_CHANNEL, PORT_OUT, PORT_ERR, PORT_STATUS, PORT_COUNT };

struct sandbox {
    struct sandbox_base base;
    struct local *env;
    struct zygote *zygote;
    uint32_t clone_id; /* of the clone that is under way; 0 once it is answered */
    enum isolation isolation;
    struct jail_plan *plan;
    char *workdir; /* the temporary directory of isolation `process`, removed at the end */
    struct sandbox_events events;
    void *arg;
    int fds[PORT_COUNT];
    struct watch *watches[PORT_COUNT];
    struct turn waiting[PORT_STATUS]; /* of those that can say much */
    int pidfd;
    struct pace *pace; /* NULL until it is there */
    bool wants_kill, wants_interrupt; /* asked for before the pidfd was here */
    bool in_use; /* not in the pool */
    bool ended;
    struct sandbox_exit how;
    struct unsent *first, **last;
};

/* Why it could not start: an operation of its plan, or the clone itself, failed with this errno. */
static void explain_failure(struct sandbox *s, uint32_t op, int sys)
{
    cleanup_buf struct buf what = { 0 };
    jail_print_op(s->plan, op, &what);
    error_set(&s->how.error, ERROR_ENVIRONMENT,
        "starting a sandbox with isolation '%s': %.80s: %s; see `droste doctor`",
        isolation_name(s->isolation), buf_text(&what), strerror(sys));
}

/* ---- what the guest says ---- */

/* True if there is more to come: there always is of output. */
static bool tell(struct sandbox *s, enum port port, const char *data, size_t len)
{
    if (port == PORT_CHANNEL)
        return s->events.bytes(s->arg, data, len);
    s->events.output(s->arg, (int)port, data, len);
    return true;
}

/* Reads a piece of what is there: the length, 0 if there is nothing, -1 once the other end is
 * closed. */
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
    *more = tell(s, port, data, (size_t)n);
    return n;
}

/* Reads all that the port holds now. */
static void drain_port(struct sandbox *s, enum port port)
{
    bool more;
    for (int i = 0; i < DRAIN_ROUNDS && !s->ended; i++)
        if (read_piece(s, port, &more) < READ_SIZE)
            return; /* it gave less than was asked for: it is empty */
}

static void unwatch(struct sandbox *s, enum port port)
{
    if (port != PORT_STATUS)
        turns_leave(s->env->turns, &s->waiting[port]);
    watch_free(s->watches[port]);
    s->watches[port] = NULL;
}

/* What the loop is to look for. */
static void watch_port(struct sandbox *s, enum port port)
{
    bool reads = port == PORT_STATUS || !s->waiting[port].waits;
    bool writes = port == PORT_CHANNEL && s->first;
    if (s->watches[port])
        watch_events(
            s->watches[port], (reads ? UV_READABLE : 0) | (writes ? UV_WRITABLE : 0));
}

static void port_ready(struct sandbox *s, enum port port)
{
    bool more = false;
    ssize_t n = read_piece(s, port, &more);
    if (!s->watches[port])
        return;
    if (n < 0)
        unwatch(s, port);
    else if (more && turns_wait(s->env->turns, &s->waiting[port], (size_t)n))
        watch_port(s, port);
}

static void turn_came(void *arg, unsigned port)
{
    watch_port(arg, port);
}

static void out_ready(void *arg, int status, int events)
{
    port_ready(arg, PORT_OUT);
}

static void err_ready(void *arg, int status, int events)
{
    port_ready(arg, PORT_ERR);
}

static void read_status(struct sandbox *s)
{
    struct zygote_status status;
    ssize_t n = read(s->fds[PORT_STATUS], &status, sizeof status);
    if (n != sizeof status)
        return;
    if (status.sys != 0) {
        explain_failure(s, status.op, status.sys);
        return;
    }
    s->how.known = !s->wants_kill && status.wait_status != -1;
    s->how.wait_status = status.wait_status;
    s->how.max_rss = (uint64_t)status.max_rss_kib * 1024;
    s->how.cpu_seconds = (double)status.cpu_us / 1e6;
}

static void finish(struct sandbox *s)
{
    for (enum port p = PORT_CHANNEL; p <= PORT_ERR; p++)
        if (s->watches[p])
            drain_port(s, p);
    for (enum port p = 0; p < PORT_COUNT; p++)
        if (s->watches[p])
            unwatch(s, p);
    if (s->ended)
        return;
    s->ended = true;
    pace_close(steal(&s->pace)); /* the keeper's pid is nobody's from now on */
    s->events.ended(s->arg, &s->how);
}

static void status_ready(void *arg, int status, int events)
{
    struct sandbox *s = arg;
    read_status(s);
    finish(s);
}

/* ---- what the guest is told ---- */

/* Sends one piece, with its descriptor if it has one. Like write(2). */
static ssize_t send_piece(int channel, const struct iovec *iov, int count, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } ancillary = { { 0 } };
    struct msghdr m = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)count };
    if (fd >= 0) {
        m.msg_control = ancillary.bytes;
        m.msg_controllen = sizeof ancillary.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    ssize_t n;
    do
        n = sendmsg(channel, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n;
}

static void drop_unsent(struct sandbox *s)
{
    while (s->first) {
        struct unsent *u = s->first;
        s->first = u->next;
        close_fd(&u->fd);
        free(u);
    }
    s->last = &s->first;
}

/* Sends what waits; true when nothing is left. The guest's death is the status pipe's to tell. */
static bool flush_unsent(struct sandbox *s)
{
    while (s->first) {
        struct unsent *u = s->first;
        struct iovec iov = { u->data + u->at, u->len - u->at };
        ssize_t n = send_piece(s->fds[PORT_CHANNEL], &iov, 1, u->fd);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS))
            return false;
        if (n < 0) {
            drop_unsent(s);
            return true;
        }
        close_fd(&u->fd);
        u->at += (size_t)n;
        if (u->at < u->len)
            return false;
        s->first = u->next;
        if (!s->first)
            s->last = &s->first;
        free(u);
    }
    return true;
}

static void channel_ready(void *arg, int status, int events)
{
    struct sandbox *s = arg;
    if ((events & UV_WRITABLE) && flush_unsent(s))
        watch_port(s, PORT_CHANNEL);
    if (events & UV_READABLE || status < 0)
        port_ready(s, PORT_CHANNEL);
}

/* Keeps what the socket did not take: everything after the first `sent` bytes. */
static int keep_unsent(
    struct sandbox *s, const struct iovec *iov, int count, size_t sent, int *fd, struct error *err)
{
    size_t total = 0;
    for (int i = 0; i < count; i++)
        total += iov[i].iov_len;
    struct unsent *u = malloc(sizeof *u + total - sent);
    if (!u)
        return error_memory(err);
    *u = (struct unsent){ .fd = steal_fd(fd), .len = total - sent };
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        size_t skip = sent < iov[i].iov_len ? sent : iov[i].iov_len;
        sent -= skip;
        memcpy(u->data + at, (const char *)iov[i].iov_base + skip, iov[i].iov_len - skip);
        at += iov[i].iov_len - skip;
    }
    *s->last = u;
    s->last = &u->next;
    watch_port(s, PORT_CHANNEL);
    return 0;
}

static int local_send(
    struct sandbox *s, const struct iovec *iov, int count, int fd_given, struct error *err)
{
    cleanup_fd int fd = fd_given;
    size_t total = 0;
    ssize_t n = 0;
    if (s->ended)
        return 0;
    for (int i = 0; i < count; i++)
        total += iov[i].iov_len;
    if (!s->first) {
        n = send_piece(s->fds[PORT_CHANNEL], iov, count, fd);
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS)
            return 0;
        if (n < 0)
            n = 0;
        else
            close_fd(&fd);
    }
    return (size_t)n == total ? 0 : keep_unsent(s, iov, count, (size_t)n, &fd, err);
}

/* ---- life and death ---- */

static void signal_keeper(struct sandbox *s, int signal)
{
    if (s->pidfd >= 0)
        syscall(SYS_pidfd_send_signal, s->pidfd, signal, NULL, 0);
}

static void local_attend(struct sandbox *s)
{
    pace_begin(s->pace);
}

static void local_interrupt(struct sandbox *s)
{
    s->wants_interrupt = s->pidfd < 0;
    signal_keeper(s, SIGUSR1);
}

static void local_kill(struct sandbox *s)
{
    s->wants_kill = true;
    pace_end(s->pace);
    /* A pid namespace dies with its first process. Without one the keeper has to kill the tree, and
     * the guest may have stopped it. */
    signal_keeper(s, s->plan->clone_flags ? SIGKILL : SIGTERM);
    if (!s->plan->clone_flags)
        signal_keeper(s, SIGCONT);
}

static void clone_answered(void *arg, struct zygote_answer *answer)
{
    struct sandbox *s = arg;
    s->clone_id = 0;
    s->pidfd = answer->pidfd;
    if (s->pidfd >= 0 && pace_open(s->env->base.loop, answer->pid, &s->env->sandboxes, &s->pace, NULL) == 0)
        pace_begin(s->pace);
    if (s->pidfd < 0) {
        explain_failure(s, ZYGOTE_NO_OP, answer->sys);
        finish(s);
        return;
    }
    if (s->wants_kill)
        local_kill(s);
    else if (s->wants_interrupt)
        local_interrupt(s);
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
    int rc = zygote_start(env->base.loop, spec, out, err);
    if (rc == 0)
        env->zygotes[env->zygote_count++] = *out;
    return rc;
}

static int make_workdir(struct sandbox *s, struct error *err)
{
    const char *tmp = getenv("TMPDIR");
    struct buf path = { 0 };
    buf_printf(&path, "%s/droste-XXXXXX", tmp && tmp[0] == '/' ? tmp : "/tmp");
    s->workdir = buf_steal(&path);
    if (!s->workdir)
        return error_memory(err);
    if (mkdtemp(s->workdir))
        return 0;
    free(steal(&s->workdir));
    return error_set_errno(err, ERROR_ENVIRONMENT, "making a temporary directory");
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

/* The guest of isolation `process` is trusted; links are not followed all the same. The keeper ends
 * after all the others: nobody makes files while they are removed. */
static void remove_workdir(struct sandbox *s)
{
    struct pollfd keeper = { .fd = s->pidfd, .events = POLLIN };
    if (!s->workdir)
        return;
    if (s->pidfd >= 0)
        poll(&keeper, 1, KEEPER_END_MS);
    nftw(s->workdir, remove_entry, 32, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    free(steal(&s->workdir));
}

/* The pairs of descriptors: `mine` are kept here, `theirs` go to the clone. */
static int make_ports(int mine[PORT_COUNT], int theirs[PORT_COUNT], struct error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "making a channel");
    mine[PORT_CHANNEL] = pair[0];
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
        unwatch(s, p);
        close_fd(&s->fds[p]);
    }
    drop_unsent(s);
    pace_close(s->pace);
    remove_workdir(s);
    close_fd(&s->pidfd);
    free(s->plan);
    free(s);
}

static struct sandbox *sandbox_new(struct local *env, struct zygote *z,
    const struct sandbox_events *events, void *arg)
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
        s->waiting[p] = (struct turn){ .next = turn_came, .arg = s, .port = p };
    s->last = &s->first;
    return s;
}

static int start(struct sandbox *s, struct zygote *z, const struct jail_limits *limits,
    struct error *err)
{
    int theirs[PORT_COUNT] = { -1, -1, -1, -1 };
    int rc = s->isolation == ISOLATION_PROCESS ? make_workdir(s, err) : 0;
    if (rc == 0)
        rc = jail_compile_sandbox(s->isolation, zygote_plan(z), limits, s->workdir, &s->plan,
            err);
    if (rc == 0)
        rc = make_ports(s->fds, theirs, err);
    if (rc == 0)
        rc = watch_ports(s, s->env->base.loop, err);
    if (rc == 0)
        rc = zygote_clone(z, s->plan, theirs, clone_answered, s, &s->clone_id, err);
    for (enum port p = 0; p < PORT_COUNT; p++)
        close_fd(&theirs[p]);
    return rc;
}

static int make_sandbox(void *arg, struct zygote *z, const struct jail_limits *limits,
    const struct sandbox_events *events, void *events_arg, struct sandbox **out,
    struct error *err)
{
    struct local *env = arg;
    struct sandbox *s = sandbox_new(env, z, events, events_arg);
    if (!s)
        return error_memory(err);
    int rc = start(s, z, limits, err);
    if (rc < 0) {
        local_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

static int local_open_sandbox(struct environment *base, const struct sandbox_spec *spec,
    const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err)
{
    struct local *env = (struct local *)base;
    struct zygote *z = NULL;
    int rc = find_zygote(env, spec, &z, err);
    if (rc < 0)
        return rc;
    *out = pool_take(env->pool, z, &spec->limits);
    if (*out) {
        (*out)->events = *events;
        (*out)->arg = arg;
    } else {
        rc = make_sandbox(env, z, &spec->limits, events, arg, out, err);
    }
    if (rc == 0) {
        (*out)->in_use = true;
        env->sandboxes++;
    }
    if (rc == 0)
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

/* A zygote that died is gone before its sandboxes are closed. */
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
    jail_print(s->plan, out);
}

static void local_free(struct environment *base)
{
    struct local *env = (struct local *)base;
    pool_close(env->pool);
    turns_close(env->turns);
    for (size_t i = 0; i < env->zygote_count; i++)
        zygote_stop(env->zygotes[i]);
    free(env);
}

static const struct environment_ops local_ops = {
    .name = "local",
    .powers = POWER_MEMFD | POWER_SIGNAL,
    .open = local_open_sandbox,
    .send = local_send,
    .attend = local_attend,
    .interrupt = local_interrupt,
    .kill = local_kill,
    .drain = local_drain,
    .isolation = local_isolation,
    .describe = local_describe,
    .close = local_close,
    .free = local_free,
};

int local_open(struct loop *loop, struct environment **out, struct error *err)
{
    struct local *env = calloc(1, sizeof *env);
    if (!env)
        return error_memory(err);
    env->base = (struct environment_base){ &local_ops, loop };
    int rc = pool_open(loop, make_sandbox, local_close, env, &env->pool, err);
    if (rc == 0)
        rc = turns_open(loop, &env->turns, err);
    if (rc < 0) {
        pool_close(env->pool);
        free(env);
        return rc;
    }
    *out = (struct environment *)env;
    return 0;
}
