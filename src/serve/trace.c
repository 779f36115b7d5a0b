/* serve/trace.c: see trace.h. A span is one write(2) to a file that was opened with O_APPEND, as
 * workers share it. Names and attributes are those of OpenTelemetry's conventions for HTTP servers,
 * and for generative AI where a request executes code. No span has paths, code or bodies. */
#include "serve/trace.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/random.h"
#include "base/otlp.h"
#include "base/text.h"
#include "serve/http/request.h"
#include "serve/log.h"

/* A client that does not record its own spans (the flag "sampled") wants none of this server. */
static bool trace_is_wanted(const struct request *r)
{
    bool is_public = r->route && route_scopes(r->route) == SCOPE_NONE;
    bool is_sampled = strchr("13579bdf", r->trace.span.flags[1]) != NULL;
    return r->server->traces_fd >= 0 && !is_public && !r->client->is_relay && is_sampled;
}

void trace_begin(struct request *r)
{
    struct request_trace *t = &r->trace;
    bool is_part = traceparent_parse(request_header_of(r, "traceparent"), &t->span);
    if (is_part)
        memcpy(t->parent, t->span.span, sizeof t->parent);
    else /* others are ignored, as the standard says */
        t->span = (struct traceparent){ .flags = "01" };
    t->is_written = trace_is_wanted(r) && random_hex(t->span.span, SPAN_ID_SIZE - 1, NULL) == 0 &&
                    (is_part || random_hex(t->span.trace, TRACE_ID_SIZE - 1, NULL) == 0);
}

bool trace_field(const struct request *r, char out[TRACEPARENT_SIZE])
{
    if (!r->trace.parent[0] && !r->trace.is_written)
        return false;
    traceparent_write(&r->trace.span, r->trace.span.span, out);
    return true;
}

static bool trace_is_cell(const struct route *route)
{
    static const char *const cells[] = { "/v1/sandboxes/{id}/execute", "/execute" };
    for (size_t i = 0; i < array_length(cells); i++)
        if (strcmp(route->path, cells[i]) == 0)
            return true;
    return false;
}

static void trace_write(struct buf *out, const struct request *r)
{
    const struct route *route = r->route;
    int64_t now = clock_wall_ms() * 1000000;
    cleanup_free char *name = text_printf("%s %s", r->method, route ? route->path : "");
    const struct span span = { .trace = r->trace.span.trace,
        .id = r->trace.span.span,
        .parent = r->trace.parent,
        .name = name ? name : r->method,
        .kind = SPAN_SERVER,
        .started_ns = now - (int64_t)(clock_ns() - r->began_ns),
        .ended_ns = now };
    char status[16];
    snprintf(status, sizeof status, "%u", r->status);
    span_open(out, &span);
    span_string(out, "http.request.method", r->method);
    span_string(out, "http.route", route ? route->path : NULL);
    span_int(out, "http.response.status_code", r->status);
    span_int(out, "http.request.body.size", (int64_t)r->received);
    span_string(out, "droste.request.id", r->request_id);
    span_string(out, "droste.key.id", r->account ? r->account->key.id : NULL);
    span_string(out, route && route->of_run ? "droste.run.id" : "droste.sandbox.id", r->id);
    if (route && trace_is_cell(route)) {
        span_string(out, "gen_ai.operation.name", "execute_tool");
        span_string(out, "gen_ai.tool.name", "python");
    }
    if (r->status == 201 && r->reply)
        span_string(
            out, "droste.created", MHD_get_response_header(r->reply, MHD_HTTP_HEADER_LOCATION));
    span_close(out, r->status >= 500 ? status : NULL, NULL);
}

void trace_end(struct request *r)
{
    cleanup_buf struct buf line = { 0 };
    if (!r->begun || !r->trace.is_written || !r->account) /* strangers fill no file */
        return;
    spans_begin(&line, droste_version());
    trace_write(&line, r);
    spans_end(&line);
    if (buf_failed(&line) || write(r->server->traces_fd, line.data, line.len) != (ssize_t)line.len)
        log_event(r->server, LOG_ERROR, "the span of a request was not written: %s",
            buf_failed(&line) ? "out of memory" : strerror(errno));
}
