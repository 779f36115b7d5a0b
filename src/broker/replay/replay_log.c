/* broker/replay/replay_log.c: reads the steps of a resumed run from the record, and looks them up.
 */
#include "broker/replay/replay_log.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json/json.h"
#include "session/session.h"

struct replay_log {
    struct store *store;
    const char *run; /* only while reading */
    struct recorded_call *calls;
    size_t call_count, call_room, next_root, first_sub;
    struct recorded_call *below;
    size_t below_count, below_room;
    struct recorded_run *runs;
    size_t run_count, run_room;
    struct recorded_cell *cells;
    size_t cell_count, cell_room, next_cell;
    struct recorded_turn *turn_list;
    size_t turn_count, turn_room;
    int64_t turns;
    size_t bytes;        /* bytes of all values */
    size_t result_bytes; /* of rich results */
};

/* ---- reading the record ---- */

static struct recorded_value replay_log_take_value(const droste_value *value)
{
    struct recorded_value v = { .len = value->len };
    if (value->hash)
        snprintf(v.hash, sizeof v.hash, "%s", value->hash);
    return v;
}

static int take_turn(void *arg, const droste_record_turn *turn, struct error *err)
{
    struct replay_log *r = arg;
    if (strcmp(turn->run, r->run) != 0)
        return 0;
    if (!array_room(r->turn_list, r->turn_count, &r->turn_room))
        return error_memory(err);
    r->turn_list[r->turn_count++] = (struct recorded_turn){ .turn = turn->turn,
        .kept = (unsigned)turn->kept,
        .before = turn->session && strcmp(turn->session, "before") == 0,
        .lost = turn->session && strcmp(turn->session, "lost") == 0 };
    r->turns = turn->turn;
    return 0;
}

/* Returns the index of a child run, or the number of child runs if there is none. */
static size_t find_below(const struct replay_log *r, const char *id)
{
    for (size_t i = r->run_count; i-- > 0;)
        if (strcmp(r->runs[i].id, id) == 0)
            return i;
    return r->run_count;
}

static int replay_log_take_context(
    struct replay_log *r, const droste_value *value, struct recorded_run *run, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    cleanup_json struct json_object *o = NULL;
    if (!value->hash)
        return 0;
    int rc = store_value_read(r->store, value, SIZE_MAX, store_append_piece, &text, err);
    if (rc == 0)
        rc = json_parse(buf_text(&text), text.len, &json_limits_large, &o, err);
    if (rc == 0)
        snprintf(run->context, sizeof run->context, "%s", json_get_string(o, "sha256", ""));
    return rc;
}

/* Older records lack the kind of a run's error; uses its status. */
static enum error_code run_error_code(const droste_record_run *end)
{
    if (end->code)
        return error_code_named(end->code, ERROR_MODEL);
    return strcmp(end->status, "timeout") == 0     ? ERROR_TIMEOUT
           : strcmp(end->status, "cancelled") == 0 ? ERROR_CANCELLED
           : strcmp(end->status, "error") == 0     ? ERROR_MODEL
                                                   : ERROR_BUDGET;
}

/* Sets the error for a child's parent; a child that the parent ended has no reason. */
static void take_run_error(struct recorded_run *to, const droste_record_run *end)
{
    error_set(&to->error, run_error_code(end), "%s", end->error);
    if (strcmp(end->status, "timeout") != 0 && strcmp(end->status, "cancelled") != 0)
        error_wrap(&to->error, "child run %s", to->id);
}

static int replay_replay_log_take_run(void *arg, const droste_record_run *run, struct error *err)
{
    struct replay_log *r = arg;
    const char *status = run->status, *parent = run->parent ? run->parent : "";
    r->bytes += run->question.len + run->context.len + run->limits.len + run->tools.len +
                run->settings.len + run->context_data.len + run->answer.len;
    if (strcmp(run->id, r->run) == 0)
        return 0;
    if (!array_room(r->runs, r->run_count, &r->run_room))
        return error_memory(err);
    struct recorded_run *to = &r->runs[r->run_count];
    size_t up = find_below(r, parent);
    *to = (struct recorded_run){ .own = strcmp(parent, r->run) == 0,
        .top = up < r->run_count ? r->runs[up].top : r->run_count,
        .seq = run->seq,
        .cell = run->parent_cell,
        .depth = (unsigned)run->depth,
        .ended = strcmp(status, "running") != 0 && strcmp(status, "interrupted") != 0,
        .model = strdup(run->model),
        .fork = run->parent_fork ? strdup(run->parent_fork) : NULL,
        .question = replay_log_take_value(&run->question),
        .answer = replay_log_take_value(&run->answer),
        .started_ms = run->started_ms,
        .ended_ms = run->ended_ms };
    snprintf(to->id, sizeof to->id, "%s", run->id);
    r->run_count++;
    if (to->ended && run->error)
        take_run_error(to, run);
    return to->model && (to->fork || !run->parent_fork)
               ? replay_log_take_context(r, &run->context, to, err)
               : error_memory(err);
}

