/* serve/e2b/execute.c: POST /execute: code runs in a context, and its output, results and errors
 * are lines of JSON as they appear. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "serve/e2b/execute.h"
#include "serve/e2b/image.h"
#include "serve/sandbox/cell_events.h"

enum { EXECUTION_SILENT_SECONDS = 5 };

/* ---- lines ---- */

static void execution_push(struct e2b_execution *x, struct buf *line)
{
    if (!x->request)
        return;
    buf_putc(line, '\n');
    if (buf_failed(line)) {
        request_cut(x->request);
        return;
    }
    x->spoken_ns = clock_ns();
    request_push(x->request, buf_text(line), line->len);
}

static void line_put(struct buf *line, const char *key, const char *text, size_t len)
{
    buf_printf(line, ", \"%s\": ", key);
    json_append_string(line, text, len);
}

static void line_put_text(struct buf *line, const char *key, const char *text)
{
    line_put(line, key, text ? text : "", text ? strlen(text) : 0);
}

static void execution_say(struct e2b_execution *x, const char *type)
{
    cleanup_buf struct buf line = { 0 };
    buf_printf(&line, "{\"type\": \"%s\"}", type);
    execution_push(x, &line);
}

void e2b_execution_keep_alive(struct e2b_execution *x, uint64_t now_ns)
{
    if (x->request && now_ns > x->spoken_ns + EXECUTION_SILENT_SECONDS * 1000000000ull)
        execution_say(x, "keepalive");
}

/* ---- output ---- */

static void execution_write(struct e2b_execution *x, int stream, const char *text, size_t len)
{
    cleanup_buf struct buf line = { 0 };
    struct timespec t;
    if (len == 0)
        return;
    clock_gettime(CLOCK_REALTIME, &t);
    buf_printf(&line, "{\"type\": \"%s\"", stream == 2 ? "stderr" : "stdout");
    line_put(&line, "text", text, len);
    buf_printf(&line, ", \"timestamp\": %lld}", (long long)t.tv_sec * 1000000000 + t.tv_nsec);
    execution_push(x, &line);
}

static void execution_tell_lost(struct e2b_execution *x)
{
    cleanup_free char *text = NULL;
    if (x->lost == 0)
        return;
    text = text_printf("[%llu bytes of output were left out: they were not read in time]\n",
        (unsigned long long)x->lost);
    x->lost = 0;
    if (text)
        execution_write(x, 2, text, strlen(text));
}

void e2b_execution_output(struct e2b_execution *x, int stream, const char *data, size_t len)
{
    cleanup_buf struct buf text = { 0 };
    if (!x->request)
        return;
    if (request_unread(x->request) > SERVE_UNREAD_MAX) {
        x->lost += len;
        return;
    }
    execution_tell_lost(x);
    text_append_piece(&text, &x->rest[stream == 2], data, len);
    execution_write(x, stream, buf_text(&text), text.len);
}

/* ---- results ---- */

static const struct {
    const char *type, *field;
} result_fields[] = { { "text/plain", "text" }, { "text/html", "html" },
    { "text/markdown", "markdown" }, { "image/svg+xml", "svg" }, { "image/png", "png" },
    { "image/jpeg", "jpeg" }, { "application/pdf", "pdf" }, { "text/latex", "latex" },
    { "application/json", "json" }, { "application/javascript", "javascript" },
    { "e2b/data", "data" }, { "e2b/chart", "chart" } };

static const char *result_field(const char *type)
{
    for (size_t i = 0; i < array_length(result_fields); i++)
        if (strcmp(result_fields[i].type, type) == 0)
            return result_fields[i].field;
    return NULL;
}

/* The text of a value is its repr without the quotes of a text. */
static void result_trim(droste_media *media)
{
    const char *text = media->data;
    if (media->len >= 2 && (text[0] == '\'' || text[0] == '"') && text[media->len - 1] == text[0]) {
        media->data = text + 1;
        media->len -= 2;
    }
}

static void result_append(struct buf *line, const char *key, droste_media *media)
{
    json_append_string(line, key, strlen(key));
    buf_puts(line, ": ");
    if (strcmp(media->type, "text/plain") == 0)
        result_trim(media);
    cell_append_media(line, media);
}

