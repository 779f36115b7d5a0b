/* serve/trace.c: see trace.h. A span is one write(2) to a file that was opened with O_APPEND, as
 * workers share it. Names and attributes are those of OpenTelemetry's conventions: for HTTP
 * servers, of generative AI for cells, and of command line programs, from the caller's side, for
 * commands. No span has paths, code, arguments or bodies. */
#include "serve/trace.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/random.h"
#include "base/otlp.h"
#include "base/text.h"
#include "serve/log.h"
#include "serve/sandbox/sandbox.h"

/* A client that does not record its own spans (the flag "sampled") wants none of this server. */
static bool trace_is_wanted(const struct server *s, const struct traceparent *of)
{
    return s->traces_fd >= 0 && strchr("13579bdf", of->flags[1]);
}

/* Gives a span an id, and a trace if it is in none. */
static bool trace_make_ids(struct traceparent *span)
{
    return random_hex(span->span, SPAN_ID_SIZE - 1, NULL) == 0 &&
           (span->trace[0] || random_hex(span->trace, TRACE_ID_SIZE - 1, NULL) == 0);
}

void trace_begin(struct request *r)
{
    struct request_trace *t = &r->trace;
    bool is_public = r->route && route_scopes(r->route) == SCOPE_NONE;
    if (traceparent_parse(request_header_of(r, "traceparent"), &t->span))
        memcpy(t->parent, t->span.span, sizeof t->parent);
    else /* others are ignored, as the standard says */
        t->span = (struct traceparent){ .flags = "01" };
    t->is_written = trace_is_wanted(r->server, &t->span) && !is_public && !r->client->is_relay &&
                    trace_make_ids(&t->span);
}

bool trace_field(const struct traceparent *span, char out[TRACEPARENT_SIZE])
{
    if (span->trace[0])
        traceparent_write(span, span->span, out);
    return span->trace[0] != '\0';
}

/* Opens a line with one span, which ends now. */
static void trace_open(struct buf *out, const struct traceparent *of, const char *parent,
    const char *name, enum span_kind kind, uint64_t began_ns)
{
    int64_t now = clock_wall_ms() * 1000000;
    const struct span span = { .trace = of->trace,
        .id = of->span,
        .parent = parent,
        .name = name,
        .kind = kind,
        .started_ns = now - (int64_t)(clock_ns() - began_ns),
        .ended_ns = now };
    spans_begin(out, droste_version());
    span_open(out, &span);
}

/* Closes it, and writes the line. `failed`: the kind of error, or NULL. */
static void trace_close(struct server *s, struct buf *line, const char *failed)
{
    span_close(line, failed, NULL);
    spans_end(line);
    if (buf_failed(line) || write(s->traces_fd, line->data, line->len) != (ssize_t)line->len)
        log_event(s, LOG_ERROR, "a span was not written: %s",
            buf_failed(line) ? "out of memory" : strerror(errno));
}

void trace_end(struct request *r)
{
    cleanup_buf struct buf line = { 0 };
    const struct route *route = r->route;
    /* Strangers fill no file. Another worker may have found out who asks. */
    bool is_known = r->account || (r->is_relayed && r->status < 400);
    if (!r->begun || !r->trace.is_written || !is_known)
        return;
    cleanup_free char *name = text_printf("%s %s", r->method, route ? route->path : "");
    char status[16];
    snprintf(status, sizeof status, "%u", r->status);
    trace_open(
        &line, &r->trace.span, r->trace.parent, name ? name : r->method, SPAN_SERVER, r->began_ns);
    span_string(&line, "http.request.method", r->method);
    span_string(&line, "http.route", route ? route->path : NULL);
    span_int(&line, "http.response.status_code", r->status);
    span_int(&line, "http.request.body.size", (int64_t)r->received);
    span_string(&line, "droste.request.id", r->request_id);
    span_string(&line, "droste.key.id", r->account ? r->account->key.id : NULL);
    span_string(&line, route && route->of_run ? "droste.run.id" : "droste.sandbox.id", r->id);
    if (r->status == 201 && r->reply)
        span_string(
            &line, "droste.created", MHD_get_response_header(r->reply, MHD_HTTP_HEADER_LOCATION));
    trace_close(r->server, &line, r->status >= 500 ? status : NULL);
}

/* ---- cells and commands ---- */

void trace_step_begin(
    struct trace_step *step, const struct sandbox *sb, const struct request *r, const char *program)
{
    size_t len;
    const char *name = text_last_name(program, &len);
    *step = (struct trace_step){ .server = sb->server, .span.flags = "01", .began_ns = clock_ns() };
    if (r)
        step->span = r->trace.span;
    memcpy(step->parent, step->span.span, sizeof step->parent);
    step->is_written = trace_is_wanted(sb->server, &step->span) && trace_make_ids(&step->span);
    memcpy(step->sandbox, sb->id, sizeof step->sandbox);
    memcpy(step->key, sb->owner->key.id, sizeof step->key);
    snprintf(step->program, sizeof step->program, "%.*s", len < 60 ? (int)len : 60, name);
}

static void trace_step_open(
    const struct trace_step *step, struct buf *out, const char *name, enum span_kind kind)
{
    trace_open(out, &step->span, step->parent, name, kind, step->began_ns);
    span_string(out, "droste.sandbox.id", step->sandbox);
    span_string(out, "droste.key.id", step->key);
}

void trace_cell_end(struct trace_step *step, const char *status)
{
    cleanup_buf struct buf line = { 0 };
    char name[sizeof step->program + 16];
    bool is_fine = strcmp(status, "ok") == 0 || strcmp(status, "submitted") == 0;
    if (!step->is_written)
        return;
    step->is_written = false;
    snprintf(name, sizeof name, "execute_tool %s", step->program);
    trace_step_open(step, &line, name, SPAN_INTERNAL);
    span_string(&line, "gen_ai.operation.name", "execute_tool");
    span_string(&line, "gen_ai.tool.name", step->program);
    span_string(&line, "droste.cell.status", status);
    trace_close(step->server, &line, is_fine ? NULL : status);
}

void trace_command_end(struct trace_step *step, int64_t pid, const droste_command_reply *end)
{
    cleanup_buf struct buf line = { 0 };
    char failed[16] = "timeout";
    if (!step->is_written)
        return;
    step->is_written = false;
    trace_step_open(step, &line, step->program, SPAN_CLIENT);
    span_string(&line, "process.executable.name", step->program);
    span_int(&line, "process.pid", pid);
    if (end)
        span_int(&line, "process.exit.code", end->status);
    if (end && !end->timed_out)
        snprintf(failed, sizeof failed, "%d", end->status);
    trace_close(step->server, &line, end && (end->status != 0 || end->timed_out) ? failed : NULL);
}