/* Adds a call of the run or of a child run; NULL without memory. */
static struct recorded_call *add_call(struct replay_log *r, bool own)
{
    struct recorded_call **list = own ? &r->calls : &r->below;
    size_t *count = own ? &r->call_count : &r->below_count;
    size_t *room = own ? &r->call_room : &r->below_room;
    if (!array_room(*list, *count, room))
        return NULL;
    return &(*list)[(*count)++];
}

static int replay_log_take_call(void *arg, const droste_record_call *call, struct error *err)
{
    struct replay_log *r = arg;
    bool own = strcmp(call->run, r->run) == 0;
    size_t run = own ? 0 : find_below(r, call->run);
    r->bytes += call->request.len + call->reply.len + call->reply_values.len;
    if (!own && run == r->run_count)
        return error_set(err, ERROR_STORE, "the record has calls of a run that is missing from it");
    struct recorded_call *c = add_call(r, own);
    if (!c)
        return error_memory(err);
    bool select = strcmp(call->kind, "select") == 0;
    *c = (struct recorded_call){ .id = call->id,
        .candidate = (unsigned)call->candidate,
        .select = select,
        .run = run,
        .turn = call->turn,
        .cell = call->cell,
        .root = call->from_loop,
        .summary = strcmp(call->kind, "summary") == 0,
        .tool = strcmp(call->kind, "tool") == 0,
        .ended = call->ended_ms != 0,
        .model = strdup(call->model),
        .fork = call->fork ? strdup(call->fork) : NULL,
        .request = replay_log_take_value(&call->request),
        .reply = replay_log_take_value(&call->reply),
        .reply_values = replay_log_take_value(&call->reply_values),
        .finish = strdup(call->finish ? call->finish : ""),
        .depth = (unsigned)call->depth,
        .cost = call->cost,
        .usage = { .input_tokens = call->input_tokens,
            .output_tokens = call->output_tokens,
            .estimated = call->estimated },
        .attempts = (unsigned)call->attempts,
        .seconds = call->seconds,
        .started_ms = call->started_ms,
        .ended_ms = call->ended_ms };
    snprintf(c->key, sizeof c->key, "%s", call->key ? call->key : "");
    if (!own && c->root)
        r->runs[run].begun = true;
    if (c->ended && strcmp(call->status, "ok") != 0)
        error_set(&c->error, error_code_named(call->status, ERROR_MODEL), "%s",
            call->error ? call->error : call->status);
    return c->model && c->finish && (c->fork || !call->fork) ? 0 : error_memory(err);
}

static int replay_log_take_cell(void *arg, const droste_record_cell *cell, struct error *err)
{
    struct replay_log *r = arg;
    r->bytes += cell->code.len + cell->standard_output.len + cell->standard_error.len +
                cell->submit.len + cell->error.len + cell->variables.len;
    for (size_t i = 0; i < cell->media_count; i++) {
        r->bytes += cell->media[i].value.len;
        r->result_bytes += cell->media[i].value.len;
    }
    if (strcmp(cell->run, r->run) != 0)
        return 0;
    if (!array_room(r->cells, r->cell_count, &r->cell_room))
        return error_memory(err);
    struct recorded_cell *c = &r->cells[r->cell_count++];
    bool first = r->cell_count == 1 || c[-1].turn != cell->turn;
    *c = (struct recorded_cell){ .id = cell->id,
        .candidate = (unsigned)cell->candidate,
        .turn = cell->turn,
        .number = first ? 1 : c[-1].number + 1,
        .ended = cell->ended_ms != 0,
        .status = strdup(cell->status),
        .killed = cell->killed ? strdup(cell->killed) : NULL,
        .code = replay_log_take_value(&cell->code),
        .out = replay_log_take_value(&cell->standard_output),
        .err = replay_log_take_value(&cell->standard_error),
        .submit = replay_log_take_value(&cell->submit),
        .error = replay_log_take_value(&cell->error),
        .seconds = cell->seconds,
        .started_ms = cell->started_ms,
        .ended_ms = cell->ended_ms };
    c->undone = cell->killed && strstr(cell->killed, CELL_ROLLED_BACK);
    c->died = c->ended && !c->undone && (cell->killed || strcmp(cell->status, "lost") == 0);
    return c->status && (!cell->killed || c->killed) ? 0 : error_memory(err);
}