void e2b_execution_show(struct e2b_execution *x, const droste_bundles *bundles, size_t index)
{
    cleanup_buf struct buf line = { 0 }, extra = { 0 };
    droste_media media;
    if (index >= droste_bundles_count(bundles)) /* clear_output(): nothing can be taken back */
        return;
    buf_puts(&line, "{\"type\": \"result\"");
    for (size_t i = 0; droste_bundles_media(bundles, index, i, &media); i++) {
        const char *field = result_field(media.type);
        buf_puts(field ? &line : &extra, field ? ", " : extra.len > 0 ? ", " : "");
        result_append(field ? &line : &extra, field ? field : media.type, &media);
    }
    if (extra.len > 0)
        buf_printf(&line, ", \"extra\": {%s}", buf_text(&extra));
    buf_printf(&line, ", \"is_main_result\": %s}",
        droste_bundles_is_main(bundles, index) ? "true" : "false");
    execution_push(x, &line);
}

/* ---- snapshots ---- */

void e2b_snapshot_release(struct e2b_snapshot *s)
{
    if (--s->references > 0)
        return;
    droste_template_free(s->made);
    e2b_image_release(s->image);
    json_object_put(s->answers);
    free(s);
}

void e2b_snapshot_fail(struct e2b_snapshot *s, unsigned status, const char *text)
{
    if (s->r && !s->r->reply)
        request_refuse(s->r, status, "snapshot", "%s", text);
}

/* ---- the beginning and the end ---- */

void e2b_execution_begin(struct e2b_execution *x, uint64_t count)
{
    cleanup_buf struct buf line = { 0 };
    buf_printf(&line, "{\"type\": \"number_of_executions\", \"execution_count\": %llu}",
        (unsigned long long)count);
    execution_push(x, &line);
}

static void execution_error(
    struct e2b_execution *x, const char *name, const char *value, const char *traceback)
{
    cleanup_buf struct buf line = { 0 };
    buf_puts(&line, "{\"type\": \"error\"");
    line_put_text(&line, "name", name);
    line_put_text(&line, "value", value);
    line_put_text(&line, "traceback", traceback);
    buf_puts(&line, "}");
    execution_push(x, &line);
}

static void execution_close(struct e2b_execution *x, const char *type)
{
    struct request *r = x->request;
    if (!r)
        return;
    execution_say(x, type);
    x->request = NULL;
    r->state = NULL;
    request_end(r);
}

void e2b_execution_fail(struct e2b_execution *x, const char *name, const char *text)
{
    if (x->snapshot)
        e2b_snapshot_fail(x->snapshot, 400, text);
    execution_error(x, name, text, text);
    execution_close(x, "unexpected_end_of_execution");
}

/* An exception: its type, its text, and the traceback. */
static void execution_raise(struct e2b_execution *x, const droste_result *result)
{
    size_t len = 0;
    const char *text = droste_result_json(result, &len);
    cleanup_json struct json_object *o = NULL;
    if (text)
        json_parse(text, len, &json_limits_large, &o, NULL);
    struct json_object *error = json_get_typed(o, "error", json_type_object);
    execution_error(x, json_get_string(error, "type", "Exception"), droste_result_message(result),
        droste_result_traceback(result));
}

void e2b_execution_end(
    struct e2b_execution *x, const droste_result *result, const droste_error *err)
{
    droste_error why = { 0 };
    if (!x || !x->request)
        return;
    for (int i = 0; i < 2; i++) {
        cleanup_buf struct buf text = { 0 };
        text_append_rest(&text, &x->rest[i]);
        execution_write(x, i + 1, buf_text(&text), text.len);
    }
    execution_tell_lost(x);
    if (err || !result) {
        e2b_execution_fail(x, "KernelError", err ? err->text : "there is no result");
        return;
    }
    if (!droste_result_alive(result)) {
        droste_result_error(result, &why);
        e2b_execution_fail(x, "KernelDied", why.text[0] ? why.text : "the kernel ended");
        return;
    }
    if (strcmp(droste_result_status(result), "error") == 0 ||
        strcmp(droste_result_status(result), "timeout") == 0)
        execution_raise(x, result);
    execution_close(x, "end_of_execution");
}

void e2b_execution_cut(struct e2b_execution *x)
{
    struct request *r = steal(&x->request);
    if (x->snapshot)
        e2b_snapshot_fail(x->snapshot, 404, "the sandbox or its context has ended");
    if (!r)
        return;
    r->state = NULL;
    request_cut(r);
}

void e2b_execution_free(struct e2b_execution *x)
{
    if (x->request)
        x->request->state = NULL;
    if (x->snapshot)
        e2b_snapshot_release(x->snapshot);
    json_object_put(x->environment);
    free(x->code);
    free(x);
}
