/* lm/program.c: a model that is a program of the user's, `exec:PROGRAM`.
 *
 * It is started by the first call and serves all of them: a request is one line of JSON on its
 * standard input, an answer one line on its standard output, in any order (docs/configuration.md).
 * One that ends, or says what is no answer, takes the calls in flight with it, each with an error
 * that tells its last words; the next call starts it anew. One that ended well (status 0) had not
 * begun with the calls that it leaves open, which are tried again. It leads a process group, which
 * is killed with it.
 *
 * Its input is a socket, because writing to a pipe whose reader is gone is a signal. Ends of calls
 * run the caller's code, which may close everything: `depth` counts our frames on the stack, and
 * the last one frees a program that was closed.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/spawn.h"
#include "base/text.h"
#include "lm/client.h"
#include "lm/record.h"

#define LINE_LIMIT ((size_t)64 << 20)
#define TAIL_LIMIT ((size_t)2048)
#define READ_SIZE  65536

enum { WORDS_MOST = 100, FAREWELL_MS = 200 };

/* A call that the program has. */
struct asked {
    TAILQ_ENTRY(asked) link;
    struct lm_call *call;
    uint64_t id;
    unsigned life; /* which start of the program's was asked */
};

struct program {
    struct loop *loop;
    char *path;
    pid_t pid; /* 0: it does not run */
    int in, out, complaints, pidfd;
    struct watch *in_watch, *out_watch, *complaints_watch, *exit_watch;
    struct buf to_send; /* requests; those before `sent` left */
    size_t sent;
    struct buf line; /* of its output, so far */
    struct buf tail; /* of its complaints */
    TAILQ_HEAD(, asked) flight;
    uint64_t next_id;
    unsigned life, depth;
    bool closed;
};

static void program_free(struct program *p)
{
    buf_free(&p->to_send);
    buf_free(&p->line);
    buf_free(&p->tail);
    free(p->path);
    free(p);
}

static void program_enter(struct program *p)
{
    p->depth++;
}

static void program_leave(struct program *p)
{
    if (--p->depth == 0 && p->closed)
        program_free(p);
}

/* ---- its life ---- */

static void forget_ends(struct program *p)
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
    buf_clear(&p->line);
    p->sent = 0;
}

/* Ends the process and its group, and says how it ended (as waitpid). `ask_ms`: how long it may
 * take to go by itself. */
static int end_process(struct program *p, int ask_ms)
{
    struct pollfd gone = { .fd = p->pidfd, .events = POLLIN };
    int status;
    close_fd(&p->in);
    if (ask_ms > 0 && kill(-p->pid, SIGTERM) == 0)
        (void)poll(&gone, 1, ask_ms);
    status = spawn_end(p->pid);
    p->pid = 0;
    return status;
}

/* The last words of its complaints, visible and on one line. */
static void last_words(const struct program *p, char out[WORDS_MOST + 3])
{
    cleanup_buf struct buf seen = { 0 };
    const char *text = buf_text(&p->tail);
    size_t len = p->tail.len;
    while (len > 0 && strchr(" \t\r\n", text[len - 1]))
        len--;
    const char *newline = len > 0 ? memrchr(text, '\n', len) : NULL;
    size_t from = newline ? (size_t)(newline + 1 - text) : 0;
    text_append_visible(&seen, text + from, len - from);
    size_t n = text_utf8_floor(buf_text(&seen), seen.len, WORDS_MOST);
    snprintf(out, WORDS_MOST + 3, "%s%.*s", n ? ": " : "", (int)n, buf_text(&seen));
}

static void program_read_complaints(struct program *p)
{
    char bytes[READ_SIZE / 16];
    ssize_t n;
    while ((n = read(p->complaints, bytes, sizeof bytes)) > 0) {
        buf_append(&p->tail, bytes, (size_t)n);
        if (p->tail.len > TAIL_LIMIT)
            buf_consume(&p->tail, p->tail.len - TAIL_LIMIT);
    }
    if (n == 0 && p->complaints_watch)
        watch_events(p->complaints_watch, 0);
}

static void asked_done(struct program *p, struct asked *asked, const struct lm_outcome *outcome)
{
    struct lm_call *call = asked->call;
    TAILQ_REMOVE(&p->flight, asked, link);
    asked->call = NULL;
    lm_attempt_done(call, outcome);
}

