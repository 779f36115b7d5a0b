/* serve/http/request.c: see request.h. */
#include "serve/http/request.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/server.h"
#include "serve/log.h"
#include "serve/http/idempotency.h"

/* ---- suspending ---- */

static void request_on_watch_closed(uv_handle_t *handle)
{
    free(handle);
}

static void request_unwatch(struct request *r)
{
    if (!r->watch)
        return;
    uv_poll_stop(r->watch);
    uv_close((uv_handle_t *)r->watch, request_on_watch_closed);
    r->watch = NULL;
}

static void request_leave(struct request *r)
{
    void (*gone)(struct request *) = r->on_gone;
    r->gone = true;
    r->on_gone = NULL;
    if (gone)
        gone(r);
}

static void request_on_disconnect(uv_poll_t *watch, int status, int events)
{
    struct request *r = watch->data;
    request_leave(r);
    request_resume(r);
}

void request_watch(struct request *r)
{
    if (!r->suspended || r->watch || r->idempotent)
        return; /* the effect of the last is for the client that asks again */
    uv_poll_t *watch = calloc(1, sizeof *watch);
    if (!watch)
        return;
    if (uv_poll_init(&r->server->loop, watch, r->client->fd) < 0) {
        free(watch);
        return;
    }
    watch->data = r;
    r->watch = watch;
    uv_poll_start(watch, UV_DISCONNECT, request_on_disconnect);
}

void request_suspend(struct request *r)
{
    if (r->suspended)
        return;
    r->suspended = true;
    MHD_suspend_connection(r->connection);
    if (!r->streaming) /* a stream is suspended and resumed for each piece */
        request_watch(r);
}

void request_resume(struct request *r)
{
    if (!r->suspended)
        return;
    request_unwatch(r);
    r->suspended = false;
    MHD_resume_connection(r->connection);
    server_wake(r->server);
}

void request_free(struct request *r)
{
    request_unwatch(r);
    if (!r->gone)
        request_leave(r);
    admission_end(r);
    idempotency_end(r);
    log_request(r);
    trace_end(r);
    if (r->on_free)
        r->on_free(r);
    if (r->reply)
        MHD_destroy_response(r->reply);
    r->server->body_bytes -= r->body.len;
    if (r->begun)
        r->server->requests--;
    if (r->client)
        r->client->request = NULL;
    json_object_put(r->json);
    buf_free(&r->body);
    fifo_free(&r->unread);
    free(r->target);
    free(r);
}

/* ---- answers ---- */

static void request_answer(struct request *r, unsigned status, struct MHD_Response *reply)
{
    if (r->reply || r->gone) {
        if (reply)
            MHD_destroy_response(reply);
        return;
    }
    if (!reply) { /* without memory the connection ends */
        r->gone = true;
        request_resume(r);
        return;
    }
    r->reply = reply;
    r->status = status;
    admission_end(r);
    r->on_gone = NULL;
    request_header(r, "X-Content-Type-Options", "nosniff");
    request_header(r, "Cache-Control", "no-store");
    if (r->request_id[0])
        request_header(r, "X-Request-Id", r->request_id);
    if ((r->close_after || r->server->draining) && status != 101)
        request_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    request_resume(r);
}

void request_header(struct request *r, const char *name, const char *value)
{
    if (r->reply && MHD_add_response_header(r->reply, name, value) != MHD_YES)
        r->gone = true;
    if (r->idempotent && strcmp(name, MHD_HTTP_HEADER_LOCATION) == 0)
        idempotency_locate(r, value);
}

void request_locate(struct request *r, const char *format, ...)
{
    cleanup_buf struct buf location = { 0 };
    va_list args;
    va_start(args, format);
    buf_vprintf(&location, format, args);
    va_end(args);
    request_header(r, MHD_HTTP_HEADER_LOCATION, buf_text(&location));
}

void request_reply(
    struct request *r, unsigned status, const char *type, const void *data, size_t len)
{
    idempotency_keep(r, status, type, data ? data : "", len);
    table_count(r->server->figures, COUNT_SENT, len);
    request_answer(r, status,
        MHD_create_response_from_buffer(
            len, (void *)(uintptr_t)(data ? data : ""), MHD_RESPMEM_MUST_COPY));
    if (type)
        request_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
}

void request_reply_fd(struct request *r, const char *type, int fd, uint64_t size)
{
    struct MHD_Response *reply = MHD_create_response_from_fd64(size, fd);
    if (!reply)
        close(fd);
    table_count(r->server->figures, COUNT_SENT, size);
    request_answer(r, 200, reply);
    request_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
}

void request_reply_json(struct request *r, unsigned status, struct json_object *tree)
{
    size_t len = 0;
    const char *text = tree ? json_text(tree, &len) : NULL;
    if (text)
        request_reply(r, status, "application/json", text, len);
    else
        request_answer(r, status, NULL);
    json_object_put(tree);
}

void request_reply_written(struct request *r, unsigned status, const struct buf *json)
{
    if (buf_failed(json))
        request_refuse_memory(r);
    else
        request_reply(r, status, "application/json", buf_text(json), json->len);
}

