/* rlm/resume.c: takes over a recorded run. */
#include "rlm/resume.h"

#include <stdlib.h>
#include <string.h>

#include "base/json/fields.h"
#include "base/json/json.h"

struct resume {
    struct replay_log *recorded;
    int64_t gone; /* the last cell in which a sandbox died; 0: none */
};

/* ---- the beginning ---- */

/* A fork that died before one was kept: none of its cells is repeated. */
static void skip_candidate(struct resume *r, const struct recorded_cell *died)
{
    struct recorded_cell *cell;
    for (size_t i = 0; (cell = replay_log_cell_at(r->recorded, i)); i++)
        if (cell->turn == died->turn && cell->candidate == died->candidate)
            cell->skipped = true;
}

static void find_gone(struct resume *r)
{
    struct recorded_cell *cell;
    for (size_t i = 0; (cell = replay_log_cell_at(r->recorded, i)); i++) {
        const struct recorded_turn *turn = replay_log_turn(r->recorded, cell->turn);
        if (!cell->candidate ? cell->died : turn && turn->lost)
            r->gone = cell->id;
        else if (cell->candidate && turn && turn->kept)
            cell->skipped = turn->before && turn->kept == cell->candidate;
        else if (cell->candidate && cell->died)
            skip_candidate(r, cell);
    }
}

/* A child's turns count as calls of its parent's guest; the root's do not count. */
static void resume_count_place(const struct recorded_call *call, struct budget *budget)
{
    budget->tool_calls += call->tool;
    budget->guest_calls += !call->tool && (!call->root || call->depth > 0);
}

static int count_call(const struct recorded_call *call, struct budget *budget,
    struct account *account, struct error *err)
{
    struct lm_reply reply = replay_log_spent(call);
    return call->ended && !call->tool
               ? budget_recall(budget, call->model, call->depth, account, &reply, err)
               : 0;
}

/* The limit on calls covers all calls except the root's turns; an active child's first call is
 * reserved before it is made. */
int resume_count(
    struct resume *r, struct budget *budget, struct account *account, struct error *err)
{
    struct recorded_call *call;
    struct recorded_run *run;
    int rc = 0;
    budget_count_record(budget, replay_log_bytes(r->recorded));
    budget->result_bytes += (int64_t)replay_log_result_bytes(r->recorded);
    for (size_t i = 0; rc == 0 && (call = replay_log_call_at(r->recorded, i)); i++) {
        resume_count_place(call, budget);
        rc = count_call(call, budget, account, err);
    }
    for (size_t i = 0; rc == 0 && (call = replay_log_below_at(r->recorded, i)); i++) {
        resume_count_place(call, budget);
        rc = count_call(call, budget, account, err);
    }
    for (size_t i = 0; (run = replay_log_run_at(r->recorded, i)); i++)
        budget->guest_calls += !run->ended && !run->begun;
    return rc;
}

static void count_in_account(const struct recorded_call *call, struct account *account)
{
    struct lm_reply reply = replay_log_spent(call);
    if (call->ended && !call->tool)
        spent_add(&account->spent, &reply);
}

void resume_count_child(struct resume *r, struct account *account)
{
    struct recorded_call *call;
    for (size_t i = 0; (call = replay_log_call_at(r->recorded, i)); i++)
        count_in_account(call, account);
    for (size_t i = 0; (call = replay_log_below_at(r->recorded, i)); i++)
        count_in_account(call, account);
}

double resume_seconds(struct resume *r)
{
    struct recorded_call *call;
    struct recorded_cell *cell;
    double seconds = 0;
    for (size_t i = 0; (call = replay_log_call_at(r->recorded, i)); i++)
        seconds += call->root ? call->seconds : 0;
    for (size_t i = 0; (cell = replay_log_cell_at(r->recorded, i)); i++)
        seconds += cell->seconds;
    return seconds;
}

bool resume_is_gone_cell(const struct resume *r, int64_t cell)
{
    const struct recorded_cell *found = replay_log_cell_find(r->recorded, cell);
    return cell <= r->gone || (found && (found->skipped || found->undone));
}

int resume_open(
    struct store *store, const char *run, bool again, struct resume **out, struct error *err)
{
    int rc = again ? 0 : store_run_adopt(store, run, err);
    if (rc < 0)
        return rc;
    struct resume *r = calloc(1, sizeof *r);
    rc = r ? replay_log_load(store, run, &r->recorded, err) : error_memory(err);
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
    replay_log_free(r->recorded);
    free(r);
}

