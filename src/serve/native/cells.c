/* serve/native/cells.c: the routes that create, list, use and end sandboxes. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "serve/sandbox/calls.h"
#include "serve/sandbox/cell_events.h"
#include "serve/http/relay.h"
#include "serve/native/templates.h"
#include "serve/native/native.h"

/* ---- create ---- */

static void create_reply(struct sandbox *sb, struct request *r)
{
    cleanup_buf struct buf out = { 0 };
    table_time(sb->server->figures, TIME_CREATE, clock_ns() - r->began_ns);
    sandbox_put(&out, sb);
    request_reply_written(r, 201, &out);
    request_locate(r, "/v1/sandboxes/%s", sb->id);
}

/* What was asked, but not more than the server's limit and the key's. */
static double create_limit(struct request *r, const char *name, double most, double of_key)
{
    if (of_key > 0 && of_key < most)
        most = of_key;
    double asked = json_get_double(r->json, name, most);
    return asked < most ? asked : most;
}

static bool create_prepare(struct sandbox *sb, struct request *r)
{
    const struct key_limits *limits = &sb->owner->key.limits;
    sb->metadata = json_object_get(json_get_typed(r->json, "metadata", json_type_object));
    sb->life_seconds = create_limit(r, "life_seconds", sb->life_seconds, limits->life_seconds);
    sb->idle_seconds = create_limit(r, "idle_seconds", sb->idle_seconds, limits->idle_seconds);
    sb->model_key = sb->server->model_key; /* of its settings */
    return true;
}

static void create_ready(struct sandbox *sb, struct request *r, droste_result *result)
{
    create_reply(sb, r);
}

void handle_create(struct request *r)
{
    static const struct sandbox_maker maker = { sandbox_settings, create_prepare, create_ready };
    sandbox_create(r, &maker);
}

void handle_template_start(struct request *r)
{
    static const struct sandbox_maker maker = { sandbox_settings, create_prepare, create_ready,
        templates_of };
    if (!templates_await(r) && templates_of(r))
        sandbox_create(r, &maker);
}

/* ---- list, describe, end ---- */

static int list_compare(const void *a, const void *b)
{
    int64_t x = json_get_int(*(struct json_object *const *)a, "created_ms", 0);
    int64_t y = json_get_int(*(struct json_object *const *)b, "created_ms", 0);
    return (x < y) - (x > y);
}

static void list_reply(struct request *r, struct json_object *list)
{
    json_object_array_sort(list, list_compare);
    request_reply_list(r, "sandboxes", list);
}

void handle_list(struct request *r)
{
    cleanup_buf struct buf out = { 0 };
    field_open(&out, NULL, '[');
    for (struct sandbox *sb = r->server->sandboxes; sb; sb = sb->next)
        if (sandbox_is_visible(sb, r->account))
            sandbox_put(&out, sb);
    field_close(&out, ']');
    relay_gather_written(r, "sandboxes", &out, list_reply);
}

void handle_get(struct request *r)
{
    struct sandbox *sb = sandbox_find(r->server, r->id);
    uint64_t used_ns = sb ? sb->used_ns : 0;
    sb = sandbox_of(r);
    if (!sb)
        return;
    cleanup_buf struct buf out = { 0 };
    sb->used_ns = used_ns; /* looking is no use */
    sandbox_put(&out, sb);
    request_reply_written(r, 200, &out);
}

void handle_close(struct request *r)
{
    struct sandbox *sb = sandbox_of(r);
    if (!sb)
        return;
    sandbox_close(sb);
    request_reply(r, 204, NULL, NULL, 0);
}

void handle_interrupt(struct request *r)
{
    struct sandbox *sb = sandbox_of(r);
    if (!sb)
        return;
    droste_session_interrupt(sb->session);
    request_reply(r, 204, NULL, NULL, 0);
}

void handle_expect(struct request *r)
{
    struct sandbox *sb = sandbox_idle_of(r);
    struct json_object *schema = json_get_typed(r->json, "schema", json_type_object);
    droste_error err;
    if (!sb)
        return;
    if (droste_session_expect(sb->session, schema ? json_text(schema, NULL) : NULL, &err) < 0)
        request_fail(r, &err);
    else
        request_reply(r, 204, NULL, NULL, 0);
}

/* ---- execute ---- */

/* A stream of server-sent events. */
struct cell_stream {
    struct request *r;
    struct text_rest rest[2];
    uint64_t lost;
};

static void cell_tell_lost(struct cell_stream *c)
{
    cleanup_buf struct buf data = { 0 };
    if (c->lost == 0)
        return;
    buf_printf(&data, "{\"bytes\": %llu}", (unsigned long long)c->lost);
    c->lost = 0;
    cell_event(c->r, "lost", &data);
}

