/* serve/jupyter/reply.c: replies to the requests of clients, with which they leave the queue. */
#include "serve/jupyter/reply.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/fields.h"

void jupyter_message_free(struct jupyter_message *m)
{
    if (!m)
        return;
    json_object_put(m->header);
    json_object_put(m->content);
    free(m);
}

void reply_send(
    struct jupyter_kernel *k, const struct jupyter_message *m, const struct buf *content)
{
    char type[sizeof m->type + 8];
    size_t len = strlen(m->type);
    if (len > 8 && strcmp(m->type + len - 8, "_request") == 0)
        len -= 8;
    snprintf(type, sizeof type, "%.*s_reply", (int)len, m->type);
    if (m->from)
        jupyter_send(k, m->from, m->channel, m, type, content);
}

void reply_pop(struct jupyter_kernel *k)
{
    struct jupyter_message *m = k->queue;
    k->queue = m->next;
    k->queue_bytes -= m->size;
    jupyter_message_free(m);
}

void reply_first(struct jupyter_kernel *k, const struct buf *content)
{
    reply_send(k, k->queue, content);
    jupyter_tell_status(k, k->queue, "idle");
    reply_pop(k);
}

void reply_first_text(struct jupyter_kernel *k, const char *json)
{
    cleanup_buf struct buf content = { 0 };
    buf_puts(&content, json);
    reply_first(k, &content);
}

void jupyter_forget(struct jupyter_kernel *k, const struct jupyter_channel *ch)
{
    for (struct jupyter_message *m = k->queue; m; m = m->next)
        if (m->from == ch)
            m->from = NULL;
    if (k->asking && k->queue && !k->queue->from)
        droste_tool_fail(steal(&k->asking), "EOFError", "the client that input() asked has left");
}

void reply_put_ok(struct jupyter_kernel *k, struct buf *content, const char *expressions)
{
    buf_putc(content, '{');
    field_string(content, "status", "ok");
    field_int(content, "execution_count", (int64_t)k->count);
    field_json(content, "payload", "[]");
    field_json(content, "user_expressions", expressions);
    buf_putc(content, '}');
}

static void reply_put_lines(struct buf *out, const char *text)
{
    field_open(out, "traceback", '[');
    while (text && *text) {
        size_t n = strcspn(text, "\n");
        field_text(out, NULL, text, n);
        text += n + (text[n] == '\n');
    }
    field_close(out, ']');
}

void reply_put_error(struct buf *out, const char *type, const char *message, const char *traceback)
{
    field_text(out, "ename", type, strlen(type));
    field_text(out, "evalue", message, strlen(message));
    reply_put_lines(out, traceback ? traceback : message);
}

static void reply_abort(struct jupyter_kernel *k, struct jupyter_message *m)
{
    cleanup_buf struct buf content = { 0 };
    buf_puts(&content, "{\"status\": \"aborted\"}");
    jupyter_tell_status(k, m, "busy");
    reply_send(k, m, &content);
    jupyter_tell_status(k, m, "idle");
}

/* The cells that wait behind one that failed do not run. */
static void reply_abort_cells(struct jupyter_kernel *k)
{
    struct jupyter_message **at = &k->queue;
    while (*at) {
        struct jupyter_message *m = *at;
        if (strcmp(m->type, "execute_request") != 0) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        k->queue_bytes -= m->size;
        reply_abort(k, m);
        jupyter_message_free(m);
    }
}

void reply_failed(
    struct jupyter_kernel *k, const char *type, const char *message, const char *traceback)
{
    cleanup_buf struct buf content = { 0 }, error = { 0 };
    bool stops = json_get_bool(k->queue->content, "stop_on_error", true);
    buf_putc(&error, '{');
    reply_put_error(&error, type, message, traceback);
    buf_putc(&error, '}');
    if (!k->is_silent)
        jupyter_publish(k, "error", &error);
    buf_putc(&content, '{');
    field_string(&content, "status", "error");
    field_int(&content, "execution_count", (int64_t)k->count);
    reply_put_error(&content, type, message, traceback);
    buf_putc(&content, '}');
    reply_first(k, &content);
    if (stops)
        reply_abort_cells(k);
}

void jupyter_fail(struct jupyter_kernel *k, const char *type, const char *text)
{
    if (k->asking)
        droste_tool_fail(steal(&k->asking), "RuntimeError", text);
    if (!k->queue)
        return;
    if (strcmp(k->queue->type, "execute_request") == 0)
        reply_failed(k, type, text, NULL);
    else
        reply_first_text(k, "{\"status\": \"error\"}");
}

void jupyter_abort(struct jupyter_kernel *k)
{
    if (k->asking)
        droste_tool_fail(steal(&k->asking), "RuntimeError", "the kernel was restarted");
    while (k->queue) {
        struct jupyter_message *m = k->queue;
        reply_abort(k, m);
        reply_pop(k);
    }
}
