/* serve/trace.h: each request as a span of a trace, in the file of `--traces`.
 *
 * A client's field `traceparent` (W3C Trace Context) makes the request a part of its trace. What it
 * causes in turn (runs, calls of models, requests to other servers) names the request's span.
 */
#ifndef DROSTE_SERVE_TRACE_H
#define DROSTE_SERVE_TRACE_H

#include "base/traceparent.h"

struct request;

struct request_trace {
    struct traceparent span;   /* `trace` "": neither traced nor a part of a trace */
    char parent[SPAN_ID_SIZE]; /* "": it is the trace's root */
    bool is_written;           /* the span is this server's, and goes into the file */
};

/* Takes the client's field, and gives the request a span. */
void trace_begin(struct request *r);
/* The field for what the request causes. False: its client is in no trace. */
bool trace_field(const struct request *r, char out[TRACEPARENT_SIZE]);
/* Writes the span of a request that has been answered. */
void trace_end(struct request *r);

#endif
