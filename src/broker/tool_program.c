/* broker/tool_program.c: runs a user's program as a tool (--tool NAME=PROGRAM).
 *
 * Each call starts the program with one line of JSON, {"arguments": {…}}, on standard input,
 * followed by end of file. It must write one JSON value to standard output and exit with status 0.
 * It has the user's rights and environment, and its input was written by a model. A limited number
 * runs concurrently; other calls wait in order. Cancelling a call, or its deadline, kills the
 * program and its children.
 *
 * PROGRAM.json beside it may describe it: {"description": …, "parameters": a JSON schema}.
 */
#include "broker/tool_program.h"

#include <string.h>
#include <sys/queue.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/file.h"
#include "base/os/process.h"
#include "base/text.h"
#include "broker/tool_call.h"
#include "broker/tools.h"

#define OUTPUT_LIMIT ((size_t)64 << 20)
#define READ_SIZE    65536

enum { AT_ONCE = 8, DESCRIPTION_MAX = 1 << 20, WORDS_MAX = 1500 };

struct started {
    TAILQ_ENTRY(started) link;
    struct tool_program *tool;
    struct tool_call *call;
    struct process process;
    struct buf input, output;
};

struct tool_program {
    struct loop *loop;
    char *path, *name;
    unsigned running;
    bool beginning;
    TAILQ_HEAD(, started) all; /* in order of the calls */
};

static void free_started(struct started *s)
{
    struct tool_program *t = s->tool;
    TAILQ_REMOVE(&t->all, s, link);
    if (s->process.pid > 0) {
        process_end(&s->process, 0);
        t->running--;
    }
    process_free(&s->process);
    buf_free(&s->input);
    buf_free(&s->output);
    free(s);
}

/* ---- the end of a call ---- */

static void begin_waiting(struct tool_program *t);

/* Ends a call; without a `failure` (NULL), the output is the answer. */
static void tool_program_finish(struct started *s, const char *failure)
{
    struct tool_program *t = s->tool;
    struct tool_call *call = s->call;
    struct buf output = s->output;
    s->output = (struct buf){ 0 };
    free_started(s);
    if (failure)
        tool_call_fail(call, "RuntimeError", failure);
    else
        tool_call_answer(call, buf_text(&output), output.len);
    buf_free(&output);
    begin_waiting(t);
}

/* Describes the exit status and the end of standard error. */
static void tool_program_explain(const struct started *s, int status, struct buf *out)
{
    const struct buf *tail = &s->process.tail;
    size_t from = tail->len > WORDS_MAX ? tail->len - WORDS_MAX : 0, len = tail->len;
    while (len > from && strchr(" \t\r\n", tail->data[len - 1]))
        len--;
    buf_printf(out, "%s ", s->tool->name);
    if (WIFSIGNALED(status))
        buf_printf(out, "was ended by signal %d", WTERMSIG(status));
    else
        buf_printf(out, "ended with exit status %d", WEXITSTATUS(status));
    buf_puts(out, len > from ? ": " : "");
    text_append_visible(out, buf_text(tail) + from, len - from);
}

/* Reads pending output; returns false if there is too much. */
static bool tool_program_read_output(struct started *s)
{
    ssize_t n = 1;
    while (n > 0) {
        if (s->output.len > OUTPUT_LIMIT || !buf_reserve(&s->output, READ_SIZE))
            return false;
        n = read(s->process.out, s->output.data + s->output.len, READ_SIZE);
        s->output.len += n > 0 ? (size_t)n : 0;
        s->output.data[s->output.len] = '\0';
    }
    if (n == 0)
        watch_events(s->process.out_watch, 0);
    return true;
}

static void fail_large(struct started *s)
{
    char text[200];
    snprintf(text, sizeof text, "%s wrote more than %zu MiB", s->tool->name, OUTPUT_LIMIT >> 20);
    tool_program_finish(s, text);
}

static void tool_program_output_ready(void *arg, int status, int events)
{
    if (!tool_program_read_output(arg))
        fail_large(arg);
}

static void tool_program_program_ended(void *arg, int status, int events)
{
    struct started *s = arg;
    cleanup_buf struct buf why = { 0 };
    if (!tool_program_read_output(s)) {
        fail_large(s);
        return;
    }
    process_read_complaints(&s->process);
    int how = process_end(&s->process, 0);
    s->tool->running--;
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        tool_program_explain(s, how, &why);
    tool_program_finish(s, why.len > 0 ? buf_text(&why) : NULL);
}

/* ---- the start of a call ---- */

