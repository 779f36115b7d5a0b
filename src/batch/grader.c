/* batch/grader.c: see grader.h. */
#include "batch/grader.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/spawn.h"
#include "base/text.h"

enum { SAID_MAX = 65536, SHOWN_MAX = 80 };

enum end { END_IN, END_OUT, END_PROCESS, END_COUNT };

struct grading {
    grading_done_fn *done;
    void *arg;
    pid_t pid;
    int fds[END_COUNT];
    struct watch *watches[END_COUNT];
    struct timer *deadline;
    double timeout;
    struct buf line, said;
    size_t sent;
};

static void close_end(struct grading *g, enum end e)
{
    if (g->watches[e])
        watch_free(g->watches[e]);
    g->watches[e] = NULL;
    close_fd(&g->fds[e]);
}

/* How the program ended, as waitpid says it. */
static int finish(struct grading *g)
{
    int status = g->pid > 0 ? spawn_end(g->pid) : 0;
    g->pid = 0;
    for (enum end e = 0; e < END_COUNT; e++)
        close_end(g, e);
    timer_free(g->deadline);
    g->deadline = NULL;
    return status;
}

static void free_grading(struct grading *g)
{
    buf_free(&g->line);
    buf_free(&g->said);
    free(g);
}

void grading_cancel(struct grading *g)
{
    if (!g)
        return;
    finish(g);
    free_grading(g);
}

/* ---- what it said ---- */

static bool take_words(struct grading *g, struct grade *grade)
{
    cleanup_json struct json_object *o = NULL;
    struct json_object *passed = NULL, *score = NULL;
    if (json_parse(buf_text(&g->said), g->said.len, &json_limits_small, &o, NULL) < 0 ||
        !json_object_is_type(o, json_type_object) ||
        !json_object_object_get_ex(o, "passed", &passed) ||
        !json_object_is_type(passed, json_type_boolean))
        return false;
    grade->known = true;
    grade->passed = json_object_get_boolean(passed);
    grade->score = grade->passed;
    if (json_object_object_get_ex(o, "score", &score) &&
        (json_object_is_type(score, json_type_double) || json_object_is_type(score, json_type_int)))
        grade->score = json_object_get_double(score);
    return true;
}

/* Words that are no grade, and a status that is none. */
static void explain(const struct grading *g, int status, struct grade *grade)
{
    cleanup_buf struct buf shown = { 0 };
    size_t n = g->said.len < SHOWN_MAX ? g->said.len : SHOWN_MAX;
    if (WIFSIGNALED(status)) {
        snprintf(
            grade->why, sizeof grade->why, "the grader was ended by signal %d", WTERMSIG(status));
        return;
    }
    if (WEXITSTATUS(status) > 1) {
        snprintf(
            grade->why, sizeof grade->why, "the grader ended with status %d", WEXITSTATUS(status));
        return;
    }
    text_append_visible(&shown, buf_text(&g->said), n);
    n = text_utf8_floor(buf_text(&shown), shown.len, SHOWN_MAX);
    snprintf(grade->why, sizeof grade->why, "the grader said what is no grade: %.*s", (int)n,
        buf_text(&shown));
}

static void end(struct grading *g, struct grade *grade)
{
    grading_done_fn *done = g->done;
    void *arg = g->arg;
    free_grading(g);
    done(arg, grade);
}

static void read_words(struct grading *g)
{
    char bytes[4096];
    ssize_t n;
    while ((n = read(g->fds[END_OUT], bytes, sizeof bytes)) > 0)
        if (g->said.len < SAID_MAX)
            buf_append(&g->said, bytes, (size_t)n);
    if (n == 0)
        close_end(g, END_OUT);
}

static void said(void *arg, int status, int events)
{
    read_words(arg);
}

static void process_ended(void *arg, int watch_status, int events)
{
    struct grading *g = arg;
    struct grade grade = { 0 };
    if (g->fds[END_OUT] >= 0)
        read_words(g);
    int status = finish(g);
    bool words = g->said.len > 0;
    bool fine = WIFEXITED(status) && WEXITSTATUS(status) <= 1;
    if (!fine || (words && !take_words(g, &grade))) {
        explain(g, status, &grade);
    } else if (!words) {
        grade.known = true;
        grade.passed = WEXITSTATUS(status) == 0;
        grade.score = grade.passed;
    }
    end(g, &grade);
}

static void too_late(void *arg)
{
    struct grading *g = arg;
    struct grade grade = { 0 };
    finish(g);
    snprintf(grade.why, sizeof grade.why, "the grader took more than %g s", g->timeout);
    end(g, &grade);
}

/* ---- what it is told ---- */

static void can_write(void *arg, int status, int events)
{
    struct grading *g = arg;
    while (g->sent < g->line.len) {
        ssize_t n =
            send(g->fds[END_IN], g->line.data + g->sent, g->line.len - g->sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0) /* it does not read: its end says the rest */
            break;
        g->sent += (size_t)n;
    }
    close_end(g, END_IN);
}

static bool watch_ends(struct grading *g, struct loop *loop)
{
    static watch_fn *const fns[END_COUNT] = { can_write, said, process_ended };
    g->deadline = timer_new(loop, too_late, g);
    if (!g->deadline)
        return false;
    for (enum end e = 0; e < END_COUNT; e++) {
        if (e != END_PROCESS)
            fcntl(g->fds[e], F_SETFL, O_NONBLOCK);
        g->watches[e] = watch_new(loop, g->fds[e], fns[e], g);
        if (!g->watches[e] ||
            watch_events(g->watches[e], e == END_IN ? UV_WRITABLE : UV_READABLE) < 0)
            return false;
    }
    timer_start(g->deadline, (uint64_t)(g->timeout * 1000), 0);
    return true;
}

/* Its complaints go where ours go. */
static int start(struct grading *g, struct loop *loop, const char *program, struct error *err)
{
    int in[2] = { -1, -1 }, out[2] = { -1, -1 };
    int rc = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) < 0 || pipe2(out, O_CLOEXEC) < 0)
        rc = error_set_errno(err, ERROR_IO, "making pipes for the grader %.100s", program);
    if (rc == 0)
        rc = spawn_program(
            program, "the grader ", (const int[]){ in[1], out[1], STDERR_FILENO }, &g->pid, err);
    close_fd(&in[1]);
    close_fd(&out[1]);
    g->fds[END_IN] = in[0];
    g->fds[END_OUT] = out[0];
    if (rc < 0)
        return rc;
    g->fds[END_PROCESS] = (int)syscall(SYS_pidfd_open, g->pid, 0);
    if (g->fds[END_PROCESS] < 0 || !watch_ends(g, loop))
        return error_set_errno(err, ERROR_IO, "watching the grader %.100s", program);
    return 0;
}

int grading_start(struct loop *loop, const char *program, double timeout, const char *line,
    size_t len, grading_done_fn *done, void *arg, struct grading **out, struct error *err)
{
    struct grading *g = calloc(1, sizeof *g);
    if (!g)
        return error_memory(err);
    *g = (struct grading){ .done = done, .arg = arg, .timeout = timeout, .fds = { -1, -1, -1 } };
    buf_append(&g->line, line, len);
    buf_putc(&g->line, '\n');
    int rc = buf_failed(&g->line) ? error_memory(err) : start(g, loop, program, err);
    if (rc < 0) {
        grading_cancel(g);
        return rc;
    }
    *out = g;
    return 0;
}
