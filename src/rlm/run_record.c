/* rlm/run_record.c: writes a run to the record. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/json/json.h"
#include "base/text.h"
#include "broker/approval.h"
#include "broker/model_call.h"
#include "rlm/run.h"

#ifndef DROSTE_VERSION
#define DROSTE_VERSION "0"
#endif

/* ---- the run ---- */

static void put_path(struct buf *out, const char *key, const char *path)
{
    bool fits = path && text_is_utf8(path, strlen(path), NULL);
    field_string(out, key, fits ? path : NULL);
}

static void run_record_put_context(struct buf *out, const struct context *c, const char *hash)
{
    field_open(out, NULL, '{');
    put_path(out, "source", c->source);
    field_int(out, "bytes", (int64_t)c->len);
    field_int(out, "files", (int64_t)c->files);
    field_int(out, "left_out", (int64_t)c->left_out);
    field_string(out, "sha256", hash);
    put_path(out, "path", c->path);
    if (c->name)
        field_string(out, "name", c->name);
    field_close(out, '}');
}

/* Except the iterations, these count the whole tree. */
static char *limits_json(const struct rlm_run *r)
{
    const struct rlm_options *o = &r->tree->o;
    struct buf out = { 0 };
    buf_putc(&out, '{');
    field_int(&out, "max_iterations", r->place.iterations);
    field_int(&out, "max_llm_calls", o->limits.calls);
    field_int(&out, "input_tokens", o->limits.input_tokens);
    field_int(&out, "output_tokens", o->limits.output_tokens);
    field_int(&out, "total_tokens", o->limits.total_tokens);
    field_number(&out, "cost", o->limits.cost);
    field_number(&out, "seconds", o->limits.seconds);
    field_int(&out, "depth", o->limits.depth);
    field_number(&out, "execute_timeout", o->session.execute_timeout);
    field_number(&out, "llm_call_timeout", o->call_timeout);
    if (o->session.spec.workspace)
        workspace_put_repo(o->session.spec.workspace, &out);
    if (o->session.spec.volume)
        field_string(&out, "volume", volume_name(o->session.spec.volume));
    buf_putc(&out, '}');
    return buf_steal(&out);
}

static const char *model_name(const struct rlm_run *r)
{
    return r->model ? r->model : lm_name(r->lm);
}

/* Hashes a context and keeps what is needed to have it again. A child's context is produced
 * again by its parent's code. */
static int keep_context(const struct rlm_run *r, size_t index, char hash[HASH_TEXT_SIZE],
    struct buf *kept, struct error *err)
{
    const struct run_place *place = &r->place;
    if (!place->context_hash)
        return context_keep(place->contexts->items[index], hash, kept, err);
    snprintf(hash, HASH_TEXT_SIZE, "%s", place->context_hash);
    return 0;
}

/* Describes its contexts: an object for one, a list for several. */
static int keep_contexts(
    const struct rlm_run *r, struct buf *json, struct buf *kept, struct error *err)
{
    size_t count = run_context_count(r);
    char hash[HASH_TEXT_SIZE] = "";
    int rc = 0;
    buf_puts(json, count > 1 ? "[" : "");
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = keep_context(r, i, hash, kept, err);
        if (rc == 0)
            run_record_put_context(json, r->place.contexts->items[i], hash);
    }
    buf_puts(json, count > 1 ? "]" : "");
    return rc == 0 && buf_failed(json) ? error_memory(err) : rc;
}

/* Reserves space for the start of a run. A child's question was requested by its parent's code,
 * which reserved the space; everything else is small. */
static int reserve_begin(struct rlm_run *r, const droste_record_run *begin, struct error *err)
{
    struct budget *budget = &r->tree->budget;
    size_t bytes = begin->context.len + begin->limits.len + begin->tools.len + begin->settings.len +
                   begin->context_data.len;
    if (!begin->parent)
        return budget_reserve_record(budget, bytes + begin->question.len, err);
    budget_count_record(budget, bytes);
    return 0;
}

