/* base/os/process.c: starts a program, feeds it, watches its streams and its pidfd. */
#include "base/os/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/os/spawn.h"
#include "base/text.h"

#define TAIL_LIMIT ((size_t)2048)

enum { PIECE = 4096 };

/* ---- its end ---- */

void process_init(struct process *p)
{
    *p = (struct process){ .in = -1, .out = -1, .complaints = -1, .pidfd = -1 };
}

void process_forget(struct process *p)
{
    struct watch **watches[] = { &p->in_watch, &p->out_watch, &p->complaints_watch,
        &p->exit_watch };
    int *ends[] = { &p->in, &p->out, &p->complaints, &p->pidfd };
    for (size_t i = 0; i < array_length(watches); i++) {
        if (*watches[i])
            watch_free(*watches[i]);
        *watches[i] = NULL;
        close_fd(ends[i]);
    }
    buf_clear(&p->to_send);
    p->sent = 0;
}

int process_end(struct process *p, int ask_ms)
{
    struct pollfd gone = { .fd = p->pidfd, .events = POLLIN };
    close_fd(&p->in);
    if (ask_ms > 0 && kill(-p->pid, SIGTERM) == 0)
        (void)poll(&gone, 1, ask_ms);
    int status = spawn_end(p->pid);
    p->pid = 0;
    return status;
}

void process_last_words(const struct process *p, char out[PROCESS_WORDS_SIZE])
{
    cleanup_buf struct buf seen = { 0 };
    text_append_last_line(&seen, buf_text(&p->tail), p->tail.len);
    size_t n = text_utf8_floor(buf_text(&seen), seen.len, PROCESS_WORDS_SIZE - 1);
    snprintf(out, PROCESS_WORDS_SIZE, "%.*s", (int)n, buf_text(&seen));
}

void process_read_complaints(struct process *p)
{
    char bytes[PIECE];
    ssize_t n = -1;
    while (p->complaints >= 0 && (n = read(p->complaints, bytes, sizeof bytes)) > 0) {
        buf_append(&p->tail, bytes, (size_t)n);
        if (p->tail.len > TAIL_LIMIT)
            buf_consume(&p->tail, p->tail.len - TAIL_LIMIT);
    }
    if (n == 0 && p->complaints_watch)
        watch_events(p->complaints_watch, 0);
}

/* ---- its beginning ---- */

static void complaints_ready(void *arg, int status, int events)
{
    process_read_complaints(arg);
}

static void input_ready(void *arg, int status, int events)
{
    struct process *p = arg;
    while (p->sent < p->to_send.len) {
        ssize_t n = send(p->in, p->to_send.data + p->sent, p->to_send.len - p->sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0) { /* it is ending, which its output or its pidfd will report */
            watch_events(p->in_watch, 0);
            return;
        }
        p->sent += (size_t)n;
    }
    buf_clear(&p->to_send);
    p->sent = 0;
    watch_events(p->in_watch, 0);
    if (p->close_when_sent) {
        watch_free(steal(&p->in_watch));
        close_fd(&p->in);
    }
}

int process_send(struct process *p)
{
    return p->in_watch ? watch_events(p->in_watch, UV_WRITABLE) : -1;
}

void process_send_now(struct process *p)
{
    if (p->in_watch)
        input_ready(p, 0, UV_WRITABLE);
}

static bool watch_ends(
    struct process *p, struct loop *loop, watch_fn *output, watch_fn *ended, void *arg)
{
    p->in_watch = watch_new(loop, p->in, input_ready, p);
    p->out_watch = watch_new(loop, p->out, output, arg);
    p->exit_watch = watch_new(loop, p->pidfd, ended, arg);
    if (!p->aloud)
        p->complaints_watch = watch_new(loop, p->complaints, complaints_ready, p);
    bool heard =
        p->aloud || (p->complaints_watch && watch_events(p->complaints_watch, UV_READABLE) == 0);
    return heard && p->in_watch && p->out_watch && p->exit_watch &&
           watch_events(p->out_watch, UV_READABLE) == 0 &&
           watch_events(p->exit_watch, UV_READABLE) == 0;
}

static int spawn_with_words(
    struct process *p, const char *path, const char *what, const int ends[3], struct error *err)
{
    size_t count = 0;
    while (p->words && p->words[count])
        count++;
    cleanup_free const char **words = calloc(count + 2, sizeof *words);
    if (!words)
        return error_memory(err);
    words[0] = path;
    for (size_t i = 0; i < count; i++)
        words[i + 1] = p->words[i];
    return spawn_program_in(words, p->environment, what, ends, &p->pid, err);
}

int process_start(struct process *p, struct loop *loop, const char *path, const char *what,
    watch_fn *output, watch_fn *ended, void *arg, struct error *err)
{
    int in[2] = { -1, -1 }, out[2] = { -1, -1 }, complaints[2] = { -1, -1 };
    int rc = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
        (!p->aloud && pipe2(complaints, O_CLOEXEC) < 0))
        rc = error_set_errno(err, ERROR_IO, "creating pipes for %.60s%.100s", what, path);
    const int ends[] = { in[1], out[1], p->aloud ? STDERR_FILENO : complaints[1] };
    if (rc == 0)
        rc = spawn_with_words(p, path, what, ends, err);
    close_fd(&in[1]);
    close_fd(&out[1]);
    close_fd(&complaints[1]);
    p->in = in[0];
    p->out = out[0];
    p->complaints = complaints[0];
    if (rc == 0) {
        buf_clear(&p->tail);
        const int ours[] = { p->in, p->out, p->complaints };
        for (size_t i = 0; i < array_length(ours) - p->aloud; i++)
            fcntl(ours[i], F_SETFL, O_NONBLOCK);
        p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
        if (p->pidfd < 0 || !watch_ends(p, loop, output, ended, arg)) {
            rc = error_set_errno(err, ERROR_IO, "watching %.60s%.100s", what, path);
            process_end(p, 0);
        }
    }
    if (rc < 0)
        process_forget(p);
    return rc;
}

void process_free(struct process *p)
{
    process_forget(p);
    buf_free(&p->to_send);
    buf_free(&p->tail);
}
