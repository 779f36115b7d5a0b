/* export/steps.c: see steps.h.
 *
 * Members are collected in a buffer, which is flushed to the file as it grows. Values pass through
 * it in pieces, converted to well-formed UTF-8 and escaped. JSON from the record is checked in
 * memory and then copied; beyond JSON_MOST it is written as a string instead and listed in
 * `as_text`.
 */
#include "export/steps.h"

#include <string.h>
#include <unistd.h>

#include "base/json/fields.h"
#include "base/json/json.h"
#include "base/text.h"
#include "base/error.h"

enum {
    JSON_MOST = 16 << 20, /* bytes of JSON to check and copy */
    DRAIN_FROM = 64 << 10,
};

droste_value steps_text_value(const char *text)
{
    return (droste_value){ .data = text, .len = text ? strlen(text) : 0 };
}

int steps_append_piece(void *arg, const char *data, size_t len)
{
    buf_append(arg, data, len);
    return buf_failed(arg);
}

/* ---- to the file ---- */

static void steps_note(struct steps_out *o, const droste_error *why)
{
    if (o->error.code == DROSTE_ERROR_NONE)
        o->error = *why;
}

static void steps_put(struct steps_out *o, const char *data, size_t len)
{
    droste_error err = { 0 };
    o->written += (int64_t)len;
    if (fwrite(data, 1, len, o->file) == len)
        return;
    error_set_errno(&err, ERROR_IO, "writing");
    steps_note(o, &err);
}

/* In a page, no '<' comes from a record: JSON has it in strings only, where \u003c is the same. */
static void steps_put_all(struct steps_out *o, const char *data, size_t len)
{
    cleanup_buf struct buf visible = { 0 };
    if (isatty(fileno(o->file))) {
        text_append_visible_json(&visible, data, len);
        data = buf_text(&visible);
        len = visible.len;
    }
    while (o->in_page && len > 0) {
        const char *found = memchr(data, '<', len);
        size_t n = found ? (size_t)(found - data) : len;
        steps_put(o, data, n);
        if (!found)
            return;
        steps_put(o, "\\u003c", 6);
        data += n + 1;
        len -= n + 1;
    }
    steps_put(o, data, len);
}

/* Flushes all but the last character: the next member needs it to decide about its comma. */
static void steps_drain(struct steps_out *o)
{
    if (!o->file || o->text.len < 2)
        return;
    size_t whole = text_utf8_floor(o->text.data, o->text.len, o->text.len - 1);
    steps_put_all(o, o->text.data, whole);
    buf_consume(&o->text, whole);
}

int steps_flush(struct steps_out *o, droste_error *err)
{
    droste_error memory;
    if (buf_failed(&o->text) || buf_failed(&o->cut) || buf_failed(&o->as_text)) {
        error_memory(&memory);
        steps_note(o, &memory);
    }
    if (o->file) {
        steps_put_all(o, buf_text(&o->text), o->text.len);
        buf_clear(&o->text);
    }
    if (o->error.code == DROSTE_ERROR_NONE)
        return 0;
    *err = o->error;
    return -(int)err->code;
}

void steps_free(struct steps_out *o)
{
    buf_free(&o->text);
    buf_free(&o->cut);
    buf_free(&o->as_text);
}

/* ---- values ---- */

struct cleaning {
    struct steps_out *o;
    struct buf raw; /* the first bytes of a character split between pieces */
};

/* The number of bytes at the end that begin an incomplete character. */
static size_t steps_unfinished(const char *data, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char c = (unsigned char)data[len - back];
        size_t needs = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
        if (c >= 0xC0)
            return needs > back ? back : 0;
        if (c < 0x80)
            return 0;
    }
    return 0;
}

static void append_escaped(struct steps_out *o, const char *data, size_t len)
{
    cleanup_buf struct buf clean = { 0 }, quoted = { 0 };
    text_append_utf8(&clean, data, len);
    json_append_string(&quoted, buf_text(&clean), clean.len);
    if (buf_failed(&clean) || buf_failed(&quoted))
        o->text.failed = true;
    else
        buf_append(&o->text, quoted.data + 1, quoted.len - 2);
    if (o->text.len >= DRAIN_FROM)
        steps_drain(o);
}

static int clean_piece(void *arg, const char *data, size_t len)
{
    struct cleaning *c = arg;
    buf_append(&c->raw, data, len);
    size_t whole = c->raw.len - steps_unfinished(buf_text(&c->raw), c->raw.len);
    append_escaped(c->o, buf_text(&c->raw), whole);
    buf_consume(&c->raw, whole);
    return c->o->error.code != DROSTE_ERROR_NONE;
}

