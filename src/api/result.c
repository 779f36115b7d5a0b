/* api/result.c: results, and their JSON form. A submission may be large, so it is inserted only on
 * demand. */
#include "api/result.h"

#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/artifacts_api.h"
#include "base/cleanup.h"
#include "base/json/fields.h"
#include "session/submission.h"
#include "volume/workspace.h"

/* An output, which is UTF-8 and may be long. */
static void result_put_output(struct buf *out, const char *key, const struct buf *text)
{
    field_key(out, key);
    json_append_string(out, buf_text(text), text->len);
}

static void result_put_error(
    struct buf *out, const char *type, const char *message, const char *traceback)
{
    if (!type) {
        field_null(out, "error");
        return;
    }
    field_open(out, "error", '{');
    field_string(out, "type", type);
    field_string(out, "message", message);
    field_string(out, "traceback", traceback);
    field_close(out, '}');
}

static void put_cell_error(struct buf *out, const struct cell_result *c)
{
    if (c->error.type)
        result_put_error(out, c->error.type, c->error.message, c->error.traceback);
    else if (c->status == CELL_TIMEOUT)
        result_put_error(out, "TimeoutError", c->reason.text, NULL);
    else if (c->reason.code != ERROR_NONE)
        result_put_error(
            out, c->status == CELL_KILLED ? "SandboxKilled" : "SandboxLost", c->reason.text, NULL);
    else
        result_put_error(out, NULL, NULL, NULL);
}

void result_put_event(struct buf *out, const struct cell_result *c)
{
    size_t len = 0;
    const char *submit = c->submit ? submission_json(c->submit, &len) : NULL;
    buf_puts(out, "{\"submit\":");
    buf_append(out, submit ? submit : "null", submit ? len : strlen("null"));
    result_put_output(out, "stdout", &c->out);
    result_put_output(out, "stderr", &c->err);
    put_cell_error(out, c);
    field_json(out, "variables", c->variables ? json_text(c->variables, NULL) : "[]");
    buf_putc(out, '}');
}

static void put_limit(struct buf *out, const char *name, double value, const char *by)
{
    field_open(out, name, '{');
    field_number(out, "value", value);
    field_string(out, "by", by);
    field_close(out, '}');
}

/* The resources used since the sandbox's start, and the limits with what enforces them. */
static void put_resources(
    struct buf *out, const struct sandbox_usage *usage, const struct session_limits *limits)
{
    field_open(out, "resources", '{');
    if (usage->memory_peak > 0)
        field_int(out, "memory_peak", (int64_t)usage->memory_peak);
    else
        field_null(out, "memory_peak");
    if (usage->cpu_seconds > 0)
        field_seconds(out, "cpu_seconds", usage->cpu_seconds);
    else
        field_null(out, "cpu_seconds");
    field_open(out, "limits", '{');
    for (enum limit l = LIMIT_NONE + 1; l < LIMIT_COUNT; l++)
        if (usage->means[l] != LIMIT_BY_NOTHING)
            put_limit(out, limit_option(l), limit_value(l, &limits->sandbox),
                limit_means_name(usage->means[l]));
    put_limit(out, "output-limit", (double)limits->output, "host");
    if (limits->execute_timeout > 0)
        put_limit(out, "execute-timeout", limits->execute_timeout, "host");
    if (limits->timeout > 0)
        put_limit(out, "timeout", limits->timeout, "host");
    buf_puts(out, "}}");
}