struct replay_log *resume_recorded(struct resume *r)
{
    return r->recorded;
}

bool resume_is_behind(struct resume *r)
{
    return replay_log_next_root(r->recorded) || replay_log_next_cell(r->recorded);
}

bool resume_has_turn(const struct resume *r, int64_t turn)
{
    return turn <= replay_log_turns(r->recorded);
}

bool resume_submitted(struct resume *r, struct buf *out, struct error *err)
{
    struct recorded_cell *cell, *last = NULL;
    for (size_t i = 0; (cell = replay_log_cell_at(r->recorded, i)); i++) {
        const struct recorded_turn *turn = replay_log_turn(r->recorded, cell->turn);
        bool open = cell->candidate && turn && !turn->kept;
        if (open)
            last = NULL;
        else if (!cell->candidate || (turn && turn->kept == cell->candidate))
            last = cell;
    }
    return last && strcmp(last->status, "submitted") == 0 && last->submit.hash[0] &&
           replay_log_read(r->recorded, &last->submit, out, err) == 0;
}

/* ---- the loop's steps ---- */

static bool is_kept(const struct recorded_turn *turn, unsigned candidate)
{
    return turn->kept == candidate;
}

/* Marks what the other candidates did as done; all of them were sent the first one's messages. */
static void pass_over_others(struct resume *r, const struct recorded_turn *turn)
{
    struct recorded_call *call, *kept = NULL, *first = NULL;
    struct recorded_cell *cell;
    for (size_t i = 0; (cell = replay_log_cell_at(r->recorded, i)); i++)
        if (cell->turn == turn->turn && !is_kept(turn, cell->candidate))
            cell->begun = true;
    for (size_t i = 0; (call = replay_log_call_at(r->recorded, i)); i++) {
        if (call->turn != turn->turn || call->asked)
            continue;
        cell = replay_log_cell_find(r->recorded, call->cell);
        first = call->root && call->candidate && !first ? call : first;
        kept = call->root && is_kept(turn, call->candidate) ? call : kept;
        if (call->select || (call->root && !is_kept(turn, call->candidate)) ||
            (cell && cell->begun))
            replay_log_take(r->recorded, call);
    }
    if (kept && first)
        kept->request = first->request;
}

enum resume_turn resume_candidates(struct resume *r, int64_t turn, unsigned *candidate)
{
    const struct recorded_turn *found = replay_log_turn(r->recorded, turn);
    struct recorded_call *call;
    if (found && found->kept) {
        *candidate = found->kept;
        pass_over_others(r, found);
        return RESUME_TURN_KEPT;
    }
    for (size_t i = 0; (call = replay_log_call_at(r->recorded, i)); i++)
        if (call->turn == turn && call->root && !call->summary && !call->select && !call->candidate)
            return RESUME_TURN_ALONE;
    return RESUME_TURN_NEW;
}

size_t resume_replies(struct resume *r, int64_t turn)
{
    struct recorded_call *call;
    size_t count = 0;
    for (size_t i = 0; (call = replay_log_call_at(r->recorded, i)); i++)
        count += call->turn == turn && call->root && call->candidate && call->ended;
    return count;
}

struct recorded_call *resume_next_select(struct resume *r, int64_t turn)
{
    struct recorded_call *call;
    for (size_t i = 0; (call = replay_log_call_at(r->recorded, i)); i++) {
        if (call->turn != turn || !call->select || call->asked)
            continue;
        replay_log_take(r->recorded, call);
        return call;
    }
    return NULL;
}

int resume_next_call(struct resume *r, int64_t turn, unsigned candidate, struct recorded_call **out,
    struct error *err)
{
    *out = replay_log_next_root_of(r->recorded, candidate);
    if (!*out)
        return 0;
    if ((*out)->turn != turn)
        return error_set(err, ERROR_MODEL_REPLAY,
            "turn %lld: the loop asks the model, but in the record it did so only in turn %lld; "
            "the run cannot be resumed",
            (long long)turn, (long long)(*out)->turn);
    replay_log_take(r->recorded, *out);
    return 0;
}

int resume_next_cell(struct resume *r, int64_t turn, unsigned candidate, const char *code,
    size_t len, struct recorded_cell **out, struct error *err)
{
    char hash[HASH_TEXT_SIZE];
    *out = replay_log_next_cell_of(r->recorded, candidate);
    if (!*out)
        return 0;
    int rc = hash_sha256(code, len, hash, err);
    if (rc < 0)
        return rc;
    if ((*out)->turn != turn || strcmp((*out)->code.hash, hash) != 0)
        return error_set(err, ERROR_MODEL_REPLAY,
            "turn %lld: the next code differs from cell %lld of turn %lld in the record; the run "
            "cannot be resumed",
            (long long)turn, (long long)(*out)->number, (long long)(*out)->turn);
    (*out)->begun = true;
    return 0;
}

