/* serve/sandbox/exchange.c: see exchange.h. */
#include "serve/sandbox/exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "serve/sandbox/sandbox.h"

static const droste_error lost = { .code = DROSTE_ERROR_LOST, .text = "the sandbox has ended" };

static void exchange_free(struct exchange *x)
{
    struct sandbox *sb = sandbox_find(x->server, x->id);
    if (sb) {
        sb->transfers--;
        sb->used_ns = clock_ns();
    }
    if (x->pid > 0)
        trace_command_end(&x->command, x->pid, NULL);
    free(x->owned_input);
    free(x);
}

static void exchange_fail(struct exchange *x, const droste_error *err)
{
    struct request *r = x->r;
    if (!r)
        return;
    x->r->sys = err->sys;
    if (x->fail)
        x->fail(x, err);
    else if (r->streaming)
        request_cut(r);
    else if (err->sys == ESRCH)
        request_refuse(r, 404, "not_found", "%s", err->text);
    else if (err->sys == EBADF || err->sys == EPIPE || err->sys == ENOTTY)
        request_refuse(r, 409, "conflict", "%s", err->text);
    else if (err->sys == EAGAIN || err->sys == EMFILE)
        request_refuse(r, 429, "busy", "%s", err->text);
    else if (err->sys && err->code != DROSTE_ERROR_LOST)
        request_refuse(r, 400, "command", "%s", err->text);
    else
        request_fail(r, err);
}

bool exchange_ask(
    struct exchange *x, const droste_command_request *request, droste_command_fn *done)
{
    struct sandbox *sb = sandbox_find(x->server, x->id);
    droste_error err = lost;
    if (sb && droste_command_start(sb->session, request, done, x, &err) == 0) {
        x->pending++;
        return true;
    }
    exchange_fail(x, &err);
    return false;
}

bool exchange_ask_file(struct exchange *x, const droste_file_request *request, droste_file_fn *done)
{
    struct sandbox *sb = sandbox_find(x->server, x->id);
    droste_error err = lost;
    x->of_file = true;
    if (sb && droste_file_start(sb->session, request, done, x, &err) == 0) {
        x->pending++;
        return true;
    }
    exchange_fail(x, &err);
    return false;
}

static void exchange_detach(struct exchange *x)
{
    const droste_command_request request = { .op = "detach", .handle = x->handle };
    x->attached = false;
    (void)exchange_ask(x, &request, exchange_on_done);
}

/* The request has ended. Output that was asked for may never come, and the command must not wait
 * for this reader: its handle goes at once. That of a file goes after what is under way. */
static void exchange_leave(struct exchange *x)
{
    if (x->attached && !x->of_file)
        exchange_detach(x);
    else if (x->attached && x->pending == 0)
        exchange_close_file(x);
    if (x->pending == 0)
        exchange_free(x);
}

bool exchange_is_over(struct exchange *x, const droste_error *err)
{
    x->pending--;
    if (!x->r) {
        exchange_leave(x);
        return true;
    }
    if (err)
        exchange_fail(x, err);
    return err != NULL;
}

bool exchange_is_over_opened(
    struct exchange *x, const droste_file_reply *reply, const droste_error *err)
{
    x->attached = !err;
    x->handle = reply ? reply->handle : 0;
    return exchange_is_over(x, err);
}

void exchange_on_free(struct request *r)
{
    struct exchange *x = r->state;
    x->r = NULL;
    exchange_leave(x);
}

struct exchange *exchange_new(struct request *r)
{
    struct sandbox *sb = sandbox_of(r);
    struct exchange *x = sb ? request_alloc(r, sizeof *x) : NULL;
    if (!x)
        return NULL;
    x->server = r->server;
    x->r = r;
    memcpy(x->id, r->id, sizeof x->id);
    sb->transfers++;
    r->state = x;
    r->on_free = exchange_on_free;
    return x;
}

void exchange_on_done(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (!exchange_is_over(x, err))
        x->done(x);
}

void exchange_on_file_done(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (!exchange_is_over(x, err))
        x->done(x);
}

void exchange_close_file(struct exchange *x)
{
    const droste_file_request request = { .op = "close", .handle = x->handle };
    x->attached = false;
    (void)exchange_ask_file(x, &request, exchange_on_file_done);
}

/* ---- input ---- */

static void exchange_on_written(
    void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (!exchange_is_over(x, err))
        exchange_write(x);
}

void exchange_write(struct exchange *x)
{
    size_t left = x->len - x->sent;
    size_t len = left < DROSTE_COMMAND_PIECE ? left : DROSTE_COMMAND_PIECE;
    bool is_last = len == left;
    const droste_command_request request = { .op = "input",
        .handle = x->handle,
        .flags = is_last && x->eof ? DROSTE_COMMAND_EOF : 0,
        .data = x->input + x->sent,
        .len = len };
    x->sent += len;
    (void)exchange_ask(x, &request, is_last ? exchange_on_done : exchange_on_written);
}

