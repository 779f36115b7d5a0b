/* lm/program.c: models that are users' programs, `exec:PROGRAM`.
 *
 * The first call starts the program, which serves all of them: a request is one line of JSON on its
 * standard input, an answer one line on its standard output, in any order (docs/configuration.md).
 * If it ends or writes an invalid answer, the calls in flight fail with its last words, and the
 * next call restarts it. If it ended with status 0, it had not begun its open calls, which are
 * tried again.
 *
 * Ends of calls run the caller's code, which may close everything: `depth` counts our frames on the
 * stack, and the last one frees a program that was closed.
 */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json/json.h"
#include "base/os/process.h"
#include "base/text.h"
#include "lm/client.h"

#define LINE_LIMIT ((size_t)64 << 20)
#define READ_SIZE  65536

enum { WORDS_MOST = 1600, FAREWELL_MS = 200 };

/* A call in progress. */
struct asked {
    TAILQ_ENTRY(asked) link;
    struct lm_call *call;
    uint64_t id;
    unsigned life; /* which start of the program received it */
};

struct program {
    struct loop *loop;
    char *path;
    struct process process;
    struct buf line; /* its incomplete line of output */
    TAILQ_HEAD(, asked) flight;
    uint64_t next_id;
    unsigned life, depth;
    bool closed;
};

static void program_free(struct program *p)
{
    process_free(&p->process);
    buf_free(&p->line);
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

static void program_forget(struct program *p)
{
    process_forget(&p->process);
    buf_clear(&p->line);
}

static void asked_done(struct program *p, struct asked *asked, const struct lm_outcome *outcome)
{
    struct lm_call *call = asked->call;
    TAILQ_REMOVE(&p->flight, asked, link);
    asked->call = NULL;
    lm_attempt_done(call, outcome);
}

/* Fails the calls of this start of the program. */
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
        asked = TAILQ_FIRST(&p->flight); /* the caller may have changed the list meanwhile */
    }
}

