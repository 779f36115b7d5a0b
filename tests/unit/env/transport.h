/* A real environment behind a link, for tests: one supervisor, run by a Python of this machine over
 * two pipes (LINK_BARE) or a terminal (LINK_TEXT), and a transport in between that can be cut and
 * joined again. While it is cut, what the supervisor says is lost, and so is what was not written
 * to it.
 */
#pragma once

#include "../processes.h"
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fifo.h"
#include "env/remote/remote.h"
#include "env/common/fair_reading.h"

struct transport {
    struct environment_base base;
    struct remote *remote;
    struct remote_options options;
    struct fair_reading *fair_reading;
    pid_t pid;
    int in, out; /* ours; of a terminal the same */
    struct watch *in_watch, *out_watch;
    struct timer *rejoin;
    struct fifo to_write;
    struct json_object *facts;
    struct error failure;
    bool cut, gone, wrote;
    unsigned cuts;
    /* Cuts itself after each so many bytes, in either direction; 0: never. */
    size_t cut_each, until_cut;
};

static struct transport *transport_of(struct environment *env)
{
    return (struct transport *)env;
}

/* What the loop is to look for. */
static inline void transport_look(struct transport *c)
{
    int reads = remote_wants_more(c->remote) || c->cut ? UV_READABLE : 0;
    int writes = fifo_len(&c->to_write) > 0 ? UV_WRITABLE : 0;
    if (c->gone || !c->out_watch)
        return;
    watch_events(c->out_watch, reads | (c->in == c->out ? writes : 0));
    if (c->in != c->out && c->in_watch)
        watch_events(c->in_watch, writes);
}

static inline void transport_cut(struct transport *c)
{
    if (c->cut)
        return;
    c->cut = true;
    c->cuts++;
    fifo_free(&c->to_write);
    remote_disconnected(c->remote);
    transport_look(c);
}

static inline void transport_join(void *arg)
{
    struct transport *c = arg;
    c->cut = false;
    if (!c->gone)
        remote_connected(c->remote);
}

static inline bool transport_counts(struct transport *c, size_t len)
{
    if (!c->cut_each || c->cut || c->gone)
        return false;
    if (len < c->until_cut) {
        c->until_cut -= len;
        return false;
    }
    c->until_cut = c->cut_each;
    transport_cut(c);
    timer_start(c->rejoin, 2, 0);
    return true;
}

static inline void transport_flush(struct transport *c)
{
    while (!c->gone && fifo_len(&c->to_write) > 0) {
        size_t len = fifo_len(&c->to_write);
        if (c->cut_each && !c->cut && len > c->until_cut)
            len = c->until_cut ? c->until_cut : 1;
        ssize_t n = write(c->in, fifo_data(&c->to_write), len);
        if (n < 0)
            break;
        fifo_drop(&c->to_write, (size_t)n);
        if (transport_counts(c, (size_t)n))
            break;
    }
    if (c->in_watch)
        watch_events(c->in_watch,
            (c->in == c->out ? UV_READABLE : 0) | (fifo_len(&c->to_write) > 0 ? UV_WRITABLE : 0));
}

static inline void transport_write(void *arg, const struct iovec *iov, int count)
{
    struct transport *c = arg;
    assert_false(c->cut);
    c->wrote = true;
    for (int i = 0; i < count; i++)
        fifo_add(&c->to_write, iov[i].iov_base, iov[i].iov_len);
    /* Later: a real transport does not report a cut from within the remote's own functions. */
    transport_look(c);
}

static inline void transport_over(struct transport *c)
{
    struct sandbox_exit how = { 0 };
    if (c->gone)
        return;
    c->gone = true;
    watch_free(c->out_watch);
    if (c->in_watch != c->out_watch)
        watch_free(c->in_watch);
    c->in_watch = c->out_watch = NULL;
    how.error = c->failure;
    remote_ended(c->remote, &how);
}

static inline void transport_read(struct transport *c)
{
    char data[65536];
    ssize_t n = read(c->out, data, sizeof data);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        transport_over(c);
        return;
    }
    if (c->cut)
        return;
    size_t heard = (size_t)n;
    if (c->cut_each && heard > c->until_cut)
        heard = c->until_cut;
    remote_feed(c->remote, data, heard);
    transport_look(c);
    transport_counts(c, (size_t)n);
}

static inline void transport_ready(void *arg, int status, int events)
{
    struct transport *c = arg;
    if (events & UV_WRITABLE)
        transport_flush(c);
    if (!c->gone && (status < 0 || events & (UV_READABLE | UV_DISCONNECT)))
        transport_read(c);
}

static inline void transport_writable(void *arg, int status, int events)
{
    transport_flush(arg);
}

static inline void transport_supervised(void *arg, struct json_object *facts)
{
    ((struct transport *)arg)->facts = json_object_get(facts);
}

static inline void transport_more(void *arg)
{
    transport_look(arg);
}

static inline void transport_failed(void *arg, const struct error *why)
{
    struct transport *c = arg;
    c->failure = *why;
    kill(c->pid, SIGKILL);
}

/* ---- the environment ---- */