void request_reply_list(struct request *r, const char *name, struct json_object *list)
{
    struct json_object *o = json_object_new_object();
    if (o && list && json_put(o, name, list)) {
        request_reply_json(r, 200, o);
        return;
    }
    json_object_put(o ? o : list);
    request_refuse_memory(r);
}

static void request_refuse_plainly(
    struct request *r, unsigned status, const char *code, const char *text)
{
    cleanup_buf struct buf body = { 0 };
    buf_puts(&body, "{\"error\": {\"code\": ");
    json_append_string(&body, code, strlen(code));
    buf_puts(&body, ", \"message\": ");
    json_append_string(&body, text, strlen(text));
    if (r->sys > 0) /* by its name: numbers differ between systems */
        buf_printf(&body, ", \"errno\": \"%s\"", uv_err_name(-r->sys));
    buf_puts(&body, "}}");
    request_reply(r, status, "application/json", buf_text(&body), body.len);
}

void request_refuse(struct request *r, unsigned status, const char *code, const char *format, ...)
{
    cleanup_buf struct buf text = { 0 }, valid = { 0 };
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    text_append_utf8(&valid, buf_text(&text), text.len); /* it may repeat what the client sent */
    if (r->routes && r->routes->refuse)
        r->routes->refuse(r, status, code, buf_text(&valid));
    else
        request_refuse_plainly(r, status, code, buf_text(&valid));
}

void request_fail(struct request *r, const droste_error *err)
{
    static const struct {
        int code;
        unsigned status;
    } statuses[] = {
        { DROSTE_ERROR_ARGUMENT, 400 },
        { DROSTE_ERROR_CONFIG, 400 }, /* such as no model: the request can name one */
        { DROSTE_ERROR_NOT_FOUND, 404 },
        { DROSTE_ERROR_PERMISSION, 403 },
        { DROSTE_ERROR_UNSUPPORTED, 501 },
        { DROSTE_ERROR_ENVIRONMENT, 503 },
        { DROSTE_ERROR_LOST, 410 },
        { DROSTE_ERROR_TIMEOUT, 504 },
        { DROSTE_ERROR_CANCELLED, 409 },
        { DROSTE_ERROR_IO, 409 },
    };
    unsigned status = 500;
    for (size_t i = 0; i < array_length(statuses); i++)
        if (statuses[i].code == err->code)
            status = statuses[i].status;
    r->sys = err->sys;
    request_refuse(r, status, droste_error_name(err->code), "%s", err->text);
}

/* ---- streams ---- */

static ssize_t request_on_read(void *arg, uint64_t position, char *out, size_t max)
{
    struct request *r = arg;
    if (request_unread(r) == 0 && !r->ended && !r->cut && !r->gone && r->on_drained)
        r->on_drained(r);
    size_t n = request_unread(r) < max ? request_unread(r) : max;
    if (r->gone || (n == 0 && r->cut))
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n == 0 && r->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (n == 0) {
        request_suspend(r);
        return 0;
    }
    memcpy(out, fifo_data(&r->unread), n);
    fifo_drop(&r->unread, n);
    table_count(r->server->figures, COUNT_SENT, n);
    return (ssize_t)n;
}

void request_stream_as(struct request *r, unsigned status, const char *type)
{
    void (*gone)(struct request *) = r->on_gone;
    r->streaming = true;
    request_answer(r, status,
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, request_on_read, r, NULL));
    r->on_gone = gone; /* the answer has only begun */
    request_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
}

void request_stream(struct request *r, const char *type)
{
    request_stream_as(r, 200, type);
}

void request_push(struct request *r, const void *data, size_t len)
{
    fifo_add(&r->unread, data, len);
    if (fifo_failed(&r->unread))
        r->cut = true;
    request_resume(r);
}

void request_end(struct request *r)
{
    r->ended = true;
    r->on_gone = NULL;
    request_resume(r);
}

void request_cut(struct request *r)
{
    r->cut = true;
    r->on_gone = NULL;
    request_resume(r);
}

void request_upgrade(struct request *r, MHD_UpgradeHandler open, void *arg)
{
    request_answer(r, 101, MHD_create_response_for_upgrade(open, arg));
}

/* ---- input ---- */

const char *request_query(struct request *r, const char *name, const char *fallback)
{
    const char *value = NULL;
    size_t len = 0;
    if (MHD_lookup_connection_value_n(
            r->connection, MHD_GET_ARGUMENT_KIND, name, strlen(name), &value, &len) != MHD_YES)
        value = NULL;
    if (!value && fallback)
        return fallback;
    if (value && strlen(value) == len)
        return value;
    request_refuse(
        r, 400, "argument", "the query parameter '%s' is %s", name, value ? "not text" : "missing");
    return NULL;
}

unsigned request_query_number(
    struct request *r, const char *name, const char *fallback, unsigned most)
{
    const char *text = request_query(r, name, fallback);
    bool is_number = text && text[0] && text[strspn(text, "0123456789")] == '\0';
    unsigned long number = is_number ? strtoul(text, NULL, 10) : 0;
    if (text && number == 0)
        request_refuse(r, 400, "argument", "%s is a positive number", name);
    return number < most ? (unsigned)number : most;
}

const char *request_header_of(struct request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}