/* The calls that this life of the program's had. */
static void fail_all(struct program *p, unsigned life, const struct error *why, bool again)
{
    struct asked *asked = TAILQ_FIRST(&p->flight);
    while (asked && !p->closed) {
        if (asked->life != life) {
            asked = TAILQ_NEXT(asked, link);
            continue;
        }
        struct lm_outcome outcome = { .error = *why, .retry = again };
        if (!again)
            outcome.usage = lm_usage_estimate(asked->call, 0);
        asked_done(p, asked, &outcome);
        asked = TAILQ_FIRST(&p->flight); /* whatever the caller did meanwhile */
    }
}

/* It ended by itself, or said what is no answer (`why`, which is NULL else). */
static void program_died(struct program *p, const struct error *why)
{
    struct error err = { 0 };
    char words[WORDS_MOST + 3];
    if (p->complaints >= 0)
        program_read_complaints(p);
    int status = end_process(p, 0);
    last_words(p, words);
    forget_ends(p);
    if (why)
        err = *why;
    else if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        error_set(&err, ERROR_MODEL_SERVER, "exec:%.80s was ended by signal %d%s", p->path,
            WTERMSIG(status), words);
    else
        error_set(&err, ERROR_MODEL_SERVER, "exec:%.80s ended (exit status %d) with calls open%s",
            p->path, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), words);
    fail_all(p, p->life, &err, !why && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- its answers ---- */

static struct asked *find_asked(struct program *p, int64_t id)
{
    struct asked *asked;
    TAILQ_FOREACH(asked, &p->flight, link)
    if (asked->id == (uint64_t)id && asked->life == p->life)
        return asked;
    return NULL;
}

/* "error": a text, or an object with a message and one of the codes of a recording. */
static void take_error(const struct program *p, struct json_object *error, struct error *out)
{
    cleanup_buf struct buf seen = { 0 };
    const char *text = json_object_is_type(error, json_type_string)
                           ? json_object_get_string(error)
                           : json_get_string(error, "message", "it did not say why");
    enum error_code code = error_code_named(json_get_string(error, "code", ""), ERROR_MODEL);
    text_append_visible(&seen, text, strlen(text));
    size_t n = text_utf8_floor(buf_text(&seen), seen.len, WORDS_MOST);
    error_set(out, error_is_model(code) ? code : ERROR_MODEL, "exec:%.80s: %.*s", p->path, (int)n,
        buf_text(&seen));
}

static void take_usage(
    struct lm_outcome *outcome, const struct lm_call *call, struct json_object *usage)
{
    outcome->usage = lm_usage_estimate(call, outcome->len);
    if (!usage)
        return;
    outcome->usage = (struct lm_usage){
        .input_tokens = json_get_int(usage, "input_tokens", 0),
        .output_tokens = json_get_int(usage, "output_tokens", 0),
        .cached_tokens = json_get_int(usage, "cached_tokens", 0),
    };
}

static int wrong_line(
    const struct program *p, const char *what, const char *line, size_t len, struct error *err)
{
    cleanup_buf struct buf seen = { 0 };
    text_append_visible(&seen, line, len < 200 ? len : 200);
    size_t n = text_utf8_floor(buf_text(&seen), seen.len, 60);
    return error_set(err, ERROR_MODEL_REPLY, "exec:%.80s wrote a line that %s: %.*s", p->path, what,
        (int)n, buf_text(&seen));
}

/* One line; the end of a call runs the caller's code. Negative: it is no answer. */
static int take_line(struct program *p, const char *line, size_t len, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    struct json_object *error = NULL, *text = NULL;
    if (json_parse(line, len, &json_limits_large, &o, NULL) < 0 ||
        !json_object_is_type(o, json_type_object))
        return wrong_line(p, "is no JSON object", line, len, err);
    int64_t id = json_get_int(o, "id", -1);
    if (id < 0 || (uint64_t)id >= p->next_id)
        return wrong_line(p, "answers no request (its id)", line, len, err);
    json_object_object_get_ex(o, "error", &error);
    json_object_object_get_ex(o, "text", &text);
    if (!error && !json_object_is_type(text, json_type_string))
        return wrong_line(p, "has neither a text nor an error", line, len, err);
    struct asked *asked = find_asked(p, id);
    if (!asked)
        return 0; /* it was cancelled */
    struct lm_outcome outcome = { .finish = json_get_string(o, "finish", "stop") };
    if (error) {
        take_error(p, error, &outcome.error);
        outcome.finish = "";
    } else {
        outcome.text = json_object_get_string(text);
        outcome.len = (size_t)json_object_get_string_len(text);
    }
    take_usage(&outcome, asked->call, json_get_typed(o, "usage", json_type_object));
    asked_done(p, asked, &outcome);
    return 0;
}

/* All whole lines. A life that a caller ended meanwhile has no more of them. */
static int take_lines(struct program *p, struct error *err)
{
    unsigned life = p->life;
    cleanup_buf struct buf lines = { 0 };
    const char *end = p->line.len ? memrchr(p->line.data, '\n', p->line.len) : NULL;
    if (!end)
        return 0;
    buf_append(&lines, p->line.data, (size_t)(end + 1 - p->line.data));
    buf_consume(&p->line, lines.len);
    if (buf_failed(&lines))
        return error_memory(err);
    const char *at = lines.data, *stop = lines.data + lines.len;
    while (at < stop && !p->closed && p->pid > 0 && p->life == life) {
        const char *newline = memchr(at, '\n', (size_t)(stop - at));
        size_t len = (size_t)(newline - at);
        int rc = strspn(at, " \t\r") < len ? take_line(p, at, len, err) : 0;
        if (rc < 0)
            return rc;
        at = newline + 1;
    }
    return 0;
}

/* Reads what is there; true if more may come. */
static bool read_output(struct program *p, struct error *err)
{
    size_t before = p->line.len;
    if (!buf_reserve(&p->line, READ_SIZE)) {
        error_memory(err);
        return false;
    }
    ssize_t n = read(p->out, p->line.data + before, READ_SIZE);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    p->line.len += (size_t)n;
    p->line.data[p->line.len] = '\0';
    if (n == 0)
        return false;
    if (memchr(p->line.data + before, '\n', (size_t)n))
        return take_lines(p, err) == 0;
    if (p->line.len > LINE_LIMIT) {
        error_set(err, ERROR_MODEL_REPLY, "exec:%.80s wrote a line of over %zu bytes", p->path,
            LINE_LIMIT);
        return false;
    }
    return true;
}

static void output_ready(void *arg, int status, int events)
{
    struct program *p = arg;
    struct error err = { 0 };
    unsigned life = p->life;
    program_enter(p);
    if (!read_output(p, &err) && !p->closed && p->pid > 0 && p->life == life)
        program_died(p, err.code == ERROR_NONE ? NULL : &err);
    program_leave(p);
}

static void complaints_ready(void *arg, int status, int events)
{
    program_read_complaints(arg);
}

/* Its last answers may still be in the pipe. */
static void process_ended(void *arg, int status, int events)
{
    struct program *p = arg;
    struct error err = { 0 };
    struct pollfd more = { .fd = p->out, .events = POLLIN };
    unsigned life = p->life;
    program_enter(p);
    while (!p->closed && p->pid > 0 && p->life == life && poll(&more, 1, 0) > 0 &&
           (more.revents & POLLIN) && read_output(p, &err))
        ;
    if (!p->closed && p->pid > 0 && p->life == life)
        program_died(p, err.code == ERROR_NONE ? NULL : &err);
    program_leave(p);
}

/* ---- requests ---- */

static void input_ready(void *arg, int status, int events)
{
    struct program *p = arg;
    while (p->sent < p->to_send.len) {
        ssize_t n = send(p->in, p->to_send.data + p->sent, p->to_send.len - p->sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0) { /* it is going: its end is told by its output or its process */
            watch_events(p->in_watch, 0);
            return;
        }
        p->sent += (size_t)n;
    }
    buf_clear(&p->to_send);
    p->sent = 0;
    watch_events(p->in_watch, 0);
}

static bool watch_ends(struct program *p)
{
    p->in_watch = watch_new(p->loop, p->in, input_ready, p);
    p->out_watch = watch_new(p->loop, p->out, output_ready, p);
    p->complaints_watch = watch_new(p->loop, p->complaints, complaints_ready, p);
    p->exit_watch = watch_new(p->loop, p->pidfd, process_ended, p);
    return p->in_watch && p->out_watch && p->complaints_watch && p->exit_watch &&
           watch_events(p->out_watch, UV_READABLE) == 0 &&
           watch_events(p->complaints_watch, UV_READABLE) == 0 &&
           watch_events(p->exit_watch, UV_READABLE) == 0;
}

static int program_start(struct program *p, struct error *err)
{
    int in[2] = { -1, -1 }, out[2] = { -1, -1 }, complaints[2] = { -1, -1 };
    int rc = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
        pipe2(complaints, O_CLOEXEC) < 0)
        rc = error_set_errno(err, ERROR_IO, "making pipes for exec:%.100s", p->path);
    if (rc == 0)
        rc = spawn_program(p->path,
            "the model exec:", (const int[]){ in[1], out[1], complaints[1] }, &p->pid, err);
    close_fd(&in[1]);
    close_fd(&out[1]);
    close_fd(&complaints[1]);
    p->in = in[0];
    p->out = out[0];
    p->complaints = complaints[0];
    if (rc == 0) {
        p->life++;
        buf_clear(&p->tail);
        for (int i = 0; i < 3; i++)
            fcntl((const int[]){ p->in, p->out, p->complaints }[i], F_SETFL, O_NONBLOCK);
        p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
        if (p->pidfd < 0 || !watch_ends(p)) {
            rc = error_set_errno(err, ERROR_IO, "watching exec:%.100s", p->path);
            end_process(p, 0);
        }
    }
    if (rc < 0)
        forget_ends(p);
    return rc;
}