/* ---- start, attach ---- */

static void exchange_on_handle(
    void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (!err) {
        x->attached = true;
        x->handle = reply->handle;
        x->pid = reply->pid;
    }
    if (!exchange_is_over(x, err))
        x->next(x);
}

void exchange_open(struct exchange *x, const droste_command_request *request)
{
    struct sandbox *sb = sandbox_find(x->server, x->id);
    if (sb && request->argv && request->argv[0])
        trace_step_begin(&x->command, sb, x->r, request->argv[0]);
    (void)exchange_ask(x, request, exchange_on_handle);
}

/* The words of a list, or of an object as "name=value"; NULL without memory, or with a NUL. */
static char **exchange_words(struct json_object *o, size_t *count)
{
    struct json_object_iterator at, end;
    bool is_list = json_object_is_type(o, json_type_array);
    *count = !o ? 0 : is_list ? json_object_array_length(o) : (size_t)json_object_object_length(o);
    char **words = calloc(*count + 1, sizeof *words);
    if (!words || !o)
        return words;
    if (!is_list) {
        at = json_object_iter_begin(o);
        end = json_object_iter_end(o);
    }
    for (size_t i = 0; i < *count; i++) {
        struct json_object *word =
            is_list ? json_object_array_get_idx(o, i) : json_object_iter_peek_value(&at);
        const char *text = json_object_get_string(word);
        words[i] =
            is_list ? strdup(text) : text_printf("%s=%s", json_object_iter_peek_name(&at), text);
        if (!is_list && !json_object_iter_equal(&at, &end))
            json_object_iter_next(&at);
    }
    return words;
}

static void exchange_free_words(char **words, size_t count)
{
    for (size_t i = 0; words && i < count; i++)
        free(words[i]);
    free(words);
}

static int exchange_flags(struct json_object *o)
{
    static const struct {
        const char *name;
        int flag;
    } rows[] = { { "stdin", DROSTE_COMMAND_STDIN }, { "merge", DROSTE_COMMAND_MERGE },
        { "drain", DROSTE_COMMAND_DRAIN } };
    int flags = 0;
    for (size_t i = 0; i < array_length(rows); i++)
        flags |= json_get_bool(o, rows[i].name, false) ? rows[i].flag : 0;
    return flags;
}

void exchange_start(struct exchange *x, struct json_object *o)
{
    struct json_object *command = NULL;
    struct json_object *terminal = json_get_typed(o, "terminal", json_type_object);
    const char *shell[] = { "/bin/sh", "-c", NULL, NULL };
    const droste_error no_memory = { .code = DROSTE_ERROR_MEMORY, .text = "out of memory" };
    size_t argc = 0, envc = 0;
    json_object_object_get_ex(o, "command", &command);
    bool is_text = json_object_is_type(command, json_type_string);
    shell[2] = is_text ? json_object_get_string(command) : NULL;
    char **argv = exchange_words(is_text ? NULL : command, &argc);
    char **env = exchange_words(json_get_typed(o, "env", json_type_object), &envc);
    const droste_command_request request = { .op = "start",
        .argv = is_text ? shell : (const char *const *)argv,
        .env = (const char *const *)env,
        .cwd = json_get_string(o, "cwd", NULL),
        .user = json_get_string(o, "user", NULL),
        .tag = json_get_string(o, "tag", NULL),
        .flags = exchange_flags(o) | (terminal ? DROSTE_COMMAND_TERMINAL : 0),
        .columns = (unsigned)json_get_int(terminal, "columns", 0),
        .rows = (unsigned)json_get_int(terminal, "rows", 0),
        .timeout_ms = (uint64_t)(json_get_double(o, "timeout_seconds", 0) * 1000) };
    if (argv && env)
        exchange_open(x, &request);
    else
        exchange_fail(x, &no_memory);
    exchange_free_words(argv, argc);
    exchange_free_words(env, envc);
}

enum { PIDS_MOST = 1 << 22 }; /* of Linux; more may be a tag */

void exchange_attach(struct exchange *x, const char *name, int flags)
{
    int64_t number = strtoll(name, NULL, 10);
    bool is_pid = name[strspn(name, "0123456789")] == '\0' && number > 0 && number <= PIDS_MOST;
    const droste_command_request request = {
        .op = "attach", .flags = flags, .tag = is_pid ? NULL : name, .pid = is_pid ? number : 0
    };
    exchange_open(x, &request);
}