struct droste_result *result_of_cell(struct cell_result *cell, const struct session *session,
    const struct workspace *workspace, bool rules)
{
    struct droste_result *r = calloc(1, sizeof *r);
    if (!r) {
        cell_result_free(cell);
        return NULL;
    }
    r->cell = *cell;
    r->status = cell_status_name(cell->status);
    r->error = cell->reason;
    r->seconds = cell->seconds;
    const struct cell_result *c = &r->cell;
    struct buf *out = &r->json;
    buf_reserve(out, c->out.len + c->err.len + 4096);
    buf_printf(out, "{\"status\":\"%s\"", r->status);
    field_json(out, "submit", c->submit ? "" : NULL);
    r->submit_at = c->submit ? out->len : 0;
    result_put_output(out, "stdout", &c->out);
    result_put_output(out, "stderr", &c->err);
    put_cell_error(out, c);
    field_string(out, "echo", c->echo);
    field_json(out, "results", c->results.count ? "" : "[]");
    r->bundles_at = c->results.count ? out->len : 0;
    long main_result = bundles_main(&c->results);
    if (main_result < 0)
        field_null(out, "main_result");
    else
        field_int(out, "main_result", main_result);
    field_string(out, "killed", c->killed[0] ? c->killed : NULL);
    field_bool(out, "alive", c->alive);
    field_int(out, "calls", c->calls);
    if (c->rolled_back)
        field_int(out, "rolled_back", (int64_t)c->rolled_back_to);
    else
        field_null(out, "rolled_back");
    field_seconds(out, "seconds", c->seconds);
    field_string(out, "isolation", isolation_name(session_isolation(session)));
    field_bool(out, "rules", rules);
    workspace_put_repo(workspace, out);
    buf_printf(out, ",\"left_out\":{\"stdout\":%llu,\"stderr\":%llu}",
        (unsigned long long)c->out_left_out, (unsigned long long)c->err_left_out);
    put_resources(out, &c->usage, session_limits_of(session));
    field_json(out, "variables", c->variables ? json_text(c->variables, NULL) : "[]");
    buf_putc(out, '}');
    /* Releases what the session shares, so that another thread may free the result. */
    json_object_put(steal(&r->cell.variables));
    json_object_put(steal(&r->cell.variable));
    if (buf_failed(out)) {
        droste_result_free(r);
        return NULL;
    }
    return r;
}

/* Appends the members of an object that the caller opens and closes. */
static void put_spent(struct buf *out, const struct spent *s)
{
    field_int(out, "calls", s->calls);
    field_int(out, "attempts", s->attempts);
    field_int(out, "input_tokens", s->input_tokens);
    field_int(out, "output_tokens", s->output_tokens);
    if (spent_cost(s) >= 0)
        field_number(out, "cost", spent_cost(s));
    else
        field_null(out, "cost");
    field_bool(out, "estimated", s->estimated);
}

/* The total, and its parts by model and by depth. */
static void result_put_usage(struct buf *out, const struct budget *b, double seconds)
{
    size_t depths = array_length(b->depths);
    while (depths > 0 && b->depths[depths - 1].calls == 0)
        depths--;
    buf_putc(out, '{');
    put_spent(out, &b->spent);
    field_seconds(out, "seconds", seconds);
    field_open(out, "models", '{');
    for (size_t i = 0; i < b->model_count; i++) {
        field_open(out, b->models[i].name, '{');
        put_spent(out, &b->models[i].spent);
        field_close(out, '}');
    }
    field_close(out, '}');
    field_open(out, "depths", '[');
    for (size_t i = 0; i < depths; i++) {
        field_open(out, NULL, '{');
        put_spent(out, &b->depths[i]);
        field_close(out, '}');
    }
    buf_puts(out, "]}");
}