static int send_request(
    struct program *p, struct lm_call *call, struct asked *asked, struct error *err)
{
    const struct lm_request *r = &call->request;
    struct buf *b = &p->to_send;
    buf_printf(b, "{\"id\":%llu,", (unsigned long long)asked->id);
    buf_append(b, call->body.data + 1, call->head_len - 1); /* without its '{' */
    if (r->max_tokens > 0)
        buf_printf(b, ",\"max_tokens\":%lld", (long long)r->max_tokens);
    if (r->temperature >= 0) {
        buf_puts(b, ",\"temperature\":");
        record_append_number(b, r->temperature);
    }
    buf_puts(b, "}\n");
    if (buf_failed(b))
        return error_memory(err);
    return watch_events(p->in_watch, UV_WRITABLE) < 0
               ? error_set(err, ERROR_IO, "writing to exec:%.100s", p->path)
               : 0;
}

static void program_attempt(struct lm_call *call)
{
    struct program *p = call->client;
    struct asked *asked = call->own;
    struct lm_outcome outcome = { 0 };
    int rc = p->pid > 0 ? 0 : program_start(p, &outcome.error);
    if (rc == 0) {
        asked->id = p->next_id++;
        asked->life = p->life;
        rc = send_request(p, call, asked, &outcome.error);
    }
    if (rc < 0) {
        lm_attempt_done(call, &outcome);
        return;
    }
    asked->call = call;
    TAILQ_INSERT_TAIL(&p->flight, asked, link);
}

