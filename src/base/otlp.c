/* base/otlp.c: see otlp.h. */
#include "base/otlp.h"

#include <stdio.h>
#include <string.h>

#include "base/json/fields.h"

enum { SPAN_STATUS_ERROR = 2 };

static void span_attribute(struct buf *out, const char *key)
{
    field_open(out, NULL, '{');
    field_string(out, "key", key);
    field_open(out, "value", '{');
}

static void span_attribute_end(struct buf *out)
{
    field_close(out, '}');
    field_close(out, '}');
}

void span_text(struct buf *out, const char *key, const char *text, size_t len)
{
    if (!text || len == 0)
        return;
    span_attribute(out, key);
    field_text(out, "stringValue", text, len);
    span_attribute_end(out);
}

void span_string(struct buf *out, const char *key, const char *text)
{
    span_text(out, key, text, text ? strlen(text) : 0);
}

/* JSON of protocol buffers has 64-bit numbers as texts. */
static void span_put_int(struct buf *out, const char *key, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)value);
    field_string(out, key, text);
}

void span_int(struct buf *out, const char *key, int64_t value)
{
    span_attribute(out, key);
    span_put_int(out, "intValue", value);
    span_attribute_end(out);
}

void span_number(struct buf *out, const char *key, double value)
{
    span_attribute(out, key);
    field_number(out, "doubleValue", value);
    span_attribute_end(out);
}

void spans_begin(struct buf *out, const char *version)
{
    field_open(out, NULL, '{');
    field_open(out, "resourceSpans", '[');
    field_open(out, NULL, '{');
    field_open(out, "resource", '{');
    field_open(out, "attributes", '[');
    span_string(out, "service.name", "droste");
    span_string(out, "service.version", version);
    field_close(out, ']');
    field_close(out, '}');
    field_open(out, "scopeSpans", '[');
    field_open(out, NULL, '{');
    field_open(out, "scope", '{');
    field_string(out, "name", "droste");
    field_string(out, "version", version);
    field_close(out, '}');
    field_open(out, "spans", '[');
}

void spans_end(struct buf *out)
{
    buf_puts(out, "]}]}]}\n");
}

void span_open(struct buf *out, const struct span *span)
{
    buf_puts(out, "{");
    field_string(out, "traceId", span->trace);
    field_string(out, "spanId", span->id);
    if (span->parent[0])
        field_string(out, "parentSpanId", span->parent);
    field_string(out, "name", span->name);
    field_int(out, "kind", span->kind);
    span_put_int(out, "startTimeUnixNano", span->started_ns);
    span_put_int(out, "endTimeUnixNano", span->ended_ns);
    field_open(out, "attributes", '[');
}

void span_close(struct buf *out, const char *failed, const char *error)
{
    span_string(out, "error.type", failed);
    field_close(out, ']');
    if (failed) {
        field_open(out, "status", '{');
        field_int(out, "code", SPAN_STATUS_ERROR);
        if (error)
            field_text(out, "message", error, strlen(error));
        field_close(out, '}');
    }
    field_close(out, '}');
}
