/* base/otlp.h: spans of a trace as OTLP/JSON, the form that OpenTelemetry's collectors take.
 *
 * Everything is appended to a text: one line with a resource, a scope and its spans.
 */
#ifndef DROSTE_BASE_OTLP_H
#define DROSTE_BASE_OTLP_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* What a span is of: something in this program, a request that it answers, one that it sends. */
enum span_kind { SPAN_INTERNAL = 1, SPAN_SERVER = 2, SPAN_CLIENT = 3 };

struct span {
    const char *trace, *id, *parent; /* parent "": it is the trace's root */
    const char *name;
    enum span_kind kind;
    int64_t started_ns, ended_ns; /* since 1970 */
};

void spans_begin(struct buf *out, const char *version);
void spans_end(struct buf *out);
/* Opens a span and its attributes. The caller separates it from one before. */
void span_open(struct buf *out, const struct span *span);
/* Attributes; those without a value are left out. */
void span_text(struct buf *out, const char *key, const char *text, size_t len);
void span_string(struct buf *out, const char *key, const char *text);
void span_int(struct buf *out, const char *key, int64_t value);
void span_number(struct buf *out, const char *key, double value);
/* Closes the span, with an error (may be NULL) if `failed` is its kind. */
void span_close(struct buf *out, const char *failed, const char *error);

#endif
