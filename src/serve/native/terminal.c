/* serve/native/terminal.c: a terminal in a sandbox over a WebSocket.
 *
 * The first message says what is meant: the size, and a command to start (a shell if there is none)
 * or one to attach to. Then binary messages are what is typed and what is written, and text
 * messages are JSON: from the client a new size, from the server 'pid', 'exit_code' or 'error'.
 * Output is asked for when the client has taken what was sent; a client is not read from while what
 * it typed waits for the program. A client that leaves does not end the command.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/sandbox/exchange.h"
#include "serve/http/socket.h"
#include "serve/native/native.h"

enum { TERMINAL_PIECE = 32 << 10 };

struct terminal {
    struct web_socket socket;
    struct exchange *x;
    struct buf typed; /* and not written yet */
    size_t writing;   /* bytes of it, of the request under way */
    bool has_begun, reads;
    unsigned columns, rows; /* of one that is attached to */
};

static void terminal_say(struct terminal *t, struct json_object *o)
{
    size_t len = 0;
    const char *text = o ? json_text(o, &len) : NULL;
    if (text)
        socket_send(&t->socket, true, text, len);
    json_object_put(o);
}

static void terminal_say_number(struct terminal *t, const char *name, int64_t value)
{
    struct json_object *o = json_object_new_object();
    if (o && !json_put(o, name, json_object_new_int64(value))) {
        json_object_put(o);
        return;
    }
    terminal_say(t, o);
}

static void terminal_refuse(struct terminal *t, enum websocket_status status, const char *why)
{
    struct json_object *o = json_object_new_object();
    cleanup_buf struct buf valid = { 0 };
    text_append_utf8(&valid, why, strlen(why));
    if (o && json_put_text(o, "error", buf_text(&valid)))
        terminal_say(t, steal(&o));
    json_object_put(o);
    socket_close(&t->socket, status, buf_text(&valid));
}

static void terminal_fail(struct exchange *x, const droste_error *err)
{
    struct terminal *t = x->arg;
    terminal_refuse(t, WEBSOCKET_FAILED, err->text);
}

/* ---- output ---- */

static void terminal_on_output(
    void *arg, const droste_command_reply *reply, const droste_error *err);

static void terminal_read_more(struct terminal *t)
{
    const droste_command_request request = {
        .op = "output", .handle = t->x->handle, .length = TERMINAL_PIECE
    };
    if (t->reads || !t->x->attached || socket_unsent(&t->socket) > 0)
        return;
    t->reads = exchange_ask(t->x, &request, terminal_on_output);
}

static void terminal_on_output(
    void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    struct terminal *t = x->r ? x->arg : NULL;
    if (t)
        t->reads = false;
    if (exchange_is_over(x, err))
        return;
    if (reply->out_len > 0)
        socket_send(&t->socket, false, reply->out, reply->out_len);
    if (reply->err_len > 0)
        socket_send(&t->socket, false, reply->err, reply->err_len);
    if (!reply->ended) {
        terminal_read_more(t);
        return;
    }
    trace_command_end(&x->command, x->pid, reply);
    terminal_say_number(t, "exit_code", reply->status);
    socket_close(&t->socket, WEBSOCKET_NORMAL, "");
}

static void terminal_on_drained(void *arg)
{
    terminal_read_more(arg);
}

/* ---- input ---- */

static void terminal_on_written(
    void *arg, const droste_command_reply *reply, const droste_error *err);

static void terminal_write_more(struct terminal *t)
{
    size_t len = t->typed.len < TERMINAL_PIECE ? t->typed.len : TERMINAL_PIECE;
    const droste_command_request request = {
        .op = "input", .handle = t->x->handle, .data = buf_text(&t->typed), .len = len
    };
    socket_pause(&t->socket, t->typed.len > 0);
    if (t->writing || !t->x->attached || len == 0)
        return;
    t->writing = exchange_ask(t->x, &request, terminal_on_written) ? len : 0;
}

static void terminal_on_written(
    void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (exchange_is_over(x, err))
        return;
    struct terminal *t = x->arg;
    buf_consume(&t->typed, t->writing);
    t->writing = 0;
    terminal_write_more(t);
}