static inline int transport_open_sandbox(struct environment *env, const struct sandbox_spec *spec,
    const struct sandbox_events *events, void *arg, struct sandbox **out, struct error *err)
{
    return remote_open_sandbox(transport_of(env)->remote, spec, events, arg, out, err);
}

static inline enum isolation transport_isolation(const struct sandbox *s)
{
    return ISOLATION_PROCESS;
}

static inline void transport_free(struct environment *env)
{
    struct transport *c = transport_of(env);
    c->gone = true;
    watch_free(c->out_watch);
    if (c->in_watch != c->out_watch)
        watch_free(c->in_watch);
    timer_free(c->rejoin);
    remote_free(c->remote);
    fair_reading_close(c->fair_reading);
    if (c->in != c->out)
        close(c->out);
    close(c->in);
    if (c->pid > 0) {
        /* Its input has ended: so does it. */
        for (int i = 0; i < 2000 && waitpid(c->pid, NULL, WNOHANG) == 0; i++)
            usleep(5000);
        kill(c->pid, SIGKILL);
        waitpid(c->pid, NULL, 0);
    }
    fifo_free(&c->to_write);
    json_object_put(c->facts);
    free(c);
}

static inline const struct environment_ops *transport_ops(void)
{
    static const struct environment_ops ops = {
        .name = "transport",
        .traits = TRAIT_SIGNAL | TRAIT_LATE,
        .open = transport_open_sandbox,
        .send = remote_send,
        .unread = remote_unread,
        .hold = remote_hold_channel,
        .begin_operation = remote_begin_operation,
        .charge = remote_charge,
        .interrupt = remote_interrupt,
        .kill = remote_kill,
        .drain = remote_drain,
        .isolation = transport_isolation,
        .is_cut = remote_is_cut,
        .usage = remote_usage,
        .close = remote_close_sandbox,
        .free = transport_free,
    };
    return &ops;
}

/* ---- its process ---- */

static inline void transport_become(const char *python, char *const argv[], int in, int out)
{
    int errors = open("/dev/null", O_WRONLY);
    if (in >= 0) {
        dup2(in, 0);
        dup2(out, 1);
        if (!getenv("DROSTE_TEST_LOUD"))
            dup2(errors, 2);
    }
    for (int fd = 3; fd < 256; fd++)
        close(fd);
    signal(SIGPIPE, SIG_DFL);
    execvp(python, argv);
    _exit(127);
}

static inline void transport_spawn(struct transport *c, char *const argv[])
{
    int to[2], from[2];
    if (c->options.boot.form == LINK_TEXT) {
        c->pid = forkpty(&c->in, NULL, NULL, NULL);
        assert_true(c->pid >= 0);
        if (c->pid == 0)
            transport_become(argv[0], argv, -1, -1);
        c->out = c->in;
        fcntl(c->in, F_SETFD, FD_CLOEXEC);
    } else {
        assert_true(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
        c->pid = fork();
        assert_true(c->pid >= 0);
        if (c->pid == 0)
            transport_become(argv[0], argv, to[0], from[1]);
        close(to[0]);
        close(from[1]);
        c->in = to[1];
        c->out = from[0];
    }
    fcntl(c->in, F_SETFL, O_NONBLOCK);
    fcntl(c->out, F_SETFL, O_NONBLOCK);
    signal(SIGPIPE,
        SIG_IGN); /* its process may end while it is written to; real transports have sockets */
}

static inline void transport_watch(struct transport *c)
{
    c->out_watch = watch_new(c->base.loop, c->out, transport_ready, c);
    c->in_watch =
        c->in == c->out ? c->out_watch : watch_new(c->base.loop, c->in, transport_writable, c);
    transport_look(c);
}

/* With the program and the arguments before `-u -c LOADER` (NULL: DROSTE_TEST_PYTHON, or
 * python3). */
static inline void transport_open(struct loop *loop, const struct remote_options *options,
    const char *const *program, struct environment **out)
{
    static const struct remote_events events = { transport_write, transport_supervised,
        transport_failed, transport_more };
    static const char *const usual[] = { NULL };
    const char *argv[16] = { getenv("DROSTE_TEST_PYTHON") };
    size_t argc = 1;
    if (!argv[0])
        argv[0] = "python3";
    if (program && program[0])
        argv[0] = program[0];
    for (const char *const *p = program && program[0] ? program + 1 : usual; *p; p++)
        argv[argc++] = *p;
    argv[argc++] = "-u";
    argv[argc++] = "-c";
    argv[argc++] = remote_loader();
    struct transport *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->base = (struct environment_base){ transport_ops(), loop };
    c->options = *options;
    c->rejoin = timer_new(loop, transport_join, c);
    assert_ok(fair_reading_open(loop, &c->fair_reading, err));
    c->options.fair_reading = c->fair_reading;
    assert_ok(remote_open(loop, &c->options, &events, c, &c->remote, err));
    transport_spawn(c, (char *const *)(uintptr_t)argv);
    transport_watch(c);
    remote_connected(c->remote);
    *out = (struct environment *)c;
}