static bool steps_is_there(const droste_value *value)
{
    return value->data || value->hash;
}

static bool is_cut(const struct steps_out *o, const droste_value *value)
{
    return o->most > 0 && value->len > o->most;
}

static void steps_add_text(struct steps_out *o, const char *key, const droste_value *value)
{
    struct cleaning c = { .o = o };
    droste_error err = { 0 };
    bool cut = is_cut(o, value);
    if (!steps_is_there(value)) {
        field_string(&o->text, key, NULL);
        return;
    }
    field_key(&o->text, key);
    buf_putc(&o->text, '"');
    if (droste_record_read(o->record, value, cut ? o->most : SIZE_MAX, clean_piece, &c, &err) < 0)
        steps_note(o, &err);
    if (!cut) /* otherwise drop a character that was cut */
        append_escaped(o, buf_text(&c.raw), c.raw.len);
    buf_putc(&o->text, '"');
    buf_free(&c.raw);
    if (cut)
        buf_printf(&o->cut, "%s\"%s\":%zu", o->cut.len ? "," : "", key, value->len);
}

/* Puts JSON on one line: newlines can occur only between tokens, where they mean nothing. */
static void append_json(struct steps_out *o, const char *key, struct buf *json)
{
    for (size_t i = 0; i < json->len; i++)
        if (json->data[i] == '\n' || json->data[i] == '\r')
            json->data[i] = ' ';
    field_key(&o->text, key);
    buf_append(&o->text, json->data, json->len);
    if (o->text.len >= DRAIN_FROM)
        steps_drain(o);
}

static void steps_add_json(struct steps_out *o, const char *key, const droste_value *value)
{
    cleanup_buf struct buf whole = { 0 };
    droste_error err = { 0 };
    bool fits = value->len <= JSON_MOST && !is_cut(o, value);
    if (steps_is_there(value) && fits) {
        buf_reserve(&whole, value->len);
        if (droste_record_read(o->record, value, SIZE_MAX, steps_append_piece, &whole, &err) < 0)
            steps_note(o, &err);
        if (json_check(buf_text(&whole), whole.len, &json_limits_large, NULL) == 0) {
            append_json(o, key, &whole);
            return;
        }
    }
    steps_add_text(o, key, value);
    if (steps_is_there(value))
        buf_printf(&o->as_text, "%s\"%s\"", o->as_text.len ? "," : "", key);
}

/* ---- rich results ---- */

struct base64_piece {
    struct steps_out *o;
    char rest[3]; /* bytes that do not make a group of three yet */
    size_t len;
};

static int add_base64_piece(void *arg, const char *data, size_t len)
{
    struct base64_piece *b = arg;
    while (b->len > 0 && b->len < sizeof b->rest && len > 0) {
        b->rest[b->len++] = *data++;
        len--;
    }
    if (b->len == sizeof b->rest) {
        json_append_base64(&b->o->text, b->rest, b->len);
        b->len = 0;
    }
    if (b->len > 0)
        return 0;
    size_t whole = len - len % 3;
    json_append_base64(&b->o->text, data, whole);
    memcpy(b->rest, data + whole, len - whole);
    b->len = len - whole;
    if (b->o->text.len >= DRAIN_FROM)
        steps_drain(b->o);
    return b->o->error.code != DROSTE_ERROR_NONE;
}

static void steps_add_base64(struct steps_out *o, const char *key, const droste_value *value)
{
    struct base64_piece b = { .o = o };
    droste_error err = { 0 };
    field_key(&o->text, key);
    buf_putc(&o->text, '"');
    if (droste_record_read(o->record, value, SIZE_MAX, add_base64_piece, &b, &err) < 0)
        steps_note(o, &err);
    json_append_base64(&o->text, b.rest, b.len);
    buf_putc(&o->text, '"');
}

/* Images in a page may be larger than texts there, and are whole or absent. */
static bool media_is_cut(const struct steps_out *o, const droste_record_media *media)
{
    size_t most = o->most * (strncmp(media->type, "image/", 6) == 0 ? 16 : 1);
    return o->most > 0 && media->value.len > most;
}