bool resume_is_gone(const struct resume *r, const struct recorded_cell *cell)
{
    return resume_is_gone_cell(r, cell->id);
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
    out->rolled_back = cell->undone;
    error_set(&out->reason, ERROR_LOST, "the sandbox was ended (%s)",
        cell->killed ? cell->killed : cell->status);
    int rc = replay_log_read(r->recorded, &cell->out, &out->out, err);
    if (rc == 0)
        rc = replay_log_read(r->recorded, &cell->err, &out->err, err);
    if (rc == 0)
        rc = replay_log_read(r->recorded, &cell->error, &text, err);
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
    struct recorded_call *unasked = replay_log_unasked(r->recorded, cell->id);
    struct recorded_run *run = replay_log_unasked_run(r->recorded, cell->id);
    if (cell->ended && strcmp(status, cell->status) != 0)
        return error_set(err, ERROR_MODEL_REPLAY,
            "turn %lld, cell %lld: it ended as '%s', but the record says '%.20s'; the run cannot "
            "be resumed",
            (long long)cell->turn, (long long)cell->number, status, cell->status);
    if (unasked && result->alive)
        return error_set(err, ERROR_MODEL_REPLAY,
            "turn %lld, cell %lld, call %lld: the code did not make this recorded call; the run "
            "cannot be resumed",
            (long long)cell->turn, (long long)cell->number, (long long)unasked->number);
    if (run && result->alive)
        return error_set(err, ERROR_MODEL_REPLAY,
            "turn %lld, cell %lld: the code did not start the recorded child run %.64s; the run "
            "cannot be resumed",
            (long long)cell->turn, (long long)cell->number, run->id);
    return 0;
}

/* ---- the end ---- */

void resume_leave(struct resume *r, struct store *store)
{
    struct recorded_run *run;
    for (size_t i = 0; (run = replay_log_run_at(r->recorded, i)); i++)
        if (!run->ended && !replay_log_run_at(r->recorded, run->top)->on)
            store_run_release(store, run->id, NULL);
}

/* From 1; 0: the call belongs to no candidate. */
static unsigned candidate_of(struct resume *r, const struct recorded_call *call)
{
    const struct recorded_cell *cell = replay_log_cell_find(r->recorded, call->cell);
    return cell ? cell->candidate : call->candidate;
}

/* Open when the process died, and made again since. What died with a sandbox, or with a candidate
 * that was not kept, is not made again. */
static bool is_repeated(struct resume *r, const struct recorded_call *call)
{
    const struct recorded_turn *turn = replay_log_turn(r->recorded, call->turn);
    unsigned candidate = candidate_of(r, call);
    if (!call->asked || call->ended || (call->cell && resume_is_gone_cell(r, call->cell)))
        return false;
    return !candidate || !turn || !turn->kept || is_kept(turn, candidate);
}

static void tell_repeated(
    struct resume *r, const char *run, const struct recorded_call *call, struct buf *out)
{
    struct recorded_cell *cell = replay_log_cell_find(r->recorded, call->cell);
    unsigned candidate = candidate_of(r, call);
    buf_puts(out, out->len ? ",{" : "{");
    if (run)
        field_string(out, "run", run);
    if (candidate)
        field_int(out, "candidate", candidate);
    field_int(out, "turn", call->turn);
    field_int(out, "cell", cell ? cell->number : 0);
    field_int(out, "call", call->number);
    if (call->tool)
        field_string(out, "tool", call->model);
    field_close(out, '}');
}

void resume_tell(struct resume *r, const char *run, size_t *replayed, struct buf *repeated)
{
    struct recorded_call *call;
    for (size_t i = 0; (call = replay_log_call_at(r->recorded, i)); i++) {
        *replayed += call->asked && call->ended;
        if (is_repeated(r, call))
            tell_repeated(r, run, call, repeated);
    }
    for (size_t i = 0; (call = replay_log_below_at(r->recorded, i)); i++) {
        struct recorded_run *top =
            replay_log_run_at(r->recorded, replay_log_run_at(r->recorded, call->run)->top);
        *replayed += top->asked && !top->on && call->ended;
    }
}
