/* env/local/ports.c: reads what a sandbox sends, and writes its messages.
 *
 * What is left in the ports is read before the end of the sandbox is reported.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/ancillary.h"
#include "env/local/sandbox.h"

enum {
    READ_SIZE = 65536,
    DRAIN_ROUNDS = 16, /* a guest can enlarge a pipe to a MiB */
};

/* ---- input from the guest ---- */

/* True if more is expected, which is always the case for output. */
static bool ports_tell(struct sandbox *s, enum port port, const char *data, size_t len)
{
    if (port == PORT_CHANNEL)
        return s->events.bytes(s->arg, data, len);
    s->events.output(s->arg, (int)port, data, len);
    return true;
}

/* The kernel ends a piece after the bytes that a descriptor came with, unix(7): at most one belongs
 * to it. Others, which no frame of an honest guest has, are closed. */
static ssize_t ports_read_channel(struct sandbox *s, char *data)
{
    int fd = -1, count = 0;
    ssize_t n = ancillary_receive(s->fds[PORT_CHANNEL], data, READ_SIZE, 0, &fd, 1, &count);
    if (count > 0 && s->events.descriptor)
        s->events.descriptor(s->arg, fd);
    else if (count > 0)
        close(fd);
    return n;
}

static ssize_t ports_read_pipe(struct sandbox *s, enum port port, char *data)
{
    ssize_t n;
    do
        n = read(s->fds[port], data, READ_SIZE);
    while (n < 0 && errno == EINTR);
    return n;
}

/* Reads one piece: its length, 0 if nothing is there, -1 once the other end is closed. */
static ssize_t ports_read_piece(struct sandbox *s, enum port port, bool *more)
{
    char data[READ_SIZE];
    ssize_t n = port == PORT_CHANNEL ? ports_read_channel(s, data) : ports_read_pipe(s, port, data);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (n <= 0)
        return -1;
    *more = ports_tell(s, port, data, (size_t)n);
    return n;
}

/* Reads everything that the port holds now. */
static void port_drain(struct sandbox *s, enum port port)
{
    bool more;
    for (int i = 0; i < DRAIN_ROUNDS && !s->ended; i++)
        if (ports_read_piece(s, port, &more) < READ_SIZE)
            return; /* a short read: it is empty */
}

static void port_unwatch(struct sandbox *s, enum port port)
{
    if (port != PORT_STATUS)
        fair_reading_leave(s->env->fair_reading, &s->waiting[port]);
    watch_free(s->watches[port]);
    s->watches[port] = NULL;
}

/* Sets the events that the loop waits for. */
static void port_watch(struct sandbox *s, enum port port)
{
    bool held = port == PORT_CHANNEL && s->held;
    bool reads = port == PORT_STATUS || !(s->waiting[port].waits || held);
    bool writes = port == PORT_CHANNEL && send_queue_waits(&s->send_queue);
    if (s->watches[port])
        watch_events(s->watches[port], (reads ? UV_READABLE : 0) | (writes ? UV_WRITABLE : 0));
}

void ports_forget_use(struct sandbox *s)
{
    for (enum port p = 0; p < PORT_STATUS; p++)
        fair_reading_begin(s->env->fair_reading, &s->waiting[p]);
}

/* Without a status port, end of file on standard error is the end: the keeper holds it open, and
 * has reported before it ended, if at all. */
static void port_closed(struct sandbox *s, enum port port)
{
    port_unwatch(s, port);
    if (port != PORT_ERR || !s->report_tag)
        return;
    reports_read(s->env->reports);
    if (!s->clone_id)
        ports_finish(s);
}

static void port_ready(struct sandbox *s, enum port port)
{
    struct fair_reader *turn = &s->waiting[port];
    bool more = false;
    if (port == PORT_CHANNEL && s->held)
        return;
    uint64_t begun = clock_ns(), worked = clock_thread_ns();
    ssize_t n = ports_read_piece(s, port, &more);
    fair_reading_add_use(
        s->env->fair_reading, turn, clock_thread_ns() - worked, clock_ns() - begun);
    if (!s->watches[port])
        return;
    if (n < 0)
        port_closed(s, port);
    else if (more && fair_reading_wait(s->env->fair_reading, turn, (size_t)n))
        port_watch(s, port);
}