int run_record_begin(struct rlm_run *r, struct error *err)
{
    const struct rlm_run *parent = r->place.parent;
    const char *above = parent && parent->result.run[0] ? parent->result.run : NULL;
    struct store *store = r->tree->o.store;
    cleanup_buf struct buf kept = { 0 }, context = { 0 };
    int rc = store ? keep_contexts(r, &context, &kept, err) : 0;
    if (!store || rc < 0)
        return rc;
    cleanup_free char *limits = limits_json(r);
    droste_record_run begin = {
        .id = parent ? NULL : r->tree->o.id,
        .account = parent ? NULL : r->tree->o.account,
        .parent = above,
        .parent_cell = r->place.parent_cell,
        .parent_fork = r->place.parent_fork,
        .previous = parent ? NULL : r->tree->o.previous,
        .depth = r->place.depth,
        .model = r->place.model ? r->place.model : lm_name(r->lm),
        .environment = r->tree->o.env_name,
        .version = DROSTE_VERSION,
        .question = store_text(r->place.question),
        .context = { context.data, context.len },
        .limits = store_text(limits),
        .tools = store_text(parent ? NULL : r->tree->o.tool_facts),
        .settings = store_text(parent ? NULL : r->tree->settings),
        .context_data = { kept.data, kept.len },
        .batch = parent ? NULL : r->tree->o.batch,
        .task = parent ? NULL : r->tree->o.task,
    };
    rc = reserve_begin(r, &begin, err);
    return rc < 0 ? rc : store_run_begin(store, &begin, r->result.run, err);
}

/* Ends a run of an earlier process that does not continue in this one. */
static int run_record_take_over(struct rlm_run *r)
{
    struct resume *stored = NULL;
    struct store *store = r->tree->o.store;
    int rc = resume_open(store, r->place.resume, false, &stored, NULL);
    if (rc < 0)
        return rc;
    snprintf(r->result.run, sizeof r->result.run, "%s", r->place.resume);
    r->result.iterations = (unsigned)replay_log_turns(resume_recorded(stored));
    r->result.seconds = resume_seconds(stored);
    resume_count_child(stored, &r->account);
    resume_leave(stored, store);
    resume_free(stored);
    return 0;
}