/* It ended by itself, or wrote an invalid answer (`why`; NULL otherwise). */
static void program_died(struct program *p, const struct error *why)
{
    struct error err = { 0 };
    char words[PROCESS_WORDS_SIZE];
    process_read_complaints(&p->process);
    int status = process_end(&p->process, 0);
    process_last_words(&p->process, words);
    program_forget(p);
    if (why)
        err = *why;
    else if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        error_set(&err, ERROR_MODEL_SERVER, "exec:%.80s was ended by signal %d%s", p->path,
            WTERMSIG(status), words);
    else
        error_set(&err, ERROR_MODEL_SERVER,
            "exec:%.80s ended (exit status %d) before it answered "
            "all calls%s",
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

/* "error": a text, or an object with a message and an error code of recordings. */
static void program_take_error(
    const struct program *p, struct json_object *error, struct error *out)
{
    cleanup_buf struct buf seen = { 0 };
    const char *text = json_object_is_type(error, json_type_string)
                           ? json_object_get_string(error)
                           : json_get_string(error, "message", "it gave no reason");
    enum error_code code = error_code_named(json_get_string(error, "code", ""), ERROR_MODEL);
    text_append_visible(&seen, text, strlen(text));
    size_t n = text_utf8_floor(buf_text(&seen), seen.len, WORDS_MOST);
    error_set(out, error_is_model(code) ? code : ERROR_MODEL, "exec:%.80s: %.*s%s", p->path, (int)n,
        buf_text(&seen), n < seen.len ? "…" : "");
}

static void program_take_usage(
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

static int program_wrong_line(
    const struct program *p, const char *what, const char *line, size_t len, struct error *err)
{
    cleanup_buf struct buf seen = { 0 };
    text_append_visible(&seen, line, len < 200 ? len : 200);
    size_t n = text_utf8_floor(buf_text(&seen), seen.len, 60);
    return error_set(err, ERROR_MODEL_REPLY, "exec:%.80s wrote a line that %s: %.*s", p->path, what,
        (int)n, buf_text(&seen));
}

/* Processes one line, which may run the caller's code. Negative: not a valid answer. */
static int program_take_line(struct program *p, const char *line, size_t len, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    struct json_object *error = NULL, *text = NULL;
    if (json_parse(line, len, &json_limits_large, &o, NULL) < 0 ||
        !json_object_is_type(o, json_type_object))
        return program_wrong_line(p, "is not a JSON object", line, len, err);
    int64_t id = json_get_int(o, "id", -1);
    if (id < 0 || (uint64_t)id >= p->next_id)
        return program_wrong_line(p, "has an id that belongs to no request", line, len, err);
    json_object_object_get_ex(o, "error", &error);
    json_object_object_get_ex(o, "text", &text);
    if (!error && !json_object_is_type(text, json_type_string))
        return program_wrong_line(p, "has neither a text nor an error", line, len, err);
    struct asked *asked = find_asked(p, id);
    if (!asked)
        return 0; /* it was cancelled */
    struct lm_outcome outcome = { .finish = json_get_string(o, "finish", "stop") };
    if (error) {
        program_take_error(p, error, &outcome.error);
        outcome.finish = "";
    } else {
        outcome.text = json_object_get_string(text);
        outcome.len = (size_t)json_object_get_string_len(text);
    }
    program_take_usage(&outcome, asked->call, json_get_typed(o, "usage", json_type_object));
    asked_done(p, asked, &outcome);
    return 0;
}

/* Processes the complete lines, until the caller ends the program. */
static int program_take_lines(struct program *p, struct error *err)
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
    while (at < stop && !p->closed && p->process.pid > 0 && p->life == life) {
        const char *newline = memchr(at, '\n', (size_t)(stop - at));
        size_t len = (size_t)(newline - at);
        int rc = strspn(at, " \t\r") < len ? program_take_line(p, at, len, err) : 0;
        if (rc < 0)
            return rc;
        at = newline + 1;
    }
    return 0;
}

/* Reads what is available; true if more may come. */
static bool program_read_output(struct program *p, struct error *err)
{
    size_t before = p->line.len;
    if (!buf_reserve(&p->line, READ_SIZE)) {
        error_memory(err);
        return false;
    }
    ssize_t n = read(p->process.out, p->line.data + before, READ_SIZE);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    p->line.len += (size_t)n;
    p->line.data[p->line.len] = '\0';
    if (n == 0)
        return false;
    if (memchr(p->line.data + before, '\n', (size_t)n))
        return program_take_lines(p, err) == 0;
    if (p->line.len > LINE_LIMIT) {
        error_set(err, ERROR_MODEL_REPLY, "exec:%.80s wrote a line of more than %zu bytes", p->path,
            LINE_LIMIT);
        return false;
    }
    return true;
}

static void program_output_ready(void *arg, int status, int events)
{
    struct program *p = arg;
    struct error err = { 0 };
    unsigned life = p->life;
    program_enter(p);
    if (!program_read_output(p, &err) && !p->closed && p->process.pid > 0 && p->life == life)
        program_died(p, err.code == ERROR_NONE ? NULL : &err);
    program_leave(p);
}

/* Its last answers may still be in the pipe. */
static void program_process_ended(void *arg, int status, int events)
{
    struct program *p = arg;
    struct error err = { 0 };
    struct pollfd more = { .fd = p->process.out, .events = POLLIN };
    unsigned life = p->life;
    program_enter(p);
    while (!p->closed && p->process.pid > 0 && p->life == life && poll(&more, 1, 0) > 0 &&
           (more.revents & POLLIN) && program_read_output(p, &err))
        ;
    if (!p->closed && p->process.pid > 0 && p->life == life)
        program_died(p, err.code == ERROR_NONE ? NULL : &err);
    program_leave(p);
}

/* ---- requests ---- */

static int program_start(struct program *p, struct error *err)
{
    int rc = process_start(&p->process, p->loop, p->path, "the model exec:", program_output_ready,
        program_process_ended, p, err);
    p->life += rc == 0;
    return rc;
}

static int send_request(
    struct program *p, struct lm_call *call, struct asked *asked, struct error *err)
{
    const struct lm_request *r = &call->request;
    struct buf *b = &p->process.to_send;
    buf_printf(b, "{\"id\":%llu,", (unsigned long long)asked->id);
    buf_append(b, call->body.data + 1, call->head_len - 1); /* without its '{' */
    if (r->max_tokens > 0)
        buf_printf(b, ",\"max_tokens\":%lld", (long long)r->max_tokens);
    if (r->temperature >= 0) {
        buf_puts(b, ",\"temperature\":");
        json_append_number(b, r->temperature);
    }
    buf_puts(b, r->sampling);
    buf_puts(b, "}\n");
    if (buf_failed(b))
        return error_memory(err);
    return process_send(&p->process) < 0
               ? error_set(err, ERROR_IO, "writing to exec:%.100s", p->path)
               : 0;
}

static void program_attempt(struct lm_call *call)
{
    struct program *p = call->client;
    struct asked *asked = call->own;
    struct lm_outcome outcome = { 0 };
    int rc = p->process.pid > 0 ? 0 : program_start(p, &outcome.error);
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
    if (p->process.pid > 0)
        process_end(&p->process, FAREWELL_MS);
    program_forget(p);
    p->closed = true;
    program_leave(p);
}

static int program_open(struct loop *loop, const struct lm_options *options, const char *model,
    void **client, struct error *err)
{
    if (strchr(model, '/') && access(model, X_OK) < 0)
        return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_CONFIG,
            "the model exec:%.100s could not be started", model);
    struct program *p = calloc(1, sizeof *p);
    if (!p || !(p->path = strdup(model))) {
        free(p);
        return error_memory(err);
    }
    p->loop = loop;
    process_init(&p->process);
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