static void add_media(struct steps_out *o, const droste_record_media *media)
{
    bool cut = media_is_cut(o, media);
    if (cut) {
        buf_printf(&o->cut, "%s\"results.%lld.", o->cut.len ? "," : "", (long long)media->result);
        buf_printf(&o->cut, "%s\":%zu", media->type, media->value.len);
        field_string(&o->text, media->type, NULL);
    } else if (strcmp(media->form, "bytes") == 0) {
        steps_add_base64(o, media->type, &media->value);
    } else if (strcmp(media->form, "json") == 0) {
        steps_add_json(o, media->type, &media->value);
    } else {
        size_t most = o->most;
        o->most = 0;
        steps_add_text(o, media->type, &media->value);
        o->most = most;
    }
}

static void steps_results(struct steps_out *o, const droste_record_media *media, size_t count)
{
    field_open(&o->text, "results", '[');
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || media[i].result != media[i - 1].result)
            field_open(&o->text, NULL, '{');
        add_media(o, &media[i]);
        if (i + 1 == count || media[i].result != media[i + 1].result)
            field_close(&o->text, '}');
    }
    field_close(&o->text, ']');
}

/* ---- members ---- */

static void add_null(struct steps_out *o, const char *key)
{
    field_string(&o->text, key, NULL);
}

/* The members that are set when the run ends. */
static void add_int(struct steps_out *o, const char *key, int64_t value, bool known)
{
    if (known)
        field_int(&o->text, key, value);
    else
        add_null(o, key);
}

static void add_real(struct steps_out *o, const char *key, double value, bool known)
{
    if (known)
        field_real(&o->text, key, value);
    else
        add_null(o, key);
}

void steps_run_begin(struct steps_out *o, const droste_record_run *run)
{
    field_string(&o->text, "run", run->id);
    field_string(&o->text, "parent", run->parent);
    add_int(o, "parent_cell", run->parent_cell, run->parent_cell != 0);
    if (run->parent_fork)
        field_string(&o->text, "parent_fork", run->parent_fork);
    field_string(&o->text, "previous", run->previous);
    field_string(&o->text, "batch", run->batch);
    field_string(&o->text, "task", run->task);
    if (run->account)
        field_string(&o->text, "account", run->account);
    field_int(&o->text, "depth", run->depth);
    field_time(&o->text, "started", run->started_ms);
    steps_add_text(o, "question", &run->question);
    field_string(&o->text, "model", run->model);
    field_string(&o->text, "environment", run->environment);
    field_string(&o->text, "isolation", run->isolation);
    field_string(&o->text, "version", run->version);
    steps_add_json(o, "context", &run->context);
    steps_add_json(o, "limits", &run->limits);
    steps_add_json(o, "tools", &run->tools);
}

static void steps_artifacts(struct steps_out *o, const droste_record_run *run)
{
    field_open(&o->text, "artifacts", '[');
    for (size_t i = 0; i < run->artifact_count; i++) {
        const droste_record_artifact *artifact = &run->artifacts[i];
        field_open(&o->text, NULL, '{');
        field_string(&o->text, "name", artifact->name);
        field_int(&o->text, "size", artifact->size);
        field_string(&o->text, "sha256", artifact->sha256);
        field_bool(&o->text, "recorded", steps_is_there(&artifact->value));
        field_close(&o->text, '}');
    }
    field_close(&o->text, ']');
}

static void steps_requests(struct steps_out *o, const droste_record_run *run)
{
    field_open(&o->text, "requests", '[');
    for (size_t i = 0; i < run->request_count; i++) {
        const droste_record_request *request = &run->requests[i];
        bool ended = request->seconds >= 0;
        field_open(&o->text, NULL, '{');
        field_int(&o->text, "turn", request->turn);
        add_int(o, "cell", request->cell, request->cell != 0);
        field_string(&o->text, "method", request->method);
        field_string(&o->text, "host", request->host);
        field_int(&o->text, "port", request->port);
        field_string(&o->text, "path", request->path);
        field_string(&o->text, "address", request->address);
        field_bool(&o->text, "refused", request->refused);
        field_string(&o->text, "why", request->why);
        add_int(o, "status", request->status, request->status != 0);
        field_int(&o->text, "sent", request->sent);
        field_int(&o->text, "received", request->received);
        field_time(&o->text, "started", request->started_ms);
        add_real(o, "seconds", request->seconds, ended);
        field_close(&o->text, '}');
    }
    field_close(&o->text, ']');
}