static void tool_program_begin(struct started *s)
{
    struct tool_program *t = s->tool;
    struct error err = { 0 };
    int rc = process_start(&s->process, t->loop, t->path, "the tool ", tool_program_output_ready,
        tool_program_program_ended, s, &err);
    t->running += rc == 0;
    s->process.close_when_sent = true;
    if (rc == 0) {
        buf_free(&s->process.to_send);
        s->process.to_send = s->input;
        s->input = (struct buf){ 0 };
        rc = process_send(&s->process);
    }
    if (rc < 0)
        tool_program_finish(s, err.code ? err.text : "its input could not be written");
}

static struct started *tool_program_first_waiting(struct tool_program *t)
{
    struct started *s;
    TAILQ_FOREACH(s, &t->all, link)
    if (s->process.pid == 0)
        return s;
    return NULL;
}

/* Calls that cannot start end at once and come back here, so one loop is enough. */
static void begin_waiting(struct tool_program *t)
{
    struct started *s;
    if (t->beginning)
        return;
    t->beginning = true;
    while (t->running < AT_ONCE && (s = tool_program_first_waiting(t)))
        tool_program_begin(s);
    t->beginning = false;
}

static void tool_program_on_cancel(void *arg, struct tool_call *call)
{
    tool_program_finish(arg, "the answer is no longer awaited");
}

static void call_program(void *arg, struct tool_call *call, const char *json, size_t len)
{
    struct tool_program *t = arg;
    struct started *s = calloc(1, sizeof *s);
    if (!s) {
        tool_call_fail(call, "MemoryError", "the host is out of memory");
        return;
    }
    s->tool = t;
    s->call = call;
    process_init(&s->process);
    TAILQ_INSERT_TAIL(&t->all, s, link);
    buf_puts(&s->input, "{\"arguments\":");
    buf_append(&s->input, json, len);
    buf_puts(&s->input, "}\n");
    for (size_t i = 0; i + 1 < s->input.len; i++)
        if (s->input.data[i] == '\n' || s->input.data[i] == '\r')
            s->input.data[i] = ' '; /* outside of strings, where newlines cannot occur */
    tool_call_on_cancel(call, tool_program_on_cancel, s);
    if (buf_failed(&s->input))
        tool_program_finish(s, "the host is out of memory");
    else
        begin_waiting(t);
}

/* ---- the tool ---- */

static void tool_program_release(void *arg)
{
    struct tool_program *t = arg;
    struct started *s, *next;
    for (s = TAILQ_FIRST(&t->all); s; s = next) {
        next = TAILQ_NEXT(s, link);
        free_started(s);
    }
    free(t->path);
    free(t->name);
    free(t);
}

/* Reads PROGRAM.json, if it exists. */
static int read_description(const char *path, struct json_object **out, struct error *err)
{
    cleanup_buf struct buf file = { 0 }, text = { 0 };
    buf_printf(&file, "%s.json", path);
    if (!strchr(path, '/') || access(buf_text(&file), R_OK) < 0)
        return 0;
    int rc = file_read(buf_text(&file), DESCRIPTION_MAX, &text, err);
    if (rc == 0)
        rc = json_parse(buf_text(&text), text.len, &json_limits_small, out, err);
    if (rc == 0 && !json_object_is_type(*out, json_type_object))
        rc = error_set(err, ERROR_CONFIG, "it is not an object");
    return rc < 0 ? error_wrap(err, "reading %.120s", buf_text(&file)) : 0;
}

static int check_program(const char *path, struct error *err)
{
    if (!strchr(path, '/') || access(path, X_OK) == 0)
        return 0;
    return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_CONFIG,
        "the program %.120s could not be started", path);
}

int tools_add_program(
    struct tools *t, struct loop *loop, const char *name, const char *path, struct error *err)
{
    cleanup_json struct json_object *about = NULL;
    int rc = check_program(path, err);
    if (rc == 0)
        rc = read_description(path, &about, err);
    if (rc < 0)
        return error_wrap(err, "tool '%.64s'", name);
    struct tool_program *p = calloc(1, sizeof *p);
    if (!p)
        return error_memory(err);
    *p = (struct tool_program){ .loop = loop, .path = strdup(path), .name = strdup(name) };
    TAILQ_INIT(&p->all);
    struct json_object *parameters = NULL;
    json_object_object_get_ex(about, "parameters", &parameters);
    struct tool_spec spec = { .name = name,
        .description = json_get_string(about, "description", NULL),
        .parameters = parameters ? json_text(parameters, NULL) : NULL,
        .fn = call_program,
        .arg = p,
        .release = tool_program_release };
    if (p->path && p->name)
        return tools_add(t, &spec, err);
    tool_program_release(p);
    return error_memory(err);
}
