/* export/otlp.c: see otlp.h.
 *
 * Names and attributes are those of OpenTelemetry's conventions for generative AI. All ids follow
 * from the record: the trace's from the setting `traceparent` or from the run, a call's from its
 * idempotency key, as the call's own header field has it. A turn has no end in the record: it ends
 * with its last step. A step that has not ended has no span.
 */
#include "export/otlp.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "base/otlp.h"
#include "base/traceparent.h"
#include "base/error.h"
#include "export/steps.h"

enum { SETTINGS_MOST = 16 << 20, CONVERSATION_MOST = 1000 };

struct otlp_turn {
    char run[DROSTE_RUN_ID_SIZE];
    int64_t number, started_ms, ended_ms, kept;
};

struct otlp {
    struct steps_out out;
    struct traceparent root;               /* `span` "": the run is the trace's root */
    char conversation[DROSTE_RUN_ID_SIZE]; /* that the run continues: its first run; "": none */
    bool has_begun, has_span;
    struct otlp_turn *turns; /* of runs that the visit is in */
    size_t count, room;
};

/* A span without its attributes. */
struct otlp_span {
    char id[SPAN_ID_SIZE], parent[SPAN_ID_SIZE]; /* parent "": none */
    const char *name;
    enum span_kind kind;
    int64_t started_ms, ended_ms;
};

/* ---- ids ---- */

