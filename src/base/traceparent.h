/* base/traceparent.h: the header field `traceparent` of W3C Trace Context (level 1). */
#pragma once

#include <stdbool.h>

enum { TRACE_ID_SIZE = 33, SPAN_ID_SIZE = 17, TRACEPARENT_SIZE = 56 }; /* with the NUL */

struct traceparent {
    char trace[TRACE_ID_SIZE];
    char span[SPAN_ID_SIZE];
    char flags[3];
};

/* Accepts version 00, and of later ones what 00 has. */
bool traceparent_parse(const char *text, struct traceparent *out);
/* The field of a request that is the span `span` of the same trace. */
void traceparent_write(
    const struct traceparent *parent, const char *span, char out[TRACEPARENT_SIZE]);
/* The span of a model call with this idempotency key of 32 digits: its last half, because calls of
 * one batch share the first. */
const char *traceparent_call_span(const char *key);