void steps_run_end(struct steps_out *o, const droste_record_run *run)
{
    bool ended = run->ended_ms != 0;
    field_time(&o->text, "ended", run->ended_ms);
    field_string(&o->text, "status", run->status);
    steps_add_json(o, "answer", &run->answer);
    field_string(&o->text, "error", run->error);
    add_int(o, "iterations", run->iterations, ended);
    field_open(&o->text, "usage", '{');
    add_int(o, "calls", run->calls, ended);
    add_int(o, "input_tokens", run->input_tokens, ended);
    add_int(o, "output_tokens", run->output_tokens, ended);
    add_real(o, "cost", run->cost, ended && run->cost >= 0);
    add_real(o, "seconds", run->seconds, ended);
    field_close(&o->text, '}');
    if (run->artifact_count > 0)
        steps_artifacts(o, run);
    if (run->request_count > 0)
        steps_requests(o, run);
}

void steps_turn(struct steps_out *o, const droste_record_turn *turn)
{
    field_int(&o->text, "turn", turn->turn);
    field_time(&o->text, "started", turn->started_ms);
    if (turn->kept) {
        field_int(&o->text, "kept", turn->kept);
        field_string(&o->text, "reason", turn->reason);
        field_string(&o->text, "session", turn->session);
    }
}

static void steps_approval(struct buf *out, const droste_record_call *call)
{
    field_open(out, "approval", '{');
    field_time(out, "asked", call->asked_ms);
    field_time(out, "until", call->until_ms);
    field_string(out, "decision", call->decision);
    field_time(out, "decided", call->decided_ms);
    field_string(out, "by", call->decided_by);
    field_string(out, "reason", call->decision_reason);
    field_time(out, "begun", call->begun_ms);
    field_close(out, '}');
}

void steps_call(struct steps_out *o, const droste_record_call *call)
{
    bool ended = call->ended_ms != 0;
    field_string(&o->text, "kind", call->kind);
    field_int(&o->text, "id", call->id);
    add_int(o, "cell", call->cell, call->cell != 0);
    if (call->candidate)
        field_int(&o->text, "candidate", call->candidate);
    if (call->fork)
        field_string(&o->text, "fork", call->fork);
    field_int(&o->text, "depth", call->depth);
    field_string(&o->text, "model", call->model);
    field_time(&o->text, "started", call->started_ms);
    field_time(&o->text, "ended", call->ended_ms);
    field_string(&o->text, "status", call->status);
    if (call->from_loop)
        steps_add_json(o, "request", &call->request);
    else
        steps_add_text(o, "request", &call->request);
    steps_add_text(o, "reply", &call->reply);
    field_string(&o->text, "finish", call->finish);
    field_string(&o->text, "error", call->error);
    add_int(o, "input_tokens", call->input_tokens, ended);
    add_int(o, "output_tokens", call->output_tokens, ended);
    field_bool(&o->text, "estimated", call->estimated);
    add_real(o, "cost", call->cost, ended && call->cost >= 0);
    add_int(o, "attempts", call->attempts, ended);
    add_real(o, "seconds", call->seconds, ended);
    field_int(&o->text, "repeated", call->repeated);
    if (call->asked_ms)
        steps_approval(&o->text, call);
}

void steps_cell(struct steps_out *o, const droste_record_cell *cell)
{
    bool ended = cell->ended_ms != 0;
    field_int(&o->text, "id", cell->id);
    if (cell->candidate)
        field_int(&o->text, "candidate", cell->candidate);
    field_time(&o->text, "started", cell->started_ms);
    field_time(&o->text, "ended", cell->ended_ms);
    field_string(&o->text, "status", cell->status);
    steps_add_text(o, "code", &cell->code);
    steps_add_text(o, "stdout", &cell->standard_output);
    steps_add_text(o, "stderr", &cell->standard_error);
    steps_add_json(o, "submit", &cell->submit);
    steps_add_json(o, "error", &cell->error);
    steps_add_json(o, "variables", &cell->variables);
    steps_results(o, cell->media, cell->media_count);
    field_string(&o->text, "killed", cell->killed);
    add_int(o, "calls", cell->calls, ended);
    add_real(o, "seconds", cell->seconds, ended);
}

void steps_notes(struct steps_out *o)
{
    if (o->cut.len > 0)
        buf_printf(&o->text, ",\"cut\":{%s}", buf_text(&o->cut));
    if (o->as_text.len > 0)
        buf_printf(&o->text, ",\"as_text\":[%s]", buf_text(&o->as_text));
    buf_clear(&o->cut);
    buf_clear(&o->as_text);
}

void steps_close(struct steps_out *o)
{
    steps_notes(o);
    field_close(&o->text, '}');
    if (o->text.len >= DRAIN_FROM)
        steps_drain(o);
}