static void cell_tell_output(struct cell_stream *c, int stream, const struct buf *text)
{
    cleanup_buf struct buf data = { 0 };
    if (text->len == 0)
        return;
    buf_printf(&data, "{\"stream\": \"%s\", \"text\": ", stream == 2 ? "stderr" : "stdout");
    json_append_string(&data, buf_text(text), text->len);
    buf_puts(&data, "}");
    cell_event(c->r, "output", &data);
}

static void cell_on_output(void *arg, int stream, const char *data, size_t len)
{
    struct cell_stream *c = arg;
    cleanup_buf struct buf text = { 0 };
    if (request_unread(c->r) > SERVE_UNREAD_MAX) { /* it does not read: see docs/serve.md */
        c->lost += len;
        return;
    }
    cell_tell_lost(c);
    text_append_piece(&text, &c->rest[stream == 2], data, len);
    cell_tell_output(c, stream, &text);
}

/* ---- rich results ---- */

/* What is known of a rich result beside the values by media type, and, with_values, these. */
static void cell_append_shown(
    struct buf *out, const droste_bundles *bundles, size_t index, bool with_values)
{
    const char *metadata = droste_bundles_metadata(bundles, index);
    const char *name = droste_bundles_display_id(bundles, index);
    const char *separator = "";
    droste_media media;
    buf_printf(out, "{\"main\": %s, \"update\": %s, \"metadata\": %s, \"display_id\": ",
        droste_bundles_is_main(bundles, index) ? "true" : "false",
        droste_bundles_is_update(bundles, index) ? "true" : "false", metadata ? metadata : "null");
    if (name)
        json_append_string(out, name, strlen(name));
    else
        buf_puts(out, "null");
    buf_puts(out, ", \"base64\": [");
    for (size_t i = 0; droste_bundles_media(bundles, index, i, &media); i++)
        if (strcmp(media.form, "bytes") == 0) {
            buf_puts(out, separator);
            json_append_string(out, media.type, strlen(media.type));
            separator = ", ";
        }
    buf_puts(out, with_values ? "], \"values\": {" : "]");
    for (size_t i = 0; with_values && droste_bundles_media(bundles, index, i, &media); i++) {
        buf_puts(out, i ? ", " : "");
        json_append_string(out, media.type, strlen(media.type));
        buf_puts(out, ": ");
        cell_append_media(out, &media);
    }
    buf_puts(out, with_values ? "}}" : "}");
}

static void cell_on_display(void *arg, const droste_bundles *bundles, size_t index)
{
    struct cell_stream *c = arg;
    cleanup_buf struct buf data = { 0 };
    if (request_unread(c->r) > SERVE_UNREAD_MAX)
        return; /* the result has all of them */
    if (droste_bundles_count(bundles) > 0)
        cell_append_shown(&data, bundles, index, true);
    else
        buf_puts(&data, "{}");
    cell_event(c->r, data.len > 2 ? "display" : "clear", &data);
}

/* ---- the end of a cell ---- */

/* The result, with what its request asked for beside it. */
static void cell_append_result(struct buf *out, const struct request *r,
    const droste_result *result, const char *text, size_t len)
{
    size_t values_len = 0;
    const char *values = droste_result_values(result, &values_len);
    const droste_bundles *shown = droste_result_shown(result);
    bool details = json_get_bool(r->json, "displays", false);
    buf_append(out, text, values || details ? len - 1 : len); /* without the last brace */
    if (values) {
        buf_puts(out, ",\"values\":\"");
        json_append_base64(out, values, values_len);
        buf_puts(out, "\"");
    }
    if (details) {
        buf_puts(out, ",\"shown\":[");
        for (size_t i = 0; i < droste_bundles_count(shown); i++) {
            buf_puts(out, i ? "," : "");
            cell_append_shown(out, shown, i, false);
        }
        buf_puts(out, "]");
    }
    if (values || details)
        buf_puts(out, "}");
}

static void cell_unlisten(struct sandbox *sb)
{
    sb->listener = NULL;
    droste_session_on_output(sb->session, NULL, NULL);
    droste_session_on_display(sb->session, NULL, NULL);
}

static void cell_on_free(struct request *r)
{
    if (r->sandbox) {
        cell_unlisten(r->sandbox);
        calls_fail(r->sandbox);
    }
    free(r->state);
}