void run_record_unstarted(const struct run_place *place, struct tree *tree, enum rlm_status status,
    const struct error *why)
{
    struct rlm_run r = { .tree = tree,
        .place = *place,
        .lm = tree_lm(tree, place->depth),
        .result = { .status = status, .error = *why } };
    if (!tree->o.store ||
        (place->resume ? run_record_take_over(&r) : run_record_begin(&r, NULL)) < 0)
        return;
    run_record_end(&r);
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
    droste_record_run end = {
        .status = rlm_status_name(result->status),
        .error = !result->error.code ? NULL
                 : result->message   ? result->message
                                     : result->error.text,
        .code = result->error.code ? error_code_name(result->error.code) : NULL,
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
    budget_count_record(&r->tree->budget, end.answer.len);
    if (store_run_end(r->tree->o.store, result->run, &end, &err) < 0 && !result->error.code)
        result->error = err;
}

void run_record_failed(struct rlm_run *r)
{
    if (r->tree->o.store && r->result.run[0] && !r->tree->o.again)
        store_run_fail(r->tree->o.store, r->result.run, &r->result.error, NULL);
}

void run_record_release(struct rlm_run *r)
{
    if (r->tree->o.store && r->result.run[0])
        store_run_release(r->tree->o.store, r->result.run, NULL);
}

/* ---- its steps ---- */

int run_record_turn(struct rlm_run *r, struct error *err)
{
    struct store *store = r->tree->o.store;
    return store ? store_turn_begin(store, r->result.run, r->turn, err) : 0;
}

void run_record_messages(const struct rlm_run *r, struct buf *out)
{
    buf_putc(out, '[');
    for (size_t i = r->recorded; i < r->message_count; i++) {
        buf_printf(out, "%s{\"role\":\"%s\",\"content\":", i > r->recorded ? "," : "",
            r->messages[i].role);
        json_append_string(out, r->messages[i].text, r->messages[i].len);
        if (r->messages[i].images.count > 0)
            images_put_json(&r->messages[i].images, out);
        buf_putc(out, '}');
    }
    buf_putc(out, ']');
}

/* An earlier process has started the call, or asked for its costs. */
static int run_record_repeat(struct rlm_run *r, struct error *err)
{
    struct store *store = r->tree->o.store;
    return approval_is_recorded(store, r->call_record)
               ? 0
               : store_call_repeat(store, r->call_record, err);
}

int run_record_call(struct rlm_run *r, const char *key, struct error *err)
{
    cleanup_buf struct buf request = { 0 };
    if (!r->tree->o.store)
        return 0;
    if (r->call_record)
        return run_record_repeat(r, err);
    run_record_messages(run_owner(r), &request);
    droste_record_call begin = {
        .run = r->result.run,
        .turn = r->turn,
        .candidate = r->candidate,
        .depth = r->place.depth,
        .kind = r->compacting ? "summary" : "root",
        .model = model_name(r),
        .request = { buf_text(&request), request.len },
        .key = key,
    };
    int rc = budget_reserve_record(&r->tree->budget, request.len, err);
    return rc < 0 ? rc : store_call_begin(r->tree->o.store, &begin, &r->call_record, err);
}

int run_record_select(
    struct rlm_run *r, const struct buf *prompt, const char *key, struct error *err)
{
    cleanup_buf struct buf request = { 0 };
    if (!r->tree->o.store)
        return 0;
    if (r->call_record)
        return run_record_repeat(r, err);
    buf_puts(&request, "[{\"role\":\"user\",\"content\":");
    json_append_string(&request, buf_text(prompt), prompt->len);
    buf_puts(&request, "}]");
    droste_record_call begin = { .run = r->result.run,
        .turn = r->turn,
        .depth = r->place.depth,
        .kind = "select",
        .model = model_name(r),
        .request = { buf_text(&request), request.len },
        .key = key };
    int rc = budget_reserve_record(&r->tree->budget, request.len, err);
    return rc < 0 ? rc : store_call_begin(r->tree->o.store, &begin, &r->call_record, err);
}

int run_record_kept(
    struct rlm_run *r, unsigned candidate, const char *reason, const char *state, struct error *err)
{
    const droste_record_turn turn = {
        .run = r->result.run, .turn = r->turn, .kept = candidate, .reason = reason, .session = state
    };
    struct store *store = r->tree->o.store;
    return store ? store_turn_keep(store, &turn, err) : 0;
}

int run_record_call_end(struct rlm_run *r, const struct lm_reply *reply, struct error *err)
{
    droste_record_call end = model_call_end(reply);
    int64_t record = r->call_record;
    r->call_record = 0;
    if (!record)
        return 0;
    budget_count_record(&r->tree->budget, end.reply.len);
    return store_call_end(r->tree->o.store, record, &end, err);
}

int run_record_cell(struct rlm_run *r, const char *code, size_t len, struct error *err)
{
    droste_record_cell begin = {
        .run = r->result.run, .turn = r->turn, .candidate = r->candidate, .code = { code, len }
    };
    struct store *store = r->tree->o.store;
    int rc = store ? budget_reserve_record(&r->tree->budget, len, err) : 0;
    return store && rc == 0 ? store_cell_begin(store, &begin, &r->cell_record, err) : rc;
}

/* The rich results of a cell for the record. */
struct kept_results {
    droste_record_media *items;
    size_t count;
    char note[160]; /* in place of what was left out */
};

static void free_kept(struct kept_results *kept)
{
    free(kept->items);
}
#define cleanup_kept __attribute__((cleanup(free_kept)))

static void kept_add(struct kept_results *kept, size_t result, const struct bundle_item *item)
{
    kept->items[kept->count++] = (droste_record_media){ .result = (int64_t)result,
        .type = item->type,
        .form = media_form_name(item->form),
        .value = { item->data ? item->data : "", item->len } };
}

/* Chooses what the record keeps; a text says what it does not. */
static int keep_results(
    struct rlm_run *r, const struct bundles *results, struct kept_results *kept, struct error *err)
{
    size_t all = 0, left_out = 0, bytes = 0;
    for (size_t i = 0; i < results->count; i++)
        all += results->items[i].count;
    if (all == 0)
        return 0;
    if (!(kept->items = calloc(all + 1, sizeof *kept->items)))
        return error_memory(err);
    for (size_t i = 0; i < results->count; i++) {
        for (size_t j = 0; j < results->items[i].count; j++) {
            const struct bundle_item *item = &results->items[i].items[j];
            /* What the model sees is needed to resume the run, whatever room results have. */
            bool seen = images_have(r, item);
            if (seen && budget_reserve_record(&r->tree->budget, item->len, err) < 0)
                return -(int)err->code;
            if (seen || budget_reserve_result(&r->tree->budget, item->len)) {
                kept_add(kept, i, item);
                continue;
            }
            left_out++;
            bytes += item->len;
        }
    }
    if (left_out == 0)
        return 0;
    snprintf(kept->note, sizeof kept->note,
        "[%zu form%s of results, %zu bytes, not recorded: the record may have no more results "
        "(max-results-size)]",
        left_out, text_plural((int64_t)left_out), bytes);
    const struct bundle_item note = { "text/plain", MEDIA_TEXT, kept->note, strlen(kept->note) };
    kept_add(kept, results->count, &note);
    return 0;
}

/* Reserves space for the result of a cell. Without it, the record has only the cell's status,
 * and the run ends. */
static int reserve_cell_end(struct rlm_run *r, droste_record_cell *end, struct error *err)
{
    droste_value none = { 0 };
    int rc = budget_reserve_record(&r->tree->budget,
        end->standard_output.len + end->standard_error.len + end->submit.len + end->error.len +
            end->variables.len,
        err);
    if (rc < 0)
        end->standard_output = end->standard_error = end->submit = end->error = end->variables =
            none;
    return rc;
}

/* What ended the sandbox, and "; rolled back to cell 7". */
static void run_record_killed(const struct cell_result *c, char *out, size_t size)
{
    char text[64] = "";
    if (c->rolled_back)
        cell_rolled_back_text(c, text, sizeof text);
    const char *by = text[0] && !c->killed[0] ? "an unknown cause" : c->killed;
    snprintf(out, size, "%s%s%s", by, text[0] ? "; " : "", text);
}

int run_record_cell_end(struct rlm_run *r, const struct cell_result *c, struct error *err)
{
    cleanup_json struct json_object *e = json_object_new_object();
    cleanup_kept struct kept_results kept = { 0 };
    size_t submit_len = 0;
    if (!r->tree->o.store)
        return 0;
    char killed[sizeof c->killed + 80];
    run_record_killed(c, killed, sizeof killed);
    const char *submit = submission_json(c->submit, &submit_len);
    if (c->submit && !submit)
        return error_memory(err);
    if (e && c->error.type) {
        json_put_text(e, "type", c->error.type);
        json_put_text(e, "message", c->error.message);
        json_put_text(e, "traceback", c->error.traceback);
    }
    droste_record_cell end = {
        .status = cell_status_name(c->status),
        .killed = killed[0] ? killed : NULL,
        .standard_output = { buf_text(&c->out), c->out.len },
        .standard_error = { buf_text(&c->err), c->err.len },
        .submit = { submit, submit_len },
        .error = store_text(c->error.type && e ? json_text(e, NULL) : NULL),
        .variables = store_text(c->variables ? json_text(c->variables, NULL) : NULL),
        .calls = c->calls,
        .seconds = c->seconds,
    };
    int64_t cell = r->cell_record;
    int room = reserve_cell_end(r, &end, err);
    if (room == 0 && keep_results(r, &c->results, &kept, err) < 0)
        return -(int)err->code;
    end.media = kept.items;
    end.media_count = kept.count;
    r->cell_record = 0;
    int rc = store_cell_end(r->tree->o.store, cell, &end, room < 0 ? NULL : err);
    return room < 0 ? room : rc;
}

void run_record_cell_lost(struct rlm_run *r, const char *by)
{
    droste_record_cell end = { .status = cell_status_name(CELL_KILLED), .killed = by };
    if (r->cell_record)
        store_cell_end(r->tree->o.store, r->cell_record, &end, NULL);
    r->cell_record = 0;
}