/* Whether the cell cannot have received the answer: it was past its deadline or had dropped the
 * call. */
static bool came_late(const struct recorded_cell *cell, int64_t ended_ms, const struct error *error)
{
    bool beyond = strcmp(cell->status, "timeout") == 0 && ended_ms >= cell->ended_ms;
    return beyond || error->code == ERROR_CANCELLED;
}

/* Derives facts from the calls and child runs of each cell. */
static void count_calls(struct replay_log *r)
{
    for (size_t i = 0; i < r->run_count; i++) {
        struct recorded_run *run = &r->runs[i];
        struct recorded_cell *cell = run->own ? replay_log_cell_find(r, run->cell) : NULL;
        if (!cell)
            continue;
        cell->calls++;
        run->late = run->ended && came_late(cell, run->ended_ms, &run->error);
    }
    for (size_t i = 0; i < r->call_count; i++) {
        struct recorded_call *call = &r->calls[i];
        struct recorded_cell *cell = replay_log_cell_find(r, call->cell);
        if (!cell)
            continue;
        cell->calls++;
        call->number = ++cell->numbers;
        call->late = call->ended && came_late(cell, call->ended_ms, &call->error);
    }
}

int replay_log_load(
    struct store *store, const char *run, struct replay_log **out, struct error *err)
{
    static const struct store_visitor visitor = {
        .run = replay_replay_log_take_run,
        .turn = take_turn,
        .call = replay_log_take_call,
        .cell = replay_log_take_cell,
        .children = true,
        .lazy = true,
    };
    struct replay_log *r = calloc(1, sizeof *r);
    if (!r)
        return error_memory(err);
    r->store = store;
    r->run = run;
    int rc = store_run_visit(store, run, &visitor, r, err);
    if (rc < 0) {
        replay_log_free(r);
        return rc;
    }
    r->run = NULL;
    count_calls(r);
    *out = r;
    return 0;
}

static void free_calls(struct recorded_call *calls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(calls[i].model);
        free(calls[i].fork);
        free(calls[i].finish);
    }
    free(calls);
}

void replay_log_free(struct replay_log *r)
{
    if (!r)
        return;
    free_calls(r->calls, r->call_count);
    free_calls(r->below, r->below_count);
    for (size_t i = 0; i < r->run_count; i++) {
        free(r->runs[i].model);
        free(r->runs[i].fork);
    }
    for (size_t i = 0; i < r->cell_count; i++) {
        free(r->cells[i].status);
        free(r->cells[i].killed);
    }
    free(r->runs);
    free(r->turn_list);
    free(r->cells);
    free(r);
}

int replay_log_read(
    struct replay_log *r, const struct recorded_value *value, struct buf *out, struct error *err)
{
    droste_value stored = { .hash = value->hash, .len = value->len };
    if (!value->hash[0])
        return 0;
    return store_value_read(r->store, &stored, SIZE_MAX, store_append_piece, out, err);
}

/* ---- steps ---- */

int64_t replay_log_turns(const struct replay_log *r)
{
    return r->turns;
}

size_t replay_log_bytes(const struct replay_log *r)
{
    return r->bytes;
}

size_t replay_log_result_bytes(const struct replay_log *r)
{
    return r->result_bytes;
}

struct recorded_call *replay_log_call_at(struct replay_log *r, size_t index)
{
    return index < r->call_count ? &r->calls[index] : NULL;
}