/* What has no id of 64 bits in the record gets the beginning of a hash. */
static void otlp_id(struct otlp *o, size_t digits, char *out, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void otlp_id(struct otlp *o, size_t digits, char *out, const char *format, ...)
{
    char text[2 * DROSTE_RUN_ID_SIZE], hash[HASH_TEXT_SIZE];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (hash_sha256(text, (size_t)len, hash, &o->out.error) < 0)
        memset(hash, '1', sizeof hash);
    memcpy(out, hash, digits);
    out[digits] = '\0';
}

static void otlp_run_id(struct otlp *o, const char *run, char out[SPAN_ID_SIZE])
{
    otlp_id(o, SPAN_ID_SIZE - 1, out, "run %s", run);
}

static void otlp_cell_id(struct otlp *o, const char *run, int64_t cell, char out[SPAN_ID_SIZE])
{
    otlp_id(o, SPAN_ID_SIZE - 1, out, "cell %s %lld", run, (long long)cell);
}

static void otlp_turn_id(struct otlp *o, const char *run, int64_t turn, char out[SPAN_ID_SIZE])
{
    if (turn > 0)
        otlp_id(o, SPAN_ID_SIZE - 1, out, "turn %s %lld", run, (long long)turn);
    else
        otlp_run_id(o, run, out);
}

/* ---- values ---- */

static void otlp_string(struct otlp *o, const char *key, const char *text)
{
    span_string(&o->out.text, key, text);
}

static void otlp_int(struct otlp *o, const char *key, int64_t value)
{
    span_int(&o->out.text, key, value);
}

static void otlp_cost(struct otlp *o, double dollars)
{
    if (dollars >= 0)
        span_number(&o->out.text, "droste.cost", dollars);
}

/* "openai/gpt-5". The conventions have names of their own for some providers. */
static void otlp_model(struct otlp *o, const char *model)
{
    static const struct {
        const char *ours, *theirs;
    } names[] = { { "gemini/", "gcp.gemini" }, { "google/", "gcp.gemini" },
        { "azure/", "azure.ai.openai" } };
    const char *slash = model ? strchr(model, '/') : NULL, *provider = model;
    size_t len = slash ? (size_t)(slash - model) : 0;
    for (size_t i = 0; slash && i < array_length(names); i++)
        if (strncmp(model, names[i].ours, len + 1) == 0) {
            provider = names[i].theirs;
            len = strlen(provider);
            break;
        }
    span_text(&o->out.text, "gen_ai.provider.name", provider, len);
    otlp_string(o, "gen_ai.request.model", slash ? slash + 1 : model);
}

static void otlp_tokens(struct otlp *o, int64_t input, int64_t output, double cost)
{
    otlp_int(o, "gen_ai.usage.input_tokens", input);
    otlp_int(o, "gen_ai.usage.output_tokens", output);
    otlp_cost(o, cost);
}

/* ---- spans ---- */

/* Opens the span and its attributes. */
static void otlp_open(struct otlp *o, const struct otlp_span *span)
{
    struct buf *b = &o->out.text; /* empty: all before was flushed */
    const struct span opened = { .trace = o->root.trace,
        .id = span->id,
        .parent = span->parent,
        .name = span->name,
        .kind = span->kind,
        .started_ns = span->started_ms * 1000000,
        .ended_ns = span->ended_ms * 1000000 };
    if (o->has_span)
        buf_puts(b, ",");
    o->has_span = true;
    span_open(b, &opened);
}

/* Closes them, with an error (may be NULL) if `failed` is its kind. */
static int otlp_close(struct otlp *o, const char *failed, const char *error, droste_error *err)
{
    span_close(&o->out.text, failed, error);
    return steps_flush(&o->out, err);
}

/* The step is in this turn, which lasts until its last step. */
static void otlp_in_turn(struct otlp *o, const char *run, int64_t turn, int64_t ended_ms)
{
    for (size_t i = o->count; i-- > 0;)
        if (o->turns[i].number == turn && strcmp(o->turns[i].run, run) == 0) {
            if (ended_ms > o->turns[i].ended_ms)
                o->turns[i].ended_ms = ended_ms;
            return;
        }
}

static int otlp_turn(void *arg, const droste_record_turn *turn, droste_error *err)
{
    struct otlp *o = arg;
    if (!array_room(o->turns, o->count, &o->room))
        return error_memory(err);
    struct otlp_turn *t = &o->turns[o->count++];
    *t = (struct otlp_turn){ .number = turn->turn,
        .started_ms = turn->started_ms,
        .ended_ms = turn->started_ms,
        .kept = turn->kept };
    snprintf(t->run, sizeof t->run, "%s", turn->run);
    return 0;
}

static int otlp_call(void *arg, const droste_record_call *call, droste_error *err)
{
    struct otlp *o = arg;
    bool is_tool = strcmp(call->kind, "tool") == 0;
    const char *key_span = call->key ? traceparent_call_span(call->key) : NULL;
    char name[256];
    if (call->ended_ms == 0)
        return 0;
    otlp_in_turn(o, call->run, call->turn, call->ended_ms);
    snprintf(name, sizeof name, "%s %.200s", is_tool ? "execute_tool" : "chat", call->model);
    struct otlp_span span = { .name = name,
        .kind = is_tool ? SPAN_INTERNAL : SPAN_CLIENT,
        .started_ms = call->started_ms,
        .ended_ms = call->ended_ms };
    if (key_span)
        memcpy(span.id, key_span, sizeof span.id);
    else
        otlp_id(o, SPAN_ID_SIZE - 1, span.id, "call %s %lld", call->run, (long long)call->id);
    if (call->cell > 0)
        otlp_cell_id(o, call->run, call->cell, span.parent);
    else
        otlp_turn_id(o, call->run, call->turn, span.parent);
    otlp_open(o, &span);
    otlp_string(o, "gen_ai.operation.name", is_tool ? "execute_tool" : "chat");
    if (is_tool) {
        otlp_string(o, "gen_ai.tool.name", call->model);
    } else {
        otlp_model(o, call->model);
        otlp_tokens(o, call->input_tokens, call->output_tokens, call->cost);
        otlp_int(o, "droste.attempts", call->attempts);
        otlp_string(o, "droste.call.kind", call->kind);
    }
    return otlp_close(o, strcmp(call->status, "ok") == 0 ? NULL : call->status, call->error, err);
}

static int otlp_cell(void *arg, const droste_record_cell *cell, droste_error *err)
{
    struct otlp *o = arg;
    bool is_fine = strcmp(cell->status, "ok") == 0 || strcmp(cell->status, "submitted") == 0;
    if (cell->ended_ms == 0)
        return 0;
    otlp_in_turn(o, cell->run, cell->turn, cell->ended_ms);
    struct otlp_span span = { .name = "execute_tool python",
        .kind = SPAN_INTERNAL,
        .started_ms = cell->started_ms,
        .ended_ms = cell->ended_ms };
    otlp_cell_id(o, cell->run, cell->id, span.id);
    otlp_turn_id(o, cell->run, cell->turn, span.parent);
    otlp_open(o, &span);
    otlp_string(o, "gen_ai.operation.name", "execute_tool");
    otlp_string(o, "gen_ai.tool.name", "python");
    otlp_string(o, "droste.cell.status", cell->status);
    otlp_string(o, "droste.cell.killed", cell->killed);
    return otlp_close(o, is_fine ? NULL : cell->status, NULL, err);
}

/* ---- runs ---- */

/* The trace: that of the setting `traceparent`, or one of the run's own. */
static int otlp_find_trace(struct otlp *o, const droste_record_run *run, droste_error *err)
{
    cleanup_buf struct buf text = { 0 };
    cleanup_json struct json_object *settings = NULL;
    int rc = 0;
    if (run->settings.hash || run->settings.data)
        rc = droste_record_read(
            o->out.record, &run->settings, SETTINGS_MOST, steps_append_piece, &text, err);
    if (rc < 0)
        return rc;
    if (text.len > 0)
        (void)json_parse(buf_text(&text), text.len, &json_limits_large, &settings, NULL);
    if (!settings || !traceparent_parse(json_get_string(settings, "traceparent", ""), &o->root)) {
        otlp_id(o, TRACE_ID_SIZE - 1, o->root.trace, "trace %s", run->id);
        o->root.span[0] = '\0';
    }
    return 0;
}

static int otlp_begin(void *arg, const droste_record_run *run, droste_error *err)
{
    struct otlp *o = arg;
    if (o->has_begun)
        return 0;
    o->has_begun = true;
    int rc = otlp_find_trace(o, run, err);
    if (rc < 0)
        return rc;
    spans_begin(&o->out.text, run->version);
    return steps_flush(&o->out, err);
}

/* The turns of a run that has ended are complete. */
static int otlp_end_turns(struct otlp *o, const char *run, droste_error *err)
{
    size_t kept = 0;
    int rc = 0;
    for (size_t i = 0; i < o->count; i++) {
        const struct otlp_turn *t = &o->turns[i];
        char name[32];
        if (strcmp(t->run, run) != 0) {
            o->turns[kept++] = *t;
            continue;
        }
        snprintf(name, sizeof name, "turn %lld", (long long)t->number);
        struct otlp_span span = { .name = name,
            .kind = SPAN_INTERNAL,
            .started_ms = t->started_ms,
            .ended_ms = t->ended_ms };
        otlp_turn_id(o, run, t->number, span.id);
        otlp_run_id(o, run, span.parent);
        otlp_open(o, &span);
        otlp_int(o, "droste.turn", t->number);
        if (t->kept > 0)
            otlp_int(o, "droste.turn.kept", t->kept);
        rc = rc < 0 ? rc : otlp_close(o, NULL, NULL, err);
    }
    o->count = kept;
    return rc;
}

static int otlp_end(void *arg, const droste_record_run *run, droste_error *err)
{
    struct otlp *o = arg;
    bool is_fine = strcmp(run->status, "answered") == 0;
    int rc = otlp_end_turns(o, run->id, err);
    if (rc < 0 || run->ended_ms == 0)
        return rc;
    struct otlp_span span = { .name = "invoke_agent droste",
        .kind = SPAN_INTERNAL,
        .started_ms = run->started_ms,
        .ended_ms = run->ended_ms };
    otlp_run_id(o, run->id, span.id);
    if (!run->parent)
        memcpy(span.parent, o->root.span, sizeof span.parent);
    else if (run->parent_cell > 0)
        otlp_cell_id(o, run->parent, run->parent_cell, span.parent);
    else
        otlp_run_id(o, run->parent, span.parent);
    otlp_open(o, &span);
    otlp_string(o, "gen_ai.operation.name", "invoke_agent");
    otlp_string(o, "gen_ai.agent.name", "droste");
    otlp_string(o, "gen_ai.conversation.id", run->parent ? NULL : o->conversation);
    otlp_model(o, run->model);
    otlp_tokens(o, run->input_tokens, run->output_tokens, run->cost);
    otlp_string(o, "droste.run.id", run->id);
    otlp_string(o, "droste.run.status", run->status);
    otlp_string(o, "droste.isolation", run->isolation);
    otlp_string(o, "droste.batch.task", run->task);
    otlp_int(o, "droste.calls", run->calls);
    return otlp_close(o, is_fine ? NULL : run->status, run->error, err);
}

static int otlp_take_previous(void *arg, const droste_record_run *run, droste_error *err)
{
    char *previous = arg;
    snprintf(previous, DROSTE_RUN_ID_SIZE, "%s", run->previous ? run->previous : "");
    return 0;
}

/* Not within the visit, which has a transaction of its own. */
static void otlp_find_conversation(struct otlp *o, const char *run)
{
    char next[DROSTE_RUN_ID_SIZE];
    for (int i = 0; i < CONVERSATION_MOST; i++, run = o->conversation) {
        int rc = droste_record_get(o->out.record, run, otlp_take_previous, next, NULL);
        if (rc < 0 || !next[0])
            return;
        memcpy(o->conversation, next, sizeof next);
    }
}

static int otlp_write_run(struct otlp *o, const char *run, droste_error *err)
{
    static const droste_record_visitor visitor = { .run = otlp_begin,
        .turn = otlp_turn,
        .call = otlp_call,
        .cell = otlp_cell,
        .end = otlp_end,
        .children = true,
        .lazy = true };
    otlp_find_conversation(o, run);
    int rc = droste_record_visit(o->out.record, run, &visitor, o, err);
    if (rc < 0)
        return rc;
    spans_end(&o->out.text);
    return steps_flush(&o->out, err);
}

int otlp_write(droste_record *record, const droste_export *runs, FILE *file, droste_error *err)
{
    int rc = 0;
    for (size_t i = 0; i < runs->count && rc == 0; i++) {
        struct otlp o = { .out = { .record = record, .file = file } };
        rc = otlp_write_run(&o, runs->runs[i], err);
        steps_free(&o.out);
        free(o.turns);
    }
    return rc;
}
