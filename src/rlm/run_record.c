/* rlm/run_record.c: what the record is told of a run; see run.h. */
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"
#include "rlm/run.h"

#ifndef DROSTE_VERSION
#define DROSTE_VERSION "0"
#endif

/* ---- the run ---- */

static char *context_json(const struct context *c)
{
    struct buf out = { 0 };
    if (!c)
        return NULL;
    buf_puts(&out, "{\"source\":");
    if (text_is_utf8(c->source, strlen(c->source), NULL))
        json_append_string(&out, c->source, strlen(c->source));
    else
        buf_puts(&out, "null");
    buf_printf(&out, ",\"bytes\":%zu,\"files\":%llu,\"left_out\":%llu}", c->len,
        (unsigned long long)c->files, (unsigned long long)c->left_out);
    return buf_steal(&out);
}

/* But for the iterations these are of the whole tree. */
static char *limits_json(const struct rlm_run *r)
{
    const struct rlm_options *o = &r->tree->o;
    struct buf out = { 0 };
    buf_printf(&out,
        "{\"max_iterations\":%u,\"max_llm_calls\":%lld,\"input_tokens\":%lld,"
        "\"output_tokens\":%lld,\"total_tokens\":%lld,\"cost\":%g,\"seconds\":%g,"
        "\"depth\":%u,\"execute_timeout\":%g,\"llm_call_timeout\":%g}",
        r->place.iterations, (long long)o->limits.calls, (long long)o->limits.input_tokens,
        (long long)o->limits.output_tokens, (long long)o->limits.total_tokens, o->limits.cost,
        o->limits.seconds, o->limits.depth, o->session.execute_timeout, o->call_timeout);
    return buf_steal(&out);
}

static const char *model_name(const struct rlm_run *r)
{
    return r->model ? r->model : lm_name(r->lm);
}

int run_record_begin(struct rlm_run *r, struct error *err)
{
    const struct rlm_run *parent = r->place.parent;
    cleanup_free char *context = context_json(r->place.context), *limits = limits_json(r);
    struct store_run_begin begin = {
        .parent = parent ? parent->result.run : NULL,
        .parent_cell = r->place.parent_cell,
        .depth = r->place.depth,
        .model = model_name(r),
        .environment = r->tree->o.env_name,
        .version = DROSTE_VERSION,
        .question = store_text(r->question),
        .context = store_text(context),
        .limits = store_text(limits),
    };
    struct store *store = r->tree->o.store;
    return store ? store_run_begin(store, &begin, r->result.run, err) : 0;
}

int run_record_isolation(struct rlm_run *r, struct error *err)
{
    struct store *store = r->tree->o.store;
    const char *name = isolation_name(r->result.isolation);
    return store ? store_run_note_isolation(store, r->result.run, name, err) : 0;
}

void run_record_end(struct rlm_run *r)
{
    struct rlm_result *result = &r->result;
    const struct spent *spent = &r->account.spent;
    struct store_run_end end = {
        .status = rlm_status_name(result->status),
        .error = result->error.code ? result->error.text : NULL,
        .answer = store_text(result->answer),
        .iterations = result->iterations,
        .calls = spent->calls,
        .input_tokens = spent->input_tokens,
        .output_tokens = spent->output_tokens,
        .cost = spent_cost(spent),
        .seconds = result->seconds,
    };
    struct error err = { 0 };
    if (!r->tree->o.store || !result->run[0])
        return;
    if (store_run_end(r->tree->o.store, result->run, &end, &err) < 0 && !result->error.code)
        result->error = err;
}

/* ---- its steps ---- */

int run_record_turn(struct rlm_run *r, struct error *err)
{
    struct store *store = r->tree->o.store;
    return store ? store_turn_begin(store, r->result.run, r->turn, err) : 0;
}

/* The messages that are new since the last call, as JSON; the record keeps each once. */
static void new_messages(const struct rlm_run *r, struct buf *out)
{
    buf_putc(out, '[');
    for (size_t i = r->recorded; i < r->message_count; i++) {
        buf_printf(out, "%s{\"role\":\"%s\",\"content\":", i > r->recorded ? "," : "",
            r->messages[i].role);
        json_append_string(out, r->messages[i].text, r->messages[i].len);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

int run_record_call(struct rlm_run *r, struct error *err)
{
    cleanup_buf struct buf request = { 0 };
    if (!r->tree->o.store)
        return 0;
    new_messages(r, &request);
    struct store_call_begin begin = {
        .run = r->result.run,
        .turn = r->turn,
        .depth = r->place.depth,
        .kind = "root",
        .model = model_name(r),
        .request = { buf_text(&request), request.len },
    };
    return store_call_begin(r->tree->o.store, &begin, &r->call_record, err);
}

int run_record_call_end(struct rlm_run *r, const struct lm_reply *reply, struct error *err)
{
    struct store_call_end end = broker_call_end(reply);
    int64_t record = r->call_record;
    r->call_record = 0;
    return record ? store_call_end(r->tree->o.store, record, &end, err) : 0;
}

int run_record_cell(struct rlm_run *r, const char *code, size_t len, struct error *err)
{
    struct store_cell_begin begin = {
        .run = r->result.run, .turn = r->turn, .code = { code, len }
    };
    struct store *store = r->tree->o.store;
    return store ? store_cell_begin(store, &begin, &r->cell_record, err) : 0;
}

int run_record_cell_end(struct rlm_run *r, const struct cell_result *c, struct error *err)
{
    cleanup_json struct json_object *e = json_object_new_object();
    if (!r->tree->o.store)
        return 0;
    if (e && c->error.type) {
        json_put_text(e, "type", c->error.type);
        json_put_text(e, "message", c->error.message);
        json_put_text(e, "traceback", c->error.traceback);
    }
    struct store_cell_end end = {
        .status = cell_status_name(c->status),
        .killed = c->killed[0] ? c->killed : NULL,
        .standard_output = { buf_text(&c->out), c->out.len },
        .standard_error = { buf_text(&c->err), c->err.len },
        .submit = { c->submit, c->submit_len },
        .error = store_text(c->error.type && e ? json_text(e, NULL) : NULL),
        .variables = store_text(c->variables ? json_text(c->variables, NULL) : NULL),
        .calls = c->calls,
        .seconds = c->seconds,
    };
    int64_t cell = r->cell_record;
    r->cell_record = 0;
    return store_cell_end(r->tree->o.store, cell, &end, err);
}

void run_record_cell_lost(struct rlm_run *r, const char *by)
{
    struct store_cell_end end = { .status = cell_status_name(CELL_KILLED), .killed = by };
    if (r->cell_record)
        store_cell_end(r->tree->o.store, r->cell_record, &end, NULL);
    r->cell_record = 0;
}