static void ports_turn_came(void *arg, unsigned port)
{
    port_watch(arg, port);
}

/* The port was put off and is read now. */
static void ports_read_put_off(void *arg, unsigned port)
{
    struct sandbox *s = arg;
    port_ready(s, port);
    port_watch(s, port);
}

static void port_readable(struct sandbox *s, enum port port)
{
    if (fair_reading_put_off(s->env->fair_reading, &s->waiting[port]))
        port_watch(s, port);
    else
        port_ready(s, port);
}

static void ports_out_ready(void *arg, int status, int events)
{
    port_readable(arg, PORT_OUT);
}

static void ports_err_ready(void *arg, int status, int events)
{
    port_readable(arg, PORT_ERR);
}

static void ports_take_status(struct sandbox *s, const struct zygote_status *status)
{
    if (status->sys != 0) {
        local_explain_failure(s, status->op, status->sys);
        return;
    }
    s->how.has_status = !s->wants_kill && status->wait_status != -1;
    s->how.wait_status = status->wait_status;
    s->usage.memory_peak = (uint64_t)status->max_rss_kib * 1024;
    s->usage.cpu_seconds = (double)status->cpu_us / 1e6;
}

/* STATUS_ENDED: the keeper itself was killed or never began. */
static enum status_read ports_read_status(struct sandbox *s)
{
    struct zygote_status status;
    enum status_read found = STATUS_RECORD;
    if (s->family)
        found = fork_read_status(s, &status);
    else if (read(s->fds[PORT_STATUS], &status, sizeof status) != sizeof status)
        found = STATUS_ENDED;
    if (found == STATUS_RECORD)
        ports_take_status(s, &status);
    return found;
}

/* The kernel counts the kill before it kills, and kills all processes at once (memory.oom.group),
 * so the keeper has reported nothing. A kill by the host is not a limit. */
static void judge_end(struct sandbox *s)
{
    bool out_of_memory = false;
    local_read_cgroup(s, &s->usage, &out_of_memory);
    if (s->over != LIMIT_NONE)
        s->how.limit = s->over;
    else if (out_of_memory && !s->wants_kill)
        s->how.limit = LIMIT_MEMORY;
}

void ports_finish(struct sandbox *s)
{
    for (enum port p = PORT_CHANNEL; p <= PORT_ERR; p++)
        if (s->watches[p])
            port_drain(s, p);
    for (enum port p = 0; p < PORT_COUNT; p++)
        if (s->watches[p])
            port_unwatch(s, p);
    if (s->ended)
        return;
    s->ended = true;
    judge_end(s);
    cpu_priority_close(steal(&s->cpu_priority)); /* the keeper's pid may be reused from now on */
    memory_watch_close(steal(&s->memory_watch));
    s->events.ended(s->arg, &s->how);
}

void ports_reported(void *sandbox, const struct zygote_status *status)
{
    struct sandbox *s = sandbox;
    if (s->ended)
        return;
    ports_take_status(s, status);
    ports_finish(s);
}

/* The end of a failed clone may be seen before the zygote's reason: a standby closes the pipe while
 * its report is being forwarded (guest/zygote/zygote.c). */
static void ports_status_ready(void *arg, int status, int events)
{
    struct sandbox *s = arg;
    enum status_read found = ports_read_status(s);
    if (found == STATUS_RECORD || (found == STATUS_ENDED && !s->clone_id))
        ports_finish(s);
    else if (found == STATUS_ENDED)
        port_unwatch(s, PORT_STATUS);
}

bool ports_saw_end(const struct sandbox *s)
{
    return !s->watches[s->report_tag ? PORT_ERR : PORT_STATUS];
}

/* ---- messages to the guest ---- */