struct recorded_run *replay_log_run_at(struct replay_log *r, size_t index)
{
    return index < r->run_count ? &r->runs[index] : NULL;
}

struct recorded_call *replay_log_below_at(struct replay_log *r, size_t index)
{
    return index < r->below_count ? &r->below[index] : NULL;
}

struct recorded_cell *replay_log_cell_at(struct replay_log *r, size_t index)
{
    return index < r->cell_count ? &r->cells[index] : NULL;
}

struct recorded_cell *replay_log_cell_find(struct replay_log *r, int64_t id)
{
    size_t low = 0, high = r->cell_count; /* ids rise */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (r->cells[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->cell_count && r->cells[low].id == id ? &r->cells[low] : NULL;
}

struct recorded_call *replay_log_next_root(struct replay_log *r)
{
    while (r->next_root < r->call_count &&
           (!r->calls[r->next_root].root || r->calls[r->next_root].asked))
        r->next_root++;
    return replay_log_call_at(r, r->next_root);
}

struct recorded_cell *replay_log_next_cell(struct replay_log *r)
{
    while (r->next_cell < r->cell_count && r->cells[r->next_cell].begun)
        r->next_cell++;
    return replay_log_cell_at(r, r->next_cell);
}

struct recorded_call *replay_log_next_root_of(struct replay_log *r, unsigned candidate)
{
    replay_log_next_root(r);
    for (size_t i = r->next_root; i < r->call_count; i++) {
        struct recorded_call *call = &r->calls[i];
        if (call->root && !call->asked && !call->select && call->candidate == candidate)
            return call;
    }
    return NULL;
}

struct recorded_cell *replay_log_next_cell_of(struct replay_log *r, unsigned candidate)
{
    replay_log_next_cell(r);
    for (size_t i = r->next_cell; i < r->cell_count; i++)
        if (!r->cells[i].begun && r->cells[i].candidate == candidate)
            return &r->cells[i];
    return NULL;
}

const struct recorded_turn *replay_log_turn(const struct replay_log *r, int64_t turn)
{
    for (size_t i = 0; i < r->turn_count; i++)
        if (r->turn_list[i].turn == turn)
            return &r->turn_list[i];
    return NULL;
}

/* ---- calls of guest code ---- */

static bool replay_log_is_open(const struct recorded_call *call)
{
    return !call->root && !call->asked;
}

/* Threads may ask in another cell than before, but not in one of another candidate, whose cells run
 * at the same time; forks end with theirs. */
static bool is_place_of(
    struct replay_log *r, const struct replay_place *at, int64_t cell, const char *fork)
{
    const struct recorded_cell *of = replay_log_cell_find(r, cell);
    if (of && of->candidate && of->turn == at->turn && of->candidate != at->candidate)
        return false;
    if (!at->fork || !fork)
        return !at->fork && !fork;
    return at->cell == cell && strcmp(at->fork, fork) == 0;
}

/* Rates a match: 0 for none. The cell counts more than the model's name, which may differ if the
 * guest named none (a recording replayed from another directory). */
static int replay_log_fit(struct replay_log *r, const struct recorded_call *call,
    const struct replay_place *at, bool tool, const char *model, const char *fallback,
    const char *hash)
{
    bool same = strcmp(call->model, model ? model : fallback) == 0;
    if (!replay_log_is_open(call) || call->tool != tool || (model && !same) ||
        strcmp(call->request.hash, hash) != 0 || !is_place_of(r, at, call->cell, call->fork))
        return 0;
    return 1 + same + 2 * (call->cell == at->cell);
}

struct recorded_call *replay_log_find(struct replay_log *r, const struct replay_place *at,
    bool tool, const char *model, const char *fallback, const char hash[HASH_TEXT_SIZE])
{
    struct recorded_call *best = NULL;
    int most = 0;
    while (r->first_sub < r->call_count && !replay_log_is_open(&r->calls[r->first_sub]))
        r->first_sub++;
    for (size_t i = r->first_sub; i < r->call_count && most < 4; i++) {
        int fits = replay_log_fit(r, &r->calls[i], at, tool, model, fallback, hash);
        if (fits > most)
            best = &r->calls[i];
        most = fits > most ? fits : most;
    }
    return best;
}

void replay_log_take(struct replay_log *r, struct recorded_call *call)
{
    struct recorded_cell *cell = replay_log_cell_find(r, call->cell);
    call->asked = true;
    if (cell)
        cell->calls--;
}

void replay_log_untake(struct replay_log *r, struct recorded_call *call)
{
    struct recorded_cell *cell = replay_log_cell_find(r, call->cell);
    size_t index = (size_t)(call - r->calls);
    call->asked = false;
    if (cell)
        cell->calls++;
    if (index < r->first_sub)
        r->first_sub = index;
}

struct recorded_call *replay_log_unasked(struct replay_log *r, int64_t cell)
{
    struct recorded_cell *found = replay_log_cell_find(r, cell);
    for (size_t i = 0; found && found->calls > 0 && i < r->call_count; i++)
        if (replay_log_is_open(&r->calls[i]) && r->calls[i].cell == cell)
            return &r->calls[i];
    return NULL;
}

int64_t replay_log_asked(const struct replay_log *r, int64_t cell)
{
    int64_t asked = 0;
    for (size_t i = 0; i < r->call_count; i++)
        asked += !r->calls[i].root && r->calls[i].asked && r->calls[i].cell == cell;
    return asked;
}

/* ---- child runs of guest code ---- */

/* Like fit() for calls. */
static int fit_run(struct replay_log *r, const struct recorded_run *run,
    const struct replay_place *at, const char *model, const char *fallback, const char *question,
    const char *context)
{
    bool same = strcmp(run->model, model ? model : fallback) == 0;
    if (!run->own || run->asked || (model && !same) || strcmp(run->question.hash, question) != 0 ||
        strcmp(run->context, context) != 0 || !is_place_of(r, at, run->cell, run->fork))
        return 0;
    return 1 + same + 2 * (run->cell == at->cell);
}

struct recorded_run *replay_log_find_run(struct replay_log *r, const struct replay_place *at,
    const char *model, const char *fallback, const char *question, const char *context)
{
    struct recorded_run *best = NULL;
    int most = 0;
    for (size_t i = 0; i < r->run_count; i++) {
        struct recorded_run *run = &r->runs[i];
        int fits = fit_run(r, run, at, model, fallback, question, context);
        if (fits == 0 || fits < most || (fits == most && run->seq > best->seq))
            continue;
        best = run;
        most = fits;
    }
    return best;
}

static void note_run(struct replay_log *r, struct recorded_run *run, bool asked)
{
    struct recorded_cell *cell = replay_log_cell_find(r, run->cell);
    run->asked = asked;
    if (cell)
        cell->calls = asked ? cell->calls - 1 : cell->calls + 1;
}

void replay_log_take_run(struct replay_log *r, struct recorded_run *run)
{
    note_run(r, run, true);
}

void replay_log_untake_run(struct replay_log *r, struct recorded_run *run)
{
    note_run(r, run, false);
}

struct recorded_run *replay_log_unasked_run(struct replay_log *r, int64_t cell)
{
    for (size_t i = 0; i < r->run_count; i++)
        if (r->runs[i].own && !r->runs[i].asked && r->runs[i].cell == cell)
            return &r->runs[i];
    return NULL;
}

int64_t replay_log_unasked_ms(struct replay_log *r, int64_t cell)
{
    const struct recorded_cell *found = replay_log_cell_find(r, cell);
    int64_t last_ms = found ? found->started_ms : 0;
    for (size_t i = 0; found && i < r->call_count; i++)
        if (replay_log_is_open(&r->calls[i]) && r->calls[i].cell == cell &&
            r->calls[i].started_ms > last_ms)
            last_ms = r->calls[i].started_ms;
    for (size_t i = 0; found && i < r->run_count; i++)
        if (r->runs[i].own && !r->runs[i].asked && r->runs[i].cell == cell &&
            r->runs[i].started_ms > last_ms)
            last_ms = r->runs[i].started_ms;
    return found ? last_ms - found->started_ms : 0;
}

struct lm_reply replay_log_spent(const struct recorded_call *call)
{
    return (
        struct lm_reply){ .usage = call->usage, .cost = call->cost, .attempts = call->attempts };
}

bool replay_log_is_of(const struct recorded_call *call, struct lm *lm, bool again)
{
    return !again || strcmp(call->model, lm_name(lm)) == 0;
}
