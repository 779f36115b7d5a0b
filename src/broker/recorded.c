/* broker/recorded.c: see recorded.h. */
#include "broker/recorded.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

struct recorded {
    struct store *store;
    struct recorded_call *calls;
    size_t call_count, call_room, next_root, first_sub;
    struct recorded_cell *cells;
    size_t cell_count, cell_room, next_cell;
    int64_t turns;
};

/* ---- reading the record ---- */

/* Room for one more at the end of an array; NULL without memory. */
static void *grow(void *array, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return array;
    size_t more = *room ? 2 * *room : 32;
    void *grown = reallocarray(array, more, size);
    if (grown)
        *room = more;
    return grown;
}

static struct recorded_value take_value(const struct store_value *value)
{
    struct recorded_value v = { .len = value->len };
    if (value->hash)
        snprintf(v.hash, sizeof v.hash, "%s", value->hash);
    return v;
}

static enum error_code code_named(const char *name)
{
    for (int code = ERROR_NONE + 1; code <= ERROR_MODEL_REPLAY; code++)
        if (strcmp(error_code_name((enum error_code)code), name) == 0)
            return (enum error_code)code;
    return ERROR_MODEL;
}

static int take_turn(void *arg, const struct store_turn *turn, struct error *err)
{
    ((struct recorded *)arg)->turns = turn->turn;
    return 0;
}

static int take_call(void *arg, const struct store_call *call, struct error *err)
{
    struct recorded *r = arg;
    const struct store_call_end *e = &call->end;
    void *calls = grow(r->calls, r->call_count, &r->call_room, sizeof *r->calls);
    if (!calls)
        return error_memory(err);
    r->calls = calls;
    struct recorded_call *c = &r->calls[r->call_count++];
    *c = (struct recorded_call){ .id = call->id,
        .turn = call->begin.turn,
        .cell = call->begin.cell,
        .root = strcmp(call->begin.kind, "root") == 0,
        .tool = strcmp(call->begin.kind, "tool") == 0,
        .ended = call->ended_ms != 0,
        .model = strdup(call->begin.model),
        .request = take_value(&call->begin.request),
        .reply = take_value(&e->reply),
        .finish = strdup(e->finish ? e->finish : ""),
        .depth = (unsigned)call->begin.depth,
        .cost = e->cost,
        .usage = { .input_tokens = e->input_tokens,
            .output_tokens = e->output_tokens,
            .estimated = e->estimated },
        .attempts = (unsigned)e->attempts,
        .seconds = e->seconds,
        .ended_ms = call->ended_ms };
    snprintf(c->key, sizeof c->key, "%s", call->begin.key ? call->begin.key : "");
    if (c->ended && strcmp(e->status, "ok") != 0)
        error_set(&c->error, code_named(e->status), "%s", e->error ? e->error : e->status);
    return c->model && c->finish ? 0 : error_memory(err);
}

static int take_cell(void *arg, const struct store_cell *cell, struct error *err)
{
    struct recorded *r = arg;
    const struct store_cell_end *e = &cell->end;
    void *cells = grow(r->cells, r->cell_count, &r->cell_room, sizeof *r->cells);
    if (!cells)
        return error_memory(err);
    r->cells = cells;
    struct recorded_cell *c = &r->cells[r->cell_count++];
    bool first = r->cell_count == 1 || c[-1].turn != cell->begin.turn;
    *c = (struct recorded_cell){ .id = cell->id,
        .turn = cell->begin.turn,
        .number = first ? 1 : c[-1].number + 1,
        .ended = cell->ended_ms != 0,
        .status = strdup(e->status),
        .killed = e->killed ? strdup(e->killed) : NULL,
        .code = take_value(&cell->begin.code),
        .out = take_value(&e->standard_output),
        .err = take_value(&e->standard_error),
        .submit = take_value(&e->submit),
        .error = take_value(&e->error),
        .seconds = e->seconds,
        .ended_ms = cell->ended_ms };
    c->died = c->ended && (e->killed || strcmp(e->status, "lost") == 0);
    return c->status && (!e->killed || c->killed) ? 0 : error_memory(err);
}

/* What follows from the calls of each cell. */
static void count_calls(struct recorded *r)
{
    for (size_t i = 0; i < r->call_count; i++) {
        struct recorded_call *call = &r->calls[i];
        struct recorded_cell *cell = recorded_cell_find(r, call->cell);
        if (!cell)
            continue;
        call->number = (int64_t)++cell->calls;
        bool beyond = strcmp(cell->status, "timeout") == 0 && call->ended_ms >= cell->ended_ms;
        call->late = call->ended && (beyond || call->error.code == ERROR_CANCELLED);
    }
}

int recorded_load(struct store *store, const char *run, struct recorded **out, struct error *err)
{
    static const struct store_visitor visitor = {
        .turn = take_turn, .call = take_call, .cell = take_cell, .lazy = true
    };
    struct recorded *r = calloc(1, sizeof *r);
    if (!r)
        return error_memory(err);
    r->store = store;
    int rc = store_run_visit(store, run, &visitor, r, err);
    if (rc < 0) {
        recorded_free(r);
        return rc;
    }
    count_calls(r);
    *out = r;
    return 0;
}