static void ports_channel_ready(void *arg, int status, int events)
{
    struct sandbox *s = arg;
    size_t unread = s->send_queue.bytes;
    if ((events & UV_WRITABLE) && send_queue_flush(&s->send_queue, s->fds[PORT_CHANNEL]))
        port_watch(s, PORT_CHANNEL);
    if (s->send_queue.bytes < unread && s->events.room)
        s->events.room(s->arg);
    if (status < 0)
        port_ready(s, PORT_CHANNEL);
    else if (events & UV_READABLE)
        port_readable(s, PORT_CHANNEL);
}

int ports_send(
    struct sandbox *s, const struct iovec *iov, int count, int fd_given, struct error *err)
{
    cleanup_fd int fd = fd_given;
    if (s->ended)
        return 0;
    bool waited = send_queue_waits(&s->send_queue);
    memory_watch_exclude(s->memory_watch, fd);
    int rc = send_queue_send(&s->send_queue, s->fds[PORT_CHANNEL], iov, count, steal_fd(&fd), err);
    if (!waited && send_queue_waits(&s->send_queue))
        port_watch(s, PORT_CHANNEL);
    return rc;
}

void ports_hold_back(struct sandbox *s, bool on)
{
    s->send_queue.is_held = on;
    if (on || s->ended || s->fds[PORT_CHANNEL] < 0)
        return;
    send_queue_flush(&s->send_queue, s->fds[PORT_CHANNEL]);
    port_watch(s, PORT_CHANNEL);
}

void ports_hold(struct sandbox *s, bool on)
{
    s->held = on;
    memory_watch_unread(s->memory_watch, on ? s->fds[PORT_CHANNEL] : -1);
    if (!s->ended)
        port_watch(s, PORT_CHANNEL);
}

void ports_drain(struct sandbox *s)
{
    for (enum port p = PORT_OUT; p <= PORT_ERR; p++)
        if (s->watches[p])
            port_drain(s, p);
}

/* ---- opening and closing ---- */

void ports_init(struct sandbox *s)
{
    for (enum port p = 0; p < PORT_COUNT; p++)
        s->fds[p] = -1;
    for (enum port p = 0; p < PORT_STATUS; p++)
        s->waiting[p] = (struct fair_reader){
            .next = ports_turn_came, .read = ports_read_put_off, .arg = s, .port = p
        };
}

int ports_make(struct sandbox *s, int theirs[PORT_COUNT], struct error *err)
{
    int pair[2], *mine = s->fds;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "making a channel");
    mine[PORT_CHANNEL] = pair[0];
    theirs[PORT_CHANNEL] = pair[1];
    enum port most = s->family || s->report_tag ? PORT_STATUS : PORT_COUNT;
    for (enum port p = PORT_OUT; p < most; p++) {
        if (pipe2(pair, O_CLOEXEC) < 0)
            return error_set_errno(err, ERROR_ENVIRONMENT, "making a pipe");
        mine[p] = pair[0];
        theirs[p] = pair[1];
    }
    if (s->report_tag && (theirs[PORT_STATUS] = reports_share(s->env->reports)) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "sharing the socket for reports");
    for (enum port p = 0; p < most; p++)
        if (fcntl(mine[p], F_SETFL, O_NONBLOCK) < 0)
            return error_set_errno(err, ERROR_ENVIRONMENT, "making a channel");
    return 0;
}

int ports_watch(struct sandbox *s, struct error *err)
{
    static watch_fn *const handlers[PORT_COUNT] = { ports_channel_ready, ports_out_ready,
        ports_err_ready, ports_status_ready };
    for (enum port p = 0; p < PORT_COUNT; p++) {
        if (s->fds[p] < 0)
            continue;
        s->watches[p] = watch_new(s->env->base.loop, s->fds[p], handlers[p], s);
        if (!s->watches[p])
            return error_memory(err);
        port_watch(s, p);
    }
    return 0;
}

void ports_close(struct sandbox *s)
{
    for (enum port p = 0; p < PORT_COUNT; p++) {
        port_unwatch(s, p);
        close_fd(&s->fds[p]);
    }
    reports_forget(s->env->reports, s->report_tag);
    ports_forget_use(s);
    send_queue_drop(&s->send_queue);
}
