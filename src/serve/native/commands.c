/* serve/native/commands.c: the routes for commands in a sandbox, which run beside its cells. */
#include <string.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "serve/sandbox/cell_events.h"
#include "serve/sandbox/exchange.h"
#include "serve/native/native.h"

enum { COMMAND_STREAM_PIECE = 64 << 10 };

/* ---- a stream of events ---- */

static void command_push_output(
    struct request *r, const char *stream, const char *bytes, size_t len)
{
    cleanup_buf struct buf data = { 0 };
    if (len == 0)
        return;
    buf_printf(&data, "{\"stream\": \"%s\", \"data\": \"", stream);
    json_append_base64(&data, bytes, len);
    buf_puts(&data, "\"}");
    cell_event(r, "output", &data);
}

/* Why the stream is cut then. */
static void command_push_error(struct request *r, const char *text)
{
    cleanup_buf struct buf data = { 0 };
    buf_puts(&data, "{\"message\": ");
    json_append_string(&data, text, strlen(text));
    buf_puts(&data, "}");
    cell_event(r, "error", &data);
}

static void command_on_output(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    cleanup_buf struct buf end = { 0 };
    if (err && err->sys == ENOBUFS && x->r)
        command_push_error(x->r, err->text);
    if (exchange_is_over(x, err))
        return;
    command_push_output(x->r, "stdout", reply->out, reply->out_len);
    command_push_output(x->r, "stderr", reply->err, reply->err_len);
    if (!reply->ended)
        return; /* command_read_more, when the client has taken this */
    trace_command_end(&x->command, x->pid, reply);
    buf_printf(&end, "{\"exit_code\": %d, \"timed_out\": %s}", reply->status,
        reply->timed_out ? "true" : "false");
    cell_event(x->r, "end", &end);
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
    cell_event(x->r, "start", &data);
}

/* ---- start ---- */

static void command_reply_pid(struct exchange *x)
{
    cleanup_buf struct buf out = { 0 };
    buf_printf(&out, "{\"pid\": %lld}", (long long)x->pid);
    request_reply_written(x->r, 201, &out);
}

void handle_command_start(struct request *r)
{
    struct exchange *x = exchange_new(r);
    if (!x)
        return;
    x->next = json_get_bool(r->json, "stream", false) ? command_stream : command_reply_pid;
    exchange_start(x, r->json);
}

/* ---- one that runs ---- */

static void command_reply_done(struct exchange *x)
{
    request_reply(x->r, 204, NULL, NULL, 0);
}

/* Attaches to the command that the path names by its process id or tag. */
static void command_attach(
    struct request *r, struct exchange *x, int flags, void (*next)(struct exchange *x))
{
    if (!x)
        return;
    x->next = next;
    x->done = command_reply_done;
    exchange_attach(x, r->name, flags);
}

void handle_command_output(struct request *r)
{
    command_attach(r, exchange_new(r), 0, command_stream);
}

void handle_command_input(struct request *r)
{
    const char *eof = request_query(r, "eof", "no");
    struct exchange *x = eof ? exchange_new(r) : NULL;
    if (x) {
        x->eof = strcmp(eof, "yes") == 0;
        x->input = buf_text(&r->body);
        x->len = r->body.len;
    }
    command_attach(r, x, DROSTE_COMMAND_QUIET, exchange_write);
}

static void command_send_signal(struct exchange *x)
{
    struct json_object *o = x->r->json;
    const droste_command_request request = { .op = "signal",
        .handle = x->handle,
        .flags = json_get_bool(o, "group", true) ? 0 : DROSTE_COMMAND_ALONE,
        .signal = (int)json_get_int(o, "signal", 0) };
    (void)exchange_ask(x, &request, exchange_on_done);
}

void handle_command_signal(struct request *r)
{
    command_attach(r, exchange_new(r), DROSTE_COMMAND_QUIET, command_send_signal);
}

static void command_set_size(struct exchange *x)
{
    const droste_command_request request = { .op = "resize",
        .handle = x->handle,
        .columns = (unsigned)json_get_int(x->r->json, "columns", 0),
        .rows = (unsigned)json_get_int(x->r->json, "rows", 0) };
    (void)exchange_ask(x, &request, exchange_on_done);
}

void handle_command_resize(struct request *r)
{
    command_attach(r, exchange_new(r), DROSTE_COMMAND_QUIET, command_set_size);
}

/* ---- list ---- */

static void command_put(struct buf *out, const droste_command_info *c)
{
    const struct {
        const char *name, *text;
    } texts[] = { { "tag", c->tag }, { "user", c->user }, { "cwd", c->cwd } };
    field_open(out, NULL, '{');
    field_int(out, "pid", c->pid);
    for (size_t i = 0; i < array_length(texts); i++)
        if (texts[i].text[0])
            field_string(out, texts[i].name, texts[i].text);
    field_strings(out, "argv", c->argv);
    field_strings(out, "env", c->env);
    field_bool(out, "cut", c->cut);
    field_bool(out, "terminal", c->terminal);
    field_bool(out, "running", !c->ended);
    if (c->ended) {
        field_int(out, "exit_code", c->status);
        field_bool(out, "timed_out", c->timed_out);
    }
    field_close(out, '}');
}

static void command_on_list(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    cleanup_buf struct buf out = { 0 };
    if (exchange_is_over(x, err))
        return;
    field_open(&out, NULL, '{');
    field_open(&out, "commands", '[');
    for (size_t i = 0; i < reply->count; i++)
        command_put(&out, &reply->commands[i]);
    field_close(&out, ']');
    field_close(&out, '}');
    request_reply_written(x->r, 200, &out);
}

void handle_command_list(struct request *r)
{
    struct exchange *x = exchange_new(r);
    if (x)
        (void)exchange_ask(x, &(droste_command_request){ .op = "list" }, command_on_list);
}
