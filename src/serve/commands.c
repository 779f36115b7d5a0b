/* serve/commands.c: the routes for commands in a sandbox, which run beside its cells.
 *
 * An exchange is what one request has to do with one command: it starts it or attaches to it, does
 * one thing or streams its output, and gives its handle up. It outlives its request while the
 * sandbox owes it a reply, and its sandbox is looked up by id, since either may end first. A client
 * that leaves does not end the command.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "serve/server.h"

enum { COMMAND_STREAM_PIECE = 64 << 10 };

struct exchange {
    struct server *server;
    struct request *r; /* NULL: it has ended */
    char id[SERVE_ID_SIZE];
    bool attached;
    unsigned pending; /* replies that the sandbox owes */
    uint64_t handle;
    int64_t pid;
    size_t sent; /* of the body, which is input */
    bool eof;    /* nothing follows it */
    void (*next)(struct exchange *x);
};

static void exchange_free(struct exchange *x)
{
    struct sandbox *sb = sandbox_find(x->server, x->id);
    if (sb) {
        sb->transfers--;
        sb->used_ns = clock_ns();
    }
    free(x);
}

static void exchange_fail(struct exchange *x, const droste_error *err)
{
    struct request *r = x->r;
    if (!r)
        return;
    if (r->streaming)
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

static bool exchange_ask(
    struct exchange *x, const droste_command_request *request, droste_command_fn *done)
{
    struct sandbox *sb = sandbox_find(x->server, x->id);
    droste_error err = { .code = DROSTE_ERROR_LOST, .text = "the sandbox has ended" };
    if (sb && droste_command_start(sb->session, request, done, x, &err) == 0) {
        x->pending++;
        return true;
    }
    exchange_fail(x, &err);
    return false;
}

static void exchange_on_detached(
    void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (--x->pending == 0)
        exchange_free(x);
}

/* The request has ended. Output that was asked for may never come, and the command must not wait
 * for this reader: the handle goes at once. */
static void exchange_leave(struct exchange *x)
{
    const droste_command_request request = { .op = "detach", .handle = x->handle };
    bool attached = x->attached;
    x->attached = false;
    if (attached)
        (void)exchange_ask(x, &request, exchange_on_detached);
    if (x->pending == 0)
        exchange_free(x);
}

/* After a reply. True: there is nothing more to do. */
static bool exchange_is_over(struct exchange *x, const droste_error *err)
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

static void exchange_on_free(struct request *r)
{
    struct exchange *x = r->state;
    x->r = NULL;
    exchange_leave(x);
}

static struct exchange *exchange_new(struct request *r)
{
    struct sandbox *sb = sandbox_of(r);
    struct exchange *x = sb ? calloc(1, sizeof *x) : NULL;
    if (sb && !x)
        request_refuse(r, 503, "memory", "out of memory");
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

/* ---- a stream of events ---- */

static void command_push(struct request *r, const char *name, const struct buf *data)
{
    cleanup_buf struct buf event = { 0 };
    buf_printf(&event, "event: %s\ndata: ", name);
    buf_append(&event, data->data, data->len);
    buf_puts(&event, "\n\n");
    request_push(r, buf_text(&event), event.len);
}

static void command_push_output(
    struct request *r, const char *stream, const char *bytes, size_t len)
{
    cleanup_buf struct buf data = { 0 };
    if (len == 0)
        return;
    buf_printf(&data, "{\"stream\": \"%s\", \"data\": \"", stream);
    json_append_base64(&data, bytes, len);
    buf_puts(&data, "\"}");
    command_push(r, "output", &data);
}

static void command_append_end(struct buf *out, int status, bool timed_out)
{
    buf_printf(out, "\"exit_code\": %d, \"timed_out\": %s", status, timed_out ? "true" : "false");
}

static void command_on_output(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    cleanup_buf struct buf end = { 0 };
    if (exchange_is_over(x, err))
        return;
    command_push_output(x->r, "stdout", reply->out, reply->out_len);
    command_push_output(x->r, "stderr", reply->err, reply->err_len);
    if (!reply->ended)
        return; /* command_read_more, when the client has taken this */
    buf_puts(&end, "{");
    command_append_end(&end, reply->status, reply->timed_out);
    buf_puts(&end, "}");
    command_push(x->r, "end", &end);
    request_end(x->r);
}

static void command_read_more(struct request *r)
{
    struct exchange *x = r->state;
    const droste_command_request request = {
        .op = "output", .handle = x->handle, .length = COMMAND_STREAM_PIECE
    };
    if (!x->pending && !r->ended)
        (void)exchange_ask(x, &request, command_on_output);
}

static void command_stream(struct exchange *x)
{
    cleanup_buf struct buf data = { 0 };
    x->r->on_drained = command_read_more;
    request_stream(x->r, "text/event-stream");
    buf_printf(&data, "{\"pid\": %lld}", (long long)x->pid);
    command_push(x->r, "start", &data);
}

/* ---- start ---- */

static void command_reply_pid(struct exchange *x)
{
    struct json_object *o = json_object_new_object();
    if (o && json_put(o, "pid", json_object_new_int64(x->pid))) {
        request_reply_json(x->r, 201, o);
        return;
    }
    json_object_put(o);
    request_refuse(x->r, 503, "memory", "out of memory");
}

static void command_on_handle(void *arg, const droste_command_reply *reply, const droste_error *err)
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

/* The words of a list, or of an object as "name=value"; NULL without memory, or with a NUL. */
static char **command_words(struct json_object *o, size_t *count)
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

static void command_free_words(char **words, size_t count)
{
    for (size_t i = 0; words && i < count; i++)
        free(words[i]);
    free(words);
}

static int command_flags(struct json_object *o)
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

void handle_command_start(struct request *r)
{
    struct json_object *command = NULL, *o = r->json;
    struct json_object *terminal = json_get_typed(o, "terminal", json_type_object);
    const char *shell[] = { "/bin/sh", "-c", NULL, NULL };
    size_t argc = 0, envc = 0;
    json_object_object_get_ex(o, "command", &command);
    bool is_text = json_object_is_type(command, json_type_string);
    struct exchange *x = exchange_new(r);
    if (!x)
        return;
    shell[2] = is_text ? json_object_get_string(command) : NULL;
    char **argv = command_words(is_text ? NULL : command, &argc);
    char **env = command_words(json_get_typed(o, "env", json_type_object), &envc);
    const droste_command_request request = { .op = "start",
        .argv = is_text ? shell : (const char *const *)argv,
        .env = (const char *const *)env,
        .cwd = json_get_string(o, "cwd", NULL),
        .user = json_get_string(o, "user", NULL),
        .tag = json_get_string(o, "tag", NULL),
        .flags = command_flags(o) | (terminal ? DROSTE_COMMAND_TERMINAL : 0),
        .columns = (unsigned)json_get_int(terminal, "columns", 0),
        .rows = (unsigned)json_get_int(terminal, "rows", 0),
        .timeout_ms = (uint64_t)(json_get_double(o, "timeout_seconds", 0) * 1000) };
    x->next = json_get_bool(o, "stream", false) ? command_stream : command_reply_pid;
    if (argv && env)
        (void)exchange_ask(x, &request, command_on_handle);
    else
        request_refuse(r, 503, "memory", "out of memory");
    command_free_words(argv, argc);
    command_free_words(env, envc);
}

/* ---- one that runs ---- */

/* Attaches to the command that the path names by its process id or tag. */
static struct exchange *command_attach(
    struct request *r, int flags, void (*next)(struct exchange *x))
{
    struct exchange *x = exchange_new(r);
    bool is_pid = r->name[strspn(r->name, "0123456789")] == '\0';
    if (!x)
        return NULL;
    const droste_command_request request = { .op = "attach",
        .flags = flags,
        .tag = is_pid ? NULL : r->name,
        .pid = is_pid ? strtoll(r->name, NULL, 10) : 0 };
    x->next = next;
    return exchange_ask(x, &request, command_on_handle) ? x : NULL;
}

void handle_command_output(struct request *r)
{
    (void)command_attach(r, 0, command_stream);
}

static void command_on_done(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (!exchange_is_over(x, err))
        request_reply(x->r, 204, NULL, NULL, 0);
}

static void command_on_written(
    void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (!exchange_is_over(x, err))
        x->next(x);
}

static void command_write_next(struct exchange *x)
{
    size_t left = x->r->body.len - x->sent;
    size_t len = left < DROSTE_COMMAND_PIECE ? left : DROSTE_COMMAND_PIECE;
    bool last = len == left;
    const droste_command_request request = { .op = "input",
        .handle = x->handle,
        .flags = last && x->eof ? DROSTE_COMMAND_EOF : 0,
        .data = buf_text(&x->r->body) + x->sent,
        .len = len };
    x->sent += len;
    (void)exchange_ask(x, &request, last ? command_on_done : command_on_written);
}

void handle_command_input(struct request *r)
{
    const char *eof = request_query(r, "eof", "no");
    struct exchange *x = eof ? command_attach(r, DROSTE_COMMAND_QUIET, command_write_next) : NULL;
    if (x)
        x->eof = strcmp(eof, "yes") == 0;
}

static void command_send_signal(struct exchange *x)
{
    struct json_object *o = x->r->json;
    const droste_command_request request = { .op = "signal",
        .handle = x->handle,
        .flags = json_get_bool(o, "group", true) ? 0 : DROSTE_COMMAND_ALONE,
        .signal = (int)json_get_int(o, "signal", 0) };
    (void)exchange_ask(x, &request, command_on_done);
}

void handle_command_signal(struct request *r)
{
    (void)command_attach(r, DROSTE_COMMAND_QUIET, command_send_signal);
}

static void command_set_size(struct exchange *x)
{
    const droste_command_request request = { .op = "resize",
        .handle = x->handle,
        .columns = (unsigned)json_get_int(x->r->json, "columns", 0),
        .rows = (unsigned)json_get_int(x->r->json, "rows", 0) };
    (void)exchange_ask(x, &request, command_on_done);
}

void handle_command_resize(struct request *r)
{
    (void)command_attach(r, DROSTE_COMMAND_QUIET, command_set_size);
}

/* ---- list ---- */

static bool command_put_words(struct json_object *o, const char *name, const char *const *words)
{
    struct json_object *list = json_object_new_array();
    for (; list && *words; words++) {
        cleanup_buf struct buf valid = { 0 };
        text_append_utf8(&valid, *words, strlen(*words));
        json_object_array_add(list, json_object_new_string(buf_text(&valid)));
    }
    return json_put(o, name, list);
}

static bool command_put_text(struct json_object *o, const char *name, const char *text)
{
    cleanup_buf struct buf valid = { 0 };
    text_append_utf8(&valid, text, strlen(text));
    return text[0] == '\0' || json_put_text(o, name, buf_text(&valid));
}

static struct json_object *command_json(const droste_command_info *c)
{
    struct json_object *o = json_object_new_object();
    bool ok = o && json_put(o, "pid", json_object_new_int64(c->pid)) &&
              command_put_text(o, "tag", c->tag) && command_put_text(o, "user", c->user) &&
              command_put_text(o, "cwd", c->cwd) && command_put_words(o, "argv", c->argv) &&
              json_put(o, "terminal", json_object_new_boolean(c->terminal)) &&
              json_put(o, "running", json_object_new_boolean(!c->ended));
    if (ok && c->ended)
        ok = json_put(o, "exit_code", json_object_new_int(c->status)) &&
             json_put(o, "timed_out", json_object_new_boolean(c->timed_out));
    if (ok)
        return o;
    json_object_put(o);
    return NULL;
}

static void command_on_list(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (exchange_is_over(x, err))
        return;
    struct json_object *o = json_object_new_object(), *list = json_object_new_array();
    for (size_t i = 0; list && i < reply->count; i++)
        json_object_array_add(list, command_json(&reply->commands[i]));
    if (o && json_put(o, "commands", list)) {
        request_reply_json(x->r, 200, o);
        return;
    }
    json_object_put(o);
    request_refuse(x->r, 503, "memory", "out of memory");
}

void handle_command_list(struct request *r)
{
    struct exchange *x = exchange_new(r);
    if (x)
        (void)exchange_ask(x, &(droste_command_request){ .op = "list" }, command_on_list);
}