static struct lm_usage program_abort(struct lm_call *call)
{
    struct program *p = call->client;
    struct asked *asked = call->own;
    if (asked->call)
        TAILQ_REMOVE(&p->flight, asked, link);
    asked->call = NULL;
    return lm_usage_estimate(call, 0);
}

static int program_prepare(
    struct lm_call *call, const struct lm_request *request, struct error *err)
{
    call->own = calloc(1, sizeof(struct asked));
    return call->own ? 0 : error_memory(err);
}

static void program_release(struct lm_call *call)
{
    free(call->own);
}

static void program_describe(const void *client, struct buf *out)
{
    buf_puts(out, "a program");
}

static void program_close(void *client)
{
    struct program *p = client;
    program_enter(p);
    if (p->pid > 0)
        end_process(p, FAREWELL_MS);
    forget_ends(p);
    p->closed = true;
    program_leave(p);
}

static int program_open(struct loop *loop, const struct lm_options *options, const char *model,
    void **client, struct error *err)
{
    if (strchr(model, '/') && access(model, X_OK) < 0)
        return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_CONFIG,
            "the model exec:%.100s cannot be run", model);
    struct program *p = calloc(1, sizeof *p);
    if (!p || !(p->path = strdup(model))) {
        free(p);
        return error_memory(err);
    }
    p->loop = loop;
    p->in = p->out = p->complaints = p->pidfd = -1;
    TAILQ_INIT(&p->flight);
    *client = p;
    return 0;
}

const struct lm_client_ops lm_program = {
    .needs_body = true,
    .open = program_open,
    .close = program_close,
    .describe = program_describe,
    .prepare = program_prepare,
    .release = program_release,
    .attempt = program_attempt,
    .abort = program_abort,
};