struct droste_result *result_of_run(const struct rlm_result *run)
{
    struct droste_result *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    struct buf *out = &r->json;
    r->status = rlm_status_name(run->status);
    r->error = run->error;
    r->seconds = run->seconds;
    r->spent = run->budget->spent;
    memcpy(r->run, run->run, sizeof r->run);
    r->answer = run->answer ? strdup(run->answer) : NULL;
    r->cell.submit = submission_hold(run->submit);
    buf_printf(
        out, "{\"answer\":%s,\"status\":\"%s\"", run->answer ? run->answer : "null", r->status);
    field_string(out, "run", run->run[0] ? run->run : NULL);
    field_int(out, "iterations", run->iterations);
    field_key(out, "usage");
    r->usage_at = out->len;
    result_put_usage(out, run->budget, run->seconds);
    r->usage_len = out->len - r->usage_at;
    if (run->error.code != ERROR_NONE)
        result_put_error(out, error_code_name(run->error.code),
            run->message ? run->message : run->error.text, NULL);
    else
        result_put_error(out, NULL, NULL, NULL);
    field_json(out, "resumed", run->resumed);
    workspace_put_repo(run->workspace, out);
    artifacts_put_json(&run->artifacts, out);
    field_string(out, "isolation", isolation_name(run->isolation));
    field_bool(out, "rules", run->rules);
    field_int(out, "left_out", (int64_t)run->left_out);
    buf_putc(out, '}');
    if (artifacts_copy(&r->artifacts, &run->artifacts) < 0 || buf_failed(out) ||
        (run->answer && !r->answer)) {
        droste_result_free(r);
        return NULL;
    }
    return r;
}

struct droste_result *result_of_failure(enum rlm_status status, const struct error *error)
{
    static const struct budget nothing;
    struct rlm_result run = { .status = status, .error = *error, .budget = &nothing };
    struct droste_result *r = result_of_run(&run);
    if (r)
        r->unbegun = true;
    return r;
}

int droste_result_began(const droste_result *r)
{
    return !r->unbegun;
}

static const char *result_give(const char *text, size_t have, size_t *len)
{
    if (len)
        *len = text ? have : 0;
    return text;
}

const char *droste_result_status(const droste_result *r)
{
    return r->status;
}

/* Completes the JSON with the submission and the rich results. Both may be long, and callers that
 * want them usually read them without the rest. */
static bool put_long_parts(droste_result *r)
{
    size_t len = 0, at = r->submit_at, then = r->bundles_at ? r->bundles_at : at;
    const char *submit = at ? submission_json(r->cell.submit, &len) : "";
    struct buf all = { 0 };
    if (!submit || !buf_reserve(&all, r->json.len + len + r->cell.results.bytes))
        return false;
    buf_append(&all, r->json.data, at);
    buf_append(&all, submit, len);
    buf_append(&all, r->json.data + at, then - at);
    if (r->bundles_at)
        bundles_put_json(&r->cell.results, &all);
    buf_append(&all, r->json.data + then, r->json.len - then);
    if (buf_failed(&all)) {
        buf_free(&all);
        return false;
    }
    buf_free(&r->json);
    r->json = all;
    r->submit_at = r->bundles_at = 0;
    return true;
}

const char *droste_result_json(const droste_result *r, size_t *len)
{
    droste_result *own = (droste_result *)(uintptr_t)r; /* no result is defined const */
    bool whole = (r->submit_at == 0 && r->bundles_at == 0) || put_long_parts(own);
    return result_give(whole ? buf_text(&r->json) : NULL, r->json.len, len);
}

const char *droste_result_stdout(const droste_result *r, size_t *len)
{
    return result_give(buf_text(&r->cell.out), r->cell.out.len, len);
}

const char *droste_result_stderr(const droste_result *r, size_t *len)
{
    return result_give(buf_text(&r->cell.err), r->cell.err.len, len);
}

const char *droste_result_submit(const droste_result *r, size_t *len)
{
    return submission_json(r->cell.submit, len);
}

const char *droste_result_outline(const droste_result *r, size_t *len)
{
    return submission_outline(r->cell.submit, len);
}

const char *droste_result_text(const droste_result *r, size_t index, size_t *len)
{
    return submission_text(r->cell.submit, index, len);
}

const char *droste_result_values(const droste_result *r, size_t *len)
{
    return submission_values(r->cell.submit, len);
}

const char *droste_result_echo(const droste_result *r)
{
    return r->cell.echo;
}

size_t droste_result_bundles(const droste_result *r)
{
    return r->cell.results.count;
}

