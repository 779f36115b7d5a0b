/* serve/e2b/connect.c: see connect.h. */
#include "serve/e2b/connect.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/envelope.h"

enum { CONNECT_SILENT_SECONDS = 90, CONNECT_SILENT_LEAST = 1, CONNECT_SILENT_MOST = 3600 };

const char *connect_code(unsigned status)
{
    static const struct {
        unsigned status;
        const char *code;
    } codes[] = { { 400, "invalid_argument" }, { 401, "unauthenticated" },
        { 403, "permission_denied" }, { 404, "not_found" }, { 409, "already_exists" },
        { 410, "unavailable" }, { 413, "resource_exhausted" }, { 429, "resource_exhausted" },
        { 499, "canceled" }, { 501, "unimplemented" }, { 503, "unavailable" },
        { 504, "deadline_exceeded" }, { 507, "resource_exhausted" } };
    for (size_t i = 0; i < array_length(codes); i++)
        if (codes[i].status == status)
            return codes[i].code;
    return "internal";
}

uint64_t connect_timeout_ms(struct request *r)
{
    const char *text = request_header_of(r, "Connect-Timeout-Ms");
    size_t digits = text ? strspn(text, "0123456789") : 0; /* strtoull(3) takes a sign */
    return digits > 0 && digits <= 10 && text[digits] == '\0' ? strtoull(text, NULL, 10) : 0;
}

bool connect_take_message(struct request *r)
{
    struct error why = { 0 };
    size_t size = 0;
    const char *data = buf_text(&r->body);
    if (envelope_size(data, r->body.len, CONNECT_BODY_MAX, &size, &why) < 0) {
        request_refuse(r, 413, "too_large", "%s", why.text);
        return false;
    }
    if (size == 0 || size != r->body.len || data[0] != 0) {
        request_refuse(r, 400, "envelope", "the body is not one uncompressed envelope");
        return false;
    }
    json_object_put(steal(&r->json));
    if (size > ENVELOPE_HEAD && json_parse(data + ENVELOPE_HEAD, size - ENVELOPE_HEAD,
                                    &json_limits_large, &r->json, &why) < 0) {
        request_refuse(r, 400, "json", "the message is not valid JSON: %s", why.text);
        return false;
    }
    if (!r->json)
        r->json = json_object_new_object();
    return r->json != NULL;
}

/* ---- streams ---- */

void connect_leave(struct connect_stream *c)
{
    if (c->link) {
        *c->link = c->next;
        if (c->next)
            c->next->link = c->link;
    }
    c->link = NULL;
    c->request = NULL;
}

void connect_open(struct connect_stream *c, struct request *r, struct e2b_sandbox *e)
{
    const char *text = request_header_of(r, "Keepalive-Ping-Interval");
    long seconds = text ? strtol(text, NULL, 10) : CONNECT_SILENT_SECONDS;
    if (seconds < CONNECT_SILENT_LEAST || seconds > CONNECT_SILENT_MOST)
        seconds = CONNECT_SILENT_SECONDS;
    c->request = r;
    c->interval_ns = (uint64_t)seconds * 1000000000u;
    c->spoken_ns = clock_ns();
    c->next = e->streams;
    c->link = &e->streams;
    if (c->next)
        c->next->link = &c->next;
    e->streams = c;
    request_stream(r, "application/connect+json");
}

static void connect_push_bytes(
    struct connect_stream *c, unsigned flags, const char *text, size_t len)
{
    cleanup_buf struct buf out = { 0 };
    if (!c->request)
        return;
    if (text)
        envelope_append(&out, flags, text, len);
    if (!text || buf_failed(&out)) {
        connect_cut(c);
        return;
    }
    c->spoken_ns = clock_ns();
    request_push(c->request, out.data, out.len);
}

static void connect_push_envelope(
    struct connect_stream *c, unsigned flags, struct json_object *message)
{
    cleanup_json struct json_object *held = message;
    size_t len = 0;
    const char *text = message ? json_text(message, &len) : NULL;
    connect_push_bytes(c, flags, text, len);
}

void connect_push_text(struct connect_stream *c, const struct buf *text)
{
    connect_push_bytes(c, 0, buf_failed(text) ? NULL : buf_text(text), text->len);
}

void connect_push(struct connect_stream *c, struct json_object *message)
{
    connect_push_envelope(c, 0, message);
}

void connect_push_event(struct connect_stream *c, const char *name, struct json_object *event)
{
    struct json_object *inner = json_object_new_object(), *outer = json_object_new_object();
    if (c->is_plain && outer && json_put(outer, name, event)) {
        json_object_put(inner);
        connect_push(c, outer);
        return;
    }
    if (!c->is_plain && inner && outer && json_put(inner, name, event) &&
        json_put(outer, "event", inner)) {
        connect_push(c, outer);
        return;
    }
    json_object_put(outer);
    connect_cut(c);
}

void connect_end(struct connect_stream *c, const char *code, const char *text)
{
    struct json_object *o = json_object_new_object(), *error = NULL;
    if (o && code) {
        error = json_object_new_object();
        json_put_text(error, "code", code);
        json_put_text(error, "message", text);
        json_put(o, "error", error);
    }
    connect_push_envelope(c, ENVELOPE_END, o);
    if (c->request)
        request_end(c->request);
    connect_leave(c);
}

void connect_cut(struct connect_stream *c)
{
    if (c->request)
        request_cut(c->request);
    connect_leave(c);
}

void connect_sweep(struct e2b_sandbox *e, uint64_t now_ns)
{
    struct connect_stream *next;
    for (struct connect_stream *c = e->streams; c; c = next) {
        next = c->next;
        if (c->deadline_ns && now_ns > c->deadline_ns)
            connect_end(c, "deadline_exceeded", "the time of this stream is over");
        else if (now_ns > c->spoken_ns + c->interval_ns)
            connect_push_event(c, "keepalive", json_object_new_object());
    }
}