static void cell_end_stream(struct sandbox *sb, struct request *r, const struct buf *result)
{
    struct cell_stream *c = r->state;
    cell_unlisten(sb);
    for (int i = 0; i < 2; i++) {
        cleanup_buf struct buf text = { 0 };
        text_append_rest(&text, &c->rest[i]);
        cell_tell_output(c, i + 1, &text);
    }
    cell_tell_lost(c);
    cell_event(r, "result", result);
    request_end(r);
}

/* The operation has failed without a result, for example because the sandbox is lost. */
static void cell_fail_stream(struct sandbox *sb, struct request *r, const droste_error *err)
{
    cleanup_buf struct buf data = { 0 }, valid = { 0 };
    const char *code = droste_error_name(err->code);
    cell_unlisten(sb);
    text_append_utf8(&valid, err->text, strlen(err->text));
    buf_puts(&data, "{\"code\": ");
    json_append_string(&data, code, strlen(code));
    buf_puts(&data, ", \"message\": ");
    json_append_string(&data, buf_text(&valid), valid.len);
    buf_puts(&data, "}");
    cell_event(r, "error", &data);
    request_end(r);
}

static void cell_on_done(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err)
{
    size_t len = 0;
    const char *text = result ? droste_result_json(result, &len) : NULL;
    cleanup_buf struct buf out = { 0 };
    cell_end(&sb->cell, result);
    if (!r) {
        cell_unlisten(sb);
        return;
    }
    if (text)
        cell_append_result(&out, r, result, text, len);
    if (text && !buf_failed(&out) && r->streaming)
        cell_end_stream(sb, r, &out);
    else if (text && !buf_failed(&out))
        request_reply(r, 200, "application/json", out.data, out.len);
    else if (r->streaming && err)
        cell_fail_stream(sb, r, err);
    else if (r->streaming)
        request_cut(r);
    else if (err)
        request_fail(r, err);
    else
        request_refuse_memory(r);
}

/* Leaves before the sandbox does: its output has no reader then. */
static void cell_on_gone(struct request *r)
{
    struct sandbox *sb = r->sandbox;
    if (!sb)
        return;
    cell_unlisten(sb);
    calls_fail(sb);
    droste_session_interrupt(sb->session);
    sb->request = NULL;
    r->sandbox = NULL;
}

static int cell_flags(struct json_object *o)
{
    static const struct {
        const char *name;
        bool by_default;
        int flag;
    } flags[] = { { "echo", true, DROSTE_ECHO }, { "results", true, DROSTE_RESULTS },
        { "print", true, DROSTE_PRINT }, { "values", false, DROSTE_VALUES },
        { "only_values", false, DROSTE_VALUES | DROSTE_ONLY_VALUES } };
    int found = 0;
    for (size_t i = 0; i < array_length(flags); i++)
        if (json_get_bool(o, flags[i].name, flags[i].by_default))
            found |= flags[i].flag;
    return found;
}

void handle_execute(struct request *r)
{
    struct sandbox *sb = sandbox_idle_of(r);
    droste_error err;
    if (!sb)
        return;
    bool streams = json_get_bool(r->json, "stream", false);
    struct json_object *code = json_get_typed(r->json, "code", json_type_string);
    struct cell_stream *c = streams ? calloc(1, sizeof *c) : NULL;
    if (streams && !c) {
        request_refuse_memory(r);
        return;
    }
    int rc = droste_session_exec_start(sb->session, json_object_get_string(code),
        (size_t)json_object_get_string_len(code), cell_flags(r->json),
        json_get_double(r->json, "timeout_seconds", -1), &err);
    sandbox_await(sb, r, rc, &err, cell_on_done);
    if (rc == 0)
        cell_begin(&sb->cell, sb, sb->session, r, "python");
    if (rc < 0 || !streams) {
        free(c);
        return;
    }
    c->r = r;
    r->state = c;
    r->on_gone = cell_on_gone;
    r->on_free = cell_on_free;
    sb->listener = r;
    droste_session_on_output(sb->session, cell_on_output, c);
    if (json_get_bool(r->json, "displays", false))
        droste_session_on_display(sb->session, cell_on_display, c);
    request_stream(r, "text/event-stream");
    calls_tell(sb);
}

/* ---- fork ---- */

void fork_on_done(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err)
{
    droste_session *session = steal(&sb->forked);
    if (!r || err) {
        droste_session_close(session);
        if (r)
            request_fail(r, err);
        return;
    }
    struct sandbox *copy = sandbox_add(sb->server, &r->admission, sb->owner, session);
    if (!copy) {
        request_refuse_memory(r);
        return;
    }
    table_count(sb->server->figures, COUNT_FORKED, 1);
    calls_inherit(copy, sb);
    copy->metadata = json_object_get(sb->metadata);
    copy->life_seconds = sb->life_seconds;
    copy->idle_seconds = sb->idle_seconds;
    create_reply(copy, r);
}