/* The public type is this one under another name. */
const droste_bundles *result_bundles(const struct bundles *bundles)
{
    return (const droste_bundles *)(const void *)bundles;
}

static const struct bundle *result_bundle(const droste_bundles *bundles, size_t index)
{
    const struct bundles *own = (const struct bundles *)(const void *)bundles;
    return own && index < own->count ? &own->items[index] : NULL;
}

size_t droste_bundles_count(const droste_bundles *bundles)
{
    const struct bundles *own = (const struct bundles *)(const void *)bundles;
    return own ? own->count : 0;
}

const char *droste_bundles_metadata(const droste_bundles *bundles, size_t bundle)
{
    const struct bundle *b = result_bundle(bundles, bundle);
    return b ? b->metadata : NULL;
}

const char *droste_bundles_display_id(const droste_bundles *bundles, size_t bundle)
{
    const struct bundle *b = result_bundle(bundles, bundle);
    return b ? b->id : NULL;
}

int droste_bundles_is_update(const droste_bundles *bundles, size_t bundle)
{
    const struct bundle *b = result_bundle(bundles, bundle);
    return b && b->is_update;
}

int droste_bundles_is_main(const droste_bundles *bundles, size_t bundle)
{
    const struct bundle *b = result_bundle(bundles, bundle);
    return b && b->is_main;
}

int droste_bundles_media(
    const droste_bundles *bundles, size_t bundle, size_t index, droste_media *media)
{
    const struct bundle *b = result_bundle(bundles, bundle);
    if (!b || index >= b->count)
        return 0;
    const struct bundle_item *item = &b->items[index];
    *media = (droste_media){ item->type, media_form_name(item->form), item->data, item->len };
    return 1;
}

const droste_bundles *droste_result_shown(const droste_result *r)
{
    return result_bundles(&r->cell.results);
}

int droste_result_media(const droste_result *r, size_t bundle, size_t index, droste_media *media)
{
    return droste_bundles_media(result_bundles(&r->cell.results), bundle, index, media);
}

long droste_result_main(const droste_result *r)
{
    return bundles_main(&r->cell.results);
}

const char *droste_result_metadata(const droste_result *r, size_t bundle)
{
    return droste_bundles_metadata(result_bundles(&r->cell.results), bundle);
}

const char *droste_result_traceback(const droste_result *r)
{
    return r->cell.error.traceback;
}

const char *droste_result_message(const droste_result *r)
{
    return r->cell.error.message;
}

int droste_result_exit_status(const droste_result *r)
{
    return r->cell.error.exits ? r->cell.error.exit_status : -1;
}

long long droste_result_rolled_back(const droste_result *r)
{
    return r->cell.rolled_back ? (long long)r->cell.rolled_back_to : -1;
}

int droste_result_alive(const droste_result *r)
{
    return r->cell.alive;
}

const char *droste_result_answer(const droste_result *r, size_t *len)
{
    return result_give(r->answer, r->answer ? strlen(r->answer) : 0, len);
}

void droste_result_error(const droste_result *r, droste_error *err)
{
    *err = r->error;
}

double droste_result_seconds(const droste_result *r)
{
    return r->seconds;
}

int droste_result_artifact(const droste_result *r, size_t index, droste_artifact *out)
{
    if (index >= r->artifacts.count)
        return 0;
    const struct artifact *item = &r->artifacts.items[index];
    *out = (droste_artifact){ item->name, item->path, item->hash, item->size };
    return 1;
}

size_t droste_result_artifacts_error(const droste_result *r, droste_error *err)
{
    *api_error(err) = r->artifacts.error;
    return r->artifacts.left_out;
}

void droste_result_free(droste_result *r)
{
    if (!r)
        return;
    cell_result_free(&r->cell);
    free(r->answer);
    artifact_list_free(&r->artifacts);
    buf_free(&r->json);
    free(r);
}