/* ---- messages ---- */

static void terminal_on_done(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    (void)exchange_is_over(arg, err);
}

static void terminal_set_size(struct terminal *t)
{
    const droste_command_request request = {
        .op = "resize", .handle = t->x->handle, .columns = t->columns, .rows = t->rows
    };
    if (t->x->attached)
        (void)exchange_ask(t->x, &request, terminal_on_done);
}

/* It has started, or was found. */
static void terminal_begin(struct exchange *x)
{
    struct terminal *t = x->arg;
    terminal_say_number(t, "pid", x->pid);
    terminal_set_size(t); /* it may have changed meanwhile, or be another client's */
    terminal_read_more(t);
    terminal_write_more(t);
}

static void terminal_start(struct terminal *t, struct json_object *o)
{
    static const char shell[] = "command -v bash >/dev/null && exec bash; exec sh";
    const char *attach = json_get_string(o, "attach", NULL);
    struct json_object *size = json_object_new_object(), *command = NULL;
    t->has_begun = true;
    t->x->next = terminal_begin;
    if (attach) {
        exchange_attach(t->x, attach, 0);
        return;
    }
    bool ok = size && json_put(size, "columns", json_object_new_int((int)t->columns)) &&
              json_put(size, "rows", json_object_new_int((int)t->rows)) &&
              json_put(o, "terminal", json_object_get(size));
    json_object_put(size);
    if (ok && !json_object_object_get_ex(o, "command", &command))
        ok = json_put_text(o, "command", shell);
    if (ok)
        exchange_start(t->x, o);
    else
        terminal_refuse(t, WEBSOCKET_FAILED, "out of memory");
}

static void terminal_take_text(struct terminal *t, const char *data, size_t len)
{
    cleanup_json struct json_object *o = NULL;
    struct error why = { 0 };
    const struct schema *schema = route_schema(t->x->server, t->x->r->route);
    if (json_parse(data, len, &json_limits_large, &o, &why) < 0 ||
        schema_check(schema, o, &why) < 0) {
        terminal_refuse(t, WEBSOCKET_POLICY, why.text);
        return;
    }
    t->columns = (unsigned)json_get_int(o, "columns", 0);
    t->rows = (unsigned)json_get_int(o, "rows", 0);
    if (!t->has_begun)
        terminal_start(t, o);
    else if (json_object_object_length(o) > 2)
        terminal_refuse(t, WEBSOCKET_POLICY, "after the first message, only the size may be set");
    else
        terminal_set_size(t);
}

static void terminal_on_message(void *arg, bool is_text, const char *data, size_t len)
{
    struct terminal *t = arg;
    if (is_text) {
        terminal_take_text(t, data, len);
        return;
    }
    if (!t->has_begun) {
        terminal_refuse(t, WEBSOCKET_POLICY, "the first message must be text: the size");
        return;
    }
    buf_append(&t->typed, data, len);
    if (buf_failed(&t->typed))
        terminal_refuse(t, WEBSOCKET_FAILED, "out of memory");
    else
        terminal_write_more(t);
}

/* ---- the request ---- */

/* The connection ends; the request is freed soon. */
static void terminal_on_closed(void *arg)
{
}

static void terminal_on_free(struct request *r)
{
    struct exchange *x = r->state;
    struct terminal *t = x->arg;
    exchange_on_free(r);
    buf_free(&t->typed);
    socket_free(&t->socket);
    free(t);
}

void handle_terminal(struct request *r)
{
    static const struct socket_events events = { terminal_on_message, terminal_on_drained,
        terminal_on_closed };
    struct exchange *x = exchange_new(r);
    struct terminal *t = x ? calloc(1, sizeof *t) : NULL;
    if (x && !t)
        request_refuse_memory(r);
    if (!t)
        return;
    t->x = x;
    x->arg = t;
    r->on_free = terminal_on_free;
    if (socket_accept(r, &t->socket, "droste.terminal", &events, t))
        x->fail = terminal_fail;
}