void recorded_free(struct recorded *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->call_count; i++) {
        free(r->calls[i].model);
        free(r->calls[i].finish);
    }
    for (size_t i = 0; i < r->cell_count; i++) {
        free(r->cells[i].status);
        free(r->cells[i].killed);
    }
    free(r->calls);
    free(r->cells);
    free(r);
}

static int add_piece(void *arg, const char *data, size_t len, struct error *err)
{
    buf_append(arg, data, len);
    return buf_failed(arg) ? error_memory(err) : 0;
}

int recorded_read(
    struct recorded *r, const struct recorded_value *value, struct buf *out, struct error *err)
{
    struct store_value stored = { .hash = value->hash, .len = value->len };
    if (!value->hash[0])
        return 0;
    return store_value_read(r->store, &stored, SIZE_MAX, add_piece, out, err);
}

/* ---- steps ---- */

int64_t recorded_turns(const struct recorded *r)
{
    return r->turns;
}

struct recorded_call *recorded_call_at(struct recorded *r, size_t index)
{
    return index < r->call_count ? &r->calls[index] : NULL;
}

struct recorded_cell *recorded_cell_at(struct recorded *r, size_t index)
{
    return index < r->cell_count ? &r->cells[index] : NULL;
}

struct recorded_cell *recorded_cell_find(struct recorded *r, int64_t id)
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

struct recorded_call *recorded_next_root(struct recorded *r)
{
    while (r->next_root < r->call_count &&
           (!r->calls[r->next_root].root || r->calls[r->next_root].asked))
        r->next_root++;
    return recorded_call_at(r, r->next_root);
}

struct recorded_cell *recorded_next_cell(struct recorded *r)
{
    while (r->next_cell < r->cell_count && r->cells[r->next_cell].begun)
        r->next_cell++;
    return recorded_cell_at(r, r->next_cell);
}

/* ---- calls of guest code ---- */

static bool is_open(const struct recorded_call *call)
{
    return !call->root && !call->asked;
}

/* How well the call fits: 0 not at all. The cell counts more than the model's name, which a guest
 * that named none may find changed (a recording that is replayed from another directory). */
static int fit(const struct recorded_call *call, int64_t cell, bool tool, const char *model,
    const char *fallback, const char *hash)
{
    bool same = strcmp(call->model, model ? model : fallback) == 0;
    if (!is_open(call) || call->tool != tool || (model && !same) ||
        strcmp(call->request.hash, hash) != 0)
        return 0;
    return 1 + same + 2 * (call->cell == cell);
}

struct recorded_call *recorded_find(struct recorded *r, int64_t cell, bool tool, const char *model,
    const char *fallback, const char hash[HASH_TEXT_SIZE])
{
    struct recorded_call *best = NULL;
    int most = 0;
    while (r->first_sub < r->call_count && !is_open(&r->calls[r->first_sub]))
        r->first_sub++;
    for (size_t i = r->first_sub; i < r->call_count && most < 4; i++) {
        int fits = fit(&r->calls[i], cell, tool, model, fallback, hash);
        if (fits > most)
            best = &r->calls[i];
        most = fits > most ? fits : most;
    }
    return best;
}

void recorded_take(struct recorded *r, struct recorded_call *call)
{
    struct recorded_cell *cell = recorded_cell_find(r, call->cell);
    call->asked = true;
    if (cell)
        cell->calls--;
}

void recorded_untake(struct recorded *r, struct recorded_call *call)
{
    struct recorded_cell *cell = recorded_cell_find(r, call->cell);
    size_t index = (size_t)(call - r->calls);
    call->asked = false;
    if (cell)
        cell->calls++;
    if (index < r->first_sub)
        r->first_sub = index;
}

struct recorded_call *recorded_unasked(struct recorded *r, int64_t cell)
{
    struct recorded_cell *known = recorded_cell_find(r, cell);
    for (size_t i = 0; known && known->calls > 0 && i < r->call_count; i++)
        if (is_open(&r->calls[i]) && r->calls[i].cell == cell)
            return &r->calls[i];
    return NULL;
}

int64_t recorded_asked(const struct recorded *r, int64_t cell)
{
    int64_t asked = 0;
    for (size_t i = 0; i < r->call_count; i++)
        asked += !r->calls[i].root && r->calls[i].asked && r->calls[i].cell == cell;
    return asked;
}

int recorded_count(const struct recorded_call *call, struct budget *budget, struct account *account,
    struct error *err)
{
    struct lm_reply reply = {
        .usage = call->usage, .cost = call->cost, .attempts = call->attempts
    };
    return budget_recall(budget, call->model, call->depth, account, &reply, err);
}

bool recorded_is_of(const struct recorded_call *call, struct lm *lm, bool again)
{
    return !again || strcmp(call->model, lm_name(lm)) == 0;
}