static void fork_start(struct request *r)
{
    struct sandbox *sb = sandbox_idle_of(r);
    droste_error err;
    if (!sb)
        return;
    int rc = droste_session_fork_start(sb->session, &sb->forked, &err);
    sandbox_await(sb, r, rc, &err, fork_on_done);
}

void handle_fork(struct request *r)
{
    if (sandbox_idle_of(r))
        admission_ask(r, fork_start);
}

/* ---- variables ---- */

static bool variable_is_named(struct request *r)
{
    if (text_is_identifier(r->name))
        return true;
    request_refuse(r, 400, "argument", "'%s' is not an identifier of Python", r->name);
    return false;
}

static void variable_on_got(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err)
{
    size_t len = 0;
    cleanup_json struct json_object *o = NULL;
    struct json_object *value = NULL;
    if (!r)
        return;
    const char *text = result ? droste_result_submit(result, &len) : NULL;
    if (text && json_parse(text, len, &json_limits_large, &o, NULL) == 0 &&
        json_object_object_get_ex(o, "value", &value)) {
        const char *json = json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN);
        request_reply(r, 200, "application/json", json, strlen(json));
        return;
    }
    const char *message = result ? droste_result_message(result) : NULL;
    if (err)
        request_fail(r, err);
    else if (message && strstr(message, "is not defined"))
        request_refuse(r, 404, "not_found", "there is no variable '%s'", r->name);
    else
        request_refuse(r, 422, "value", "'%s' cannot be given as JSON: %s", r->name,
            message ? message : "it was not submitted");
}

void handle_variable_get(struct request *r)
{
    struct sandbox *sb;
    droste_error err;
    if (!variable_is_named(r) || !(sb = sandbox_idle_of(r)))
        return;
    cleanup_free char *code = text_printf("SUBMIT(value=%s)", r->name);
    if (!code) {
        request_refuse_memory(r);
        return;
    }
    int rc = droste_session_exec_start(sb->session, code, strlen(code), 0, -1, &err);
    sandbox_await(sb, r, rc, &err, variable_on_got);
}

static void variable_on_set(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err)
{
    bool failed = result && strcmp(droste_result_status(result), "ok") != 0;
    const char *why = failed ? droste_result_message(result) : NULL;
    if (r && err)
        request_fail(r, err);
    else if (r && failed)
        request_refuse(r, 422, "value", "'%s' could not be bound: %s", r->name,
            why ? why : droste_result_status(result));
    else if (r)
        request_reply(r, 204, NULL, NULL, 0);
}

/* The kind of a value, by the media type of the body. */
static const char *variable_kind(const char *type)
{
    static const char *const kinds[][2] = { { "application/json", "json" },
        { "text/plain", "text" }, { "application/octet-stream", "bytes" },
        { "application/vnd.droste.values", "values" } };
    for (size_t i = 0; type && i < array_length(kinds); i++) {
        size_t n = strlen(kinds[i][0]);
        if (strncasecmp(type, kinds[i][0], n) == 0 && strchr("; \t", type[n]))
            return kinds[i][1];
    }
    return NULL;
}

/* How the bytes of a file are to be taken; NULL: the request was refused. */
static const char *variable_kind_asked(struct request *r, const char *asked)
{
    static const char *const kinds[] = { "auto", "text", "bytes", "json", "jsonl" };
    for (size_t i = 0; i < array_length(kinds); i++)
        if (strcmp(kinds[i], asked) == 0)
            return kinds[i];
    request_refuse(r, 400, "argument", "kind is auto, text, bytes, json or jsonl");
    return NULL;
}

void handle_variable_set(struct request *r)
{
    struct sandbox *sb;
    droste_error err;
    const char *kind = variable_kind(request_header_of(r, MHD_HTTP_HEADER_CONTENT_TYPE));
    const char *asked = kind ? request_query(r, "kind", kind) : "";
    if (!asked)
        return;
    if (kind && strcmp(asked, kind) != 0 && !(kind = variable_kind_asked(r, asked)))
        return;
    if (!variable_is_named(r) || !(sb = sandbox_idle_of(r)))
        return;
    if (!kind) {
        request_refuse(r, 415, "media_type",
            "send a Content-Type: application/json, text/plain, application/octet-stream or "
            "application/vnd.droste.values");
        return;
    }
    int rc =
        droste_session_set_start(sb->session, r->name, kind, buf_text(&r->body), r->body.len, &err);
    sandbox_await(sb, r, rc, &err, variable_on_set);
}
