/* rlm/resume.c: see resume.h. */
#include "rlm/resume.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/text.h"

struct resume {
    struct recorded *recorded;
    int64_t gone; /* the last cell under which a sandbox died; 0: none did */
};

/* ---- the beginning ---- */

/* A call that is not asked again: the recording that is replayed, if one is, has to know of it. */
static int pass_call(struct resume *r, const struct resume_pass *pass,
    const struct recorded_call *call, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    int rc = recorded_read(r->recorded, &call->request, &text, err);
    struct lm_message message = { "user", buf_text(&text), text.len };
    struct lm_request request = { .model = call->model,
        .messages = &message,
        .message_count = 1,
        .depth = pass->depth,
        .max_tokens = pass->max_tokens,
        .temperature = -1 };
    return rc < 0 || !recorded_is_of(call, pass->lm, pass->again) ? rc
                                                                  : lm_pass(pass->lm, &request, err);
}

static void find_gone(struct resume *r)
{
    struct recorded_cell *cell;
    for (size_t i = 0; (cell = recorded_cell_at(r->recorded, i)); i++)
        if (cell->died)
            r->gone = cell->id;
}

int resume_count(struct resume *r, bool again, struct budget *budget, struct account *account,
    struct error *err)
{
    struct recorded_call *call;
    struct recorded_cell *cell;
    double seconds = 0;
    int rc = 0;
    for (size_t i = 0; rc == 0 && (call = recorded_call_at(r->recorded, i)); i++) {
        budget->guest_calls += !call->root && !call->tool;
        budget->tool_calls += call->tool;
        seconds += call->root ? call->seconds : 0;
        if (call->ended && !call->tool)
            rc = recorded_count(call, budget, account, err);
    }
    for (size_t i = 0; (cell = recorded_cell_at(r->recorded, i)); i++)
        seconds += cell->seconds;
    budget->start_ns -= again ? 0 : (uint64_t)(seconds * 1e9);
    return rc;
}

int resume_pass_gone(struct resume *r, const struct resume_pass *pass, struct error *err)
{
    struct recorded_call *call;
    int rc = 0;
    for (size_t i = 0; rc == 0 && (call = recorded_call_at(r->recorded, i)); i++) {
        if (call->root || call->cell > r->gone)
            continue;
        recorded_take(r->recorded, call);
        rc = call->ended && !call->tool ? pass_call(r, pass, call, err) : 0;
    }
    return rc;
}

int resume_open(
    struct store *store, const char *run, bool again, struct resume **out, struct error *err)
{
    int rc = again ? 0 : store_run_adopt(store, run, err);
    if (rc < 0)
        return rc;
    struct resume *r = calloc(1, sizeof *r);
    rc = r ? recorded_load(store, run, &r->recorded, err) : error_memory(err);
    if (rc < 0) {
        resume_free(r);
        if (!again)
            store_run_release(store, run, NULL);
        return rc;
    }
    find_gone(r);
    *out = r;
    return 0;
}

void resume_free(struct resume *r)
{
    if (!r)
        return;
    recorded_free(r->recorded);
    free(r);
}

struct recorded *resume_recorded(struct resume *r)
{
    return r->recorded;
}

bool resume_is_behind(struct resume *r)
{
    return recorded_next_root(r->recorded) || recorded_next_cell(r->recorded);
}

bool resume_has_turn(const struct resume *r, int64_t turn)
{
    return turn <= recorded_turns(r->recorded);
}

bool resume_submitted(struct resume *r, struct buf *out, struct error *err)
{
    struct recorded_cell *cell, *last = NULL;
    for (size_t i = 0; (cell = recorded_cell_at(r->recorded, i)); i++)
        last = cell;
    return last && strcmp(last->status, "submitted") == 0 && last->submit.hash[0] &&
           recorded_read(r->recorded, &last->submit, out, err) == 0;
}

/* ---- the loop's steps ---- */

int resume_next_call(struct resume *r, int64_t turn, struct recorded_call **out, struct error *err)
{
    *out = recorded_next_root(r->recorded);
    if (!*out)
        return 0;
    if ((*out)->turn != turn)
        return error_set(err, ERROR_MODEL_REPLAY,
            "turn %lld: the loop asks the model, which the record says it did in turn %lld only; "
            "the run cannot be resumed",
            (long long)turn, (long long)(*out)->turn);
    recorded_take(r->recorded, *out);
    return 0;
}

