/* serve/trace.h: each request as a span of a trace, in the file of `--traces`, and below it the
 * cells and commands that it starts.
 *
 * A client's field `traceparent` (W3C Trace Context) makes the request a part of its trace. What it
 * causes in turn (runs, calls of models, requests to other servers) names the span of the request,
 * or of the cell.
 */
#ifndef DROSTE_SERVE_TRACE_H
#define DROSTE_SERVE_TRACE_H

#include "base/traceparent.h"
#include "serve/server.h"

struct request;
struct sandbox;

struct request_trace {
    struct traceparent span;   /* `trace` "": neither traced nor a part of a trace */
    char parent[SPAN_ID_SIZE]; /* "": it is the trace's root */
    bool is_written;           /* the span is this server's, and goes into the file */
};

/* A cell or a command of a sandbox, which may outlive its request. */
struct trace_step {
    struct server *server;
    struct traceparent span; /* `trace` "": as above */
    char parent[SPAN_ID_SIZE];
    char sandbox[SERVE_ID_SIZE], key[KEY_ID_SIZE];
    char program[64];  /* of a command; the language of a cell */
    uint64_t began_ns; /* 0: none is under way */
    bool is_written;   /* when it ends */
};

/* Takes the client's field, and gives the request a span. */
void trace_begin(struct request *r);
/* The field for what a span causes. False: it is in no trace. */
bool trace_field(const struct traceparent *span, char out[TRACEPARENT_SIZE]);
/* Writes the span of a request that has been answered. */
void trace_end(struct request *r);

/* Begins a step below the request's span; NULL: in a trace of its own. `program` may be a path. */
void trace_step_begin(struct trace_step *step, const struct sandbox *sb, const struct request *r,
    const char *program);
/* Writes the span, once. */
void trace_cell_end(struct trace_step *step, const char *status);
/* `end`: NULL if its reader left before. */
void trace_command_end(struct trace_step *step, int64_t pid, const droste_command_reply *end);

#endif