int resume_next_cell(struct resume *r, int64_t turn, const char *code, size_t len,
    struct recorded_cell **out, struct error *err)
{
    char hash[HASH_TEXT_SIZE];
    *out = recorded_next_cell(r->recorded);
    if (!*out)
        return 0;
    int rc = hash_sha256(code, len, hash, err);
    if (rc < 0)
        return rc;
    if ((*out)->turn != turn || strcmp((*out)->code.hash, hash) != 0)
        return error_set(err, ERROR_MODEL_REPLAY,
            "turn %lld: the code that comes next is not that of cell %lld of turn %lld in the "
            "record; the run cannot be resumed",
            (long long)turn, (long long)(*out)->number, (long long)(*out)->turn);
    (*out)->begun = true;
    return 0;
}

bool resume_is_gone(const struct resume *r, const struct recorded_cell *cell)
{
    return cell->id <= r->gone;
}

static char *copy_of(struct json_object *o, const char *key)
{
    const char *text = json_get_string(o, key, NULL);
    return text ? strdup(text) : NULL;
}

int resume_cell_result(
    struct resume *r, const struct recorded_cell *cell, struct cell_result *out, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    cleanup_json struct json_object *o = NULL;
    *out = (struct cell_result){ .status = CELL_LOST, .alive = !cell->died };
    for (int s = CELL_OK; s <= CELL_LOST; s++)
        if (strcmp(cell_status_name((enum cell_status)s), cell->status) == 0)
            out->status = (enum cell_status)s;
    out->seconds = cell->seconds;
    snprintf(out->killed, sizeof out->killed, "%s", cell->killed ? cell->killed : "");
    error_set(&out->reason, ERROR_LOST, "the sandbox was ended (%s)",
        cell->killed ? cell->killed : cell->status);
    int rc = recorded_read(r->recorded, &cell->out, &out->out, err);
    if (rc == 0)
        rc = recorded_read(r->recorded, &cell->err, &out->err, err);
    if (rc == 0)
        rc = recorded_read(r->recorded, &cell->error, &text, err);
    if (rc == 0 && text.len > 0)
        rc = json_parse(buf_text(&text), text.len, &json_limits_large, &o, err);
    if (rc < 0) {
        cell_result_free(out);
        return rc;
    }
    out->error =
        (struct cell_error){ copy_of(o, "type"), copy_of(o, "message"), copy_of(o, "traceback") };
    return 0;
}

int resume_check_cell(struct resume *r, const struct recorded_cell *cell,
    const struct cell_result *result, struct error *err)
{
    const char *status = cell_status_name(result->status);
    struct recorded_call *unasked = recorded_unasked(r->recorded, cell->id);
    if (cell->ended && strcmp(status, cell->status) != 0)
        return error_set(err, ERROR_MODEL_REPLAY,
            "turn %lld, cell %lld: it ended as '%s', and '%.20s' is what the record says; the run "
            "cannot be resumed",
            (long long)cell->turn, (long long)cell->number, status, cell->status);
    if (unasked && result->alive)
        return error_set(err, ERROR_MODEL_REPLAY,
            "turn %lld, cell %lld, call %lld: the code did not ask what the record says that it "
            "asked; the run cannot be resumed",
            (long long)cell->turn, (long long)cell->number, (long long)unasked->number);
    return 0;
}

/* ---- the end ---- */

char *resume_json(struct resume *r)
{
    struct buf list = { 0 }, out = { 0 };
    struct recorded_call *call;
    size_t replayed = 0;
    for (size_t i = 0; (call = recorded_call_at(r->recorded, i)); i++) {
        struct recorded_cell *cell = recorded_cell_find(r->recorded, call->cell);
        replayed += call->asked && call->ended;
        if (!call->asked || call->ended || (cell && resume_is_gone(r, cell)))
            continue;
        buf_printf(&list, "%s{\"turn\":%lld,\"cell\":%lld,\"call\":%lld", list.len ? "," : "",
            (long long)call->turn, (long long)(cell ? cell->number : 0), (long long)call->number);
        if (call->tool) {
            buf_puts(&list, ",\"tool\":");
            json_append_string(&list, call->model, strlen(call->model));
        }
        buf_putc(&list, '}');
    }
    buf_printf(&out, "{\"replayed\":%zu,\"repeated\":[%s]}", replayed, buf_text(&list));
    out.failed = out.failed || buf_failed(&list);
    buf_free(&list);
    return buf_steal(&out);
}
