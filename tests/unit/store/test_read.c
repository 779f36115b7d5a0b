/* Reading the record: every field and byte, in order; and finding runs. */
#include "fixture.h"

/* What a visit saw, one letter a step ("R t1 c1 ..."), and copies of what a test asks about. */
struct seen {
    char steps[512];
    int64_t stop_at; /* the call at which the visitor stops; 0: none */
};

static void see(struct seen *seen, const char *what, int64_t id)
{
    size_t used = strlen(seen->steps);
    snprintf(seen->steps + used, sizeof seen->steps - used, "%s%s%lld", used ? " " : "", what,
        (long long)id);
}

static int see_turn(void *arg, const droste_record_turn *turn, struct error *err)
{
    assert_true(turn->started_ms > 1600000000000);
    see(arg, "turn", turn->turn);
    return 0;
}

static int see_call(void *arg, const droste_record_call *call, struct error *err)
{
    struct seen *seen = arg;
    see(arg, "call", call->id);
    if (seen->stop_at == call->id)
        return error_set(err, ERROR_CANCELLED, "enough");
    return 0;
}

static int see_cell(void *arg, const droste_record_cell *cell, struct error *err)
{
    see(arg, "cell", cell->id);
    return 0;
}

static const struct store_visitor order = { .turn = see_turn, .call = see_call, .cell = see_cell };

static void assert_value(droste_value value, droste_value expected)
{
    assert_int_equal(value.data != NULL, expected.data != NULL);
    assert_int_equal(value.len, expected.len);
    if (expected.len > 0)
        assert_memory_equal(value.data, expected.data, expected.len);
    if (value.data)
        assert_int_equal(((const char *)value.data)[value.len], '\0');
}

/* ---- what has happened since ---- */

/* ---- round trips ---- */

static const char odd_bytes[] = "a\0b\xff\xfe\xc3(\n\0";
#define ODD ((droste_value){ odd_bytes, sizeof odd_bytes - 1 })

static int check_run(void *arg, const droste_record_run *run, struct error *err)
{
    assert_string_equal(run->id, "child");
    assert_string_equal(run->parent, "parent");
    assert_int_equal(run->parent_cell, *(int64_t *)arg);
    assert_int_equal(run->depth, 1);
    assert_string_equal(run->model, "openai/gpt-5-mini");
    assert_string_equal(run->environment, "docker");
    assert_string_equal(run->isolation, "light");
    assert_string_equal(run->version, "0.1.0");
    assert_value(run->question, ODD);
    assert_value(run->context, store_text("{\"type\":\"str\"}"));
    assert_value(run->limits, store_text(""));
    assert_string_equal(run->status, "done");
    assert_string_equal(run->error, "model_rate: again later");
    assert_value(run->answer, store_text("{\"x\":1}"));
    assert_int_equal(run->iterations, 7);
    assert_int_equal(run->calls, 8);
    assert_int_equal(run->input_tokens, INT64_C(9000000000));
    assert_int_equal(run->output_tokens, 10);
    assert_true(run->cost == 0.25);
    assert_true(run->seconds == 12.5);
    assert_true(run->started_ms > 1600000000000 && run->ended_ms >= run->started_ms);
    return 0;
}

/* Every field of a run, NULs and malformed UTF-8 and the empty value among them. */
static void a_run_comes_back_whole(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    char id[STORE_RUN_ID_SIZE];
    begin_run(store, "parent");
    assert_ok(store_turn_begin(store, "parent", 1, err));
    int64_t cell = begin_cell(store, "parent", store_text("rlm_query('?')"));
    droste_record_run begin = { .id = "child",
        .parent = "parent",
        .parent_cell = cell,
        .depth = 1,
        .model = "openai/gpt-5-mini",
        .environment = "docker",
        .version = "0.1.0",
        .question = ODD,
        .context = store_text("{\"type\":\"str\"}"),
        .limits = store_text("") };
    droste_record_run end = { .status = "done",
        .error = "model_rate: again later",
        .answer = store_text("{\"x\":1}"),
        .iterations = 7,
        .calls = 8,
        .input_tokens = INT64_C(9000000000),
        .output_tokens = 10,
        .cost = 0.25,
        .seconds = 12.5 };
    struct store_visitor visitor = { .run = check_run };
    assert_ok(store_run_begin(store, &begin, id, err));
    assert_string_equal(id, "child");
    assert_ok(store_run_note_isolation(store, "child", "light", err));
    assert_ok(store_run_end(store, "child", &end, err));
    assert_ok(store_run_visit(store, "child", &visitor, &cell, err));
    store_close(store);
}

static int check_call(void *arg, const droste_record_call *call, struct error *err)
{
    const int64_t *cell = arg;
    assert_string_equal(call->run, "a");
    assert_int_equal(call->turn, 1);
    assert_int_equal(call->cell, *cell);
    assert_int_equal(call->depth, 2);
    assert_string_equal(call->kind, "sub");
    assert_string_equal(call->model, "m");
    assert_value(call->request, ODD);
    assert_string_equal(call->status, "error");
    assert_string_equal(call->error, "cut");
    assert_string_equal(call->finish, "length");
    assert_value(call->reply, store_text("half"));
    assert_int_equal(call->input_tokens, 11);
    assert_int_equal(call->output_tokens, 12);
    assert_true(call->estimated);
    assert_true(call->cost == 0.125);
    assert_int_equal(call->attempts, 3);
    assert_true(call->seconds == 0.5);
    assert_true(call->started_ms > 1600000000000 && call->ended_ms >= call->started_ms);
    return 0;
}

/* Two rich results of a cell, the first in two forms. */
static const droste_record_media shown[] = {
    { 0, "text/plain", "text", { "a table", 7, NULL } },
    { 0, "image/png", "bytes", { "\x89PNG\0", 5, NULL } },
    { 4, "application/json", "json", { "[]", 2, NULL } },
};

static int check_cell(void *arg, const droste_record_cell *cell, struct error *err)
{
    assert_string_equal(cell->run, "a");
    assert_int_equal(cell->turn, 1);
    assert_value(cell->code, store_text("llm_query('?')"));
    assert_string_equal(cell->status, "killed");
    assert_string_equal(cell->killed, "memory");
    assert_value(cell->standard_output, ODD);
    assert_value(cell->standard_error, store_text("err"));
    assert_value(cell->submit, store_text("{}"));
    assert_value(cell->error, store_text("{\"type\":\"MemoryError\"}"));
    assert_value(cell->variables, store_text("[]"));
    assert_int_equal(cell->calls, 1);
    assert_true(cell->seconds == 1.5);
    assert_int_equal(cell->media_count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(cell->media[i].result, shown[i].result);
        assert_string_equal(cell->media[i].type, shown[i].type);
        assert_string_equal(cell->media[i].form, shown[i].form);
        assert_int_equal(cell->media[i].value.len, shown[i].value.len);
        assert_null(cell->media[i].value.data);
        assert_int_equal(strlen(cell->media[i].value.hash), 64);
    }
    assert_true(cell->started_ms > 1600000000000 && cell->ended_ms >= cell->started_ms);
    return 0;
}

/* Every field of a call and a cell. */
static void steps_come_back_whole(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    int64_t call;
    begin_run(store, "a");
    assert_ok(store_turn_begin(store, "a", 1, err));
    int64_t cell = begin_cell(store, "a", store_text("llm_query('?')"));
    droste_record_call begin = {
        .run = "a", .turn = 1, .cell = cell, .depth = 2, .kind = "sub", .model = "m", .request = ODD
    };
    droste_record_call end = { .status = "error",
        .error = "cut",
        .finish = "length",
        .reply = store_text("half"),
        .input_tokens = 11,
        .output_tokens = 12,
        .estimated = true,
        .cost = 0.125,
        .attempts = 3,
        .seconds = 0.5 };
    droste_record_cell cell_end = { .status = "killed",
        .killed = "memory",
        .standard_output = ODD,
        .standard_error = store_text("err"),
        .submit = store_text("{}"),
        .error = store_text("{\"type\":\"MemoryError\"}"),
        .variables = store_text("[]"),
        .calls = 1,
        .seconds = 1.5,
        .media = shown,
        .media_count = 3 };
    struct store_visitor visitor = { .call = check_call, .cell = check_cell };
    assert_ok(store_call_begin(store, &begin, &call, err));
    assert_ok(store_call_end(store, call, &end, err));
    assert_ok(store_cell_end(store, cell, &cell_end, err));
    assert_ok(store_run_visit(store, "a", &visitor, &cell, err));
    store_close(store);
}

static int check_open_run(void *arg, const droste_record_run *run, struct error *err)
{
    assert_string_equal(run->status, "running");
    assert_null(run->parent);
    assert_null(run->isolation);
    assert_null(run->context.data);
    assert_null(run->answer.data);
    assert_null(run->error);
    assert_true(run->cost < 0);
    assert_int_equal(run->ended_ms, 0);
    return 0;
}

static int check_open_cell(void *arg, const droste_record_cell *cell, struct error *err)
{
    assert_string_equal(cell->status, "running");
    assert_null(cell->standard_output.data);
    assert_int_equal(cell->ended_ms, 0);
    return 0;
}

/* What is not there reads as not there, and what has not ended as running. */
static void absent_is_not_empty(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    struct store_visitor visitor = { .run = check_open_run, .cell = check_open_cell };
    begin_run(store, "a");
    assert_ok(store_turn_begin(store, "a", 1, err));
    begin_cell(store, "a", store_text(""));
    assert_ok(store_run_visit(store, "a", &visitor, NULL, err));
    store_close(store);
}

static int check_large(void *arg, const droste_record_cell *cell, struct error *err)
{
    assert_value(cell->code, *(droste_value *)arg);
    assert_value(cell->standard_output, *(droste_value *)arg);
    return 0;
}

static void write_and_read_back(const char *file, droste_value value)
{
    struct store *store = open_store(file);
    struct store_visitor visitor = { .cell = check_large };
    begin_run(store, "a");
    assert_ok(store_turn_begin(store, "a", 1, err));
    end_cell(store, begin_cell(store, "a", value), value);
    store_close(store);
    store = open_store(file);
    assert_ok(store_run_visit(store, "a", &visitor, &value, err));
    store_close(store);
}

enum { LARGE = 5 << 20 };

/* Five megabytes that shrink to almost nothing. */
static void a_large_value_that_shrinks(void **state)
{
    struct place *place = *state;
    char *data = malloc(LARGE);
    for (size_t i = 0; i < LARGE; i++)
        data[i] = (char)(i % 251);
    write_and_read_back(place->file, (droste_value){ data, LARGE });
    assert_int_equal(
        ask(place->file, "SELECT encoding = 'zstd' FROM blobs WHERE size = 5242880"), 1);
    free(data);
}

/* Five megabytes of noise, which are kept as they are. */
static void a_large_value_that_does_not(void **state)
{
    struct place *place = *state;
    unsigned char *data = malloc(LARGE);
    uint64_t x = 88172645463325252u; /* xorshift64 */
    for (size_t i = 0; i < LARGE; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        data[i] = (unsigned char)(x >> 32);
    }
    write_and_read_back(place->file, (droste_value){ data, LARGE });
    assert_int_equal(
        ask(place->file, "SELECT encoding = 'raw' FROM blobs WHERE size = 5242880"), 1);
    free(data);
}

static int look_away(void *arg, const droste_record_run *run, struct error *err)
{
    return 0;
}

/* Values that were changed in the file, or claim what they are not, are refused and not trusted. */
static void damaged_values_are_refused(void **state)
{
    struct place *place = *state;
    static const char *const damages[] = {
        "UPDATE blobs SET data = x'77687921'",          /* "why!": another hash */
        "UPDATE blobs SET size = 3",                    /* less than there is */
        "UPDATE blobs SET size = 1 << 60",              /* more than may be */
        "UPDATE blobs SET size = -1",                   /* not a size */
        "UPDATE blobs SET encoding = 'zstd'",           /* not a frame */
        "PRAGMA foreign_keys = OFF; DELETE FROM blobs", /* gone */
    };
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        struct store_visitor visitor = { .run = look_away };
        sqlite3 *db = NULL;
        struct store *store = open_store(place->file);
        begin_run(store, "a");
        sqlite3_open(place->file, &db);
        assert_int_equal(sqlite3_exec(db, damages[i], NULL, NULL, NULL), SQLITE_OK);
        assert_fails(ERROR_STORE, store_run_visit(store, "a", &visitor, NULL, err));
        sqlite3_exec(db, "DELETE FROM runs; DELETE FROM blobs", NULL, NULL, NULL);
        sqlite3_close(db);
        store_close(store);
    }
}

struct pieces {
    struct store *store;
    size_t max, len, largest, pieces;
};

static int add_piece(void *arg, const char *data, size_t len, struct error *err)
{
    struct pieces *p = arg;
    for (size_t i = 0; i < len; i++)
        assert_int_equal((unsigned char)data[i], (p->len + i) % 251);
    p->len += len;
    p->pieces++;
    p->largest = len > p->largest ? len : p->largest;
    return 0;
}

static int read_code(void *arg, const droste_record_cell *cell, struct error *err)
{
    struct pieces *p = arg;
    assert_null(cell->code.data);
    assert_non_null(cell->code.hash);
    assert_int_equal(cell->code.len, LARGE);
    assert_null(cell->standard_output.hash);
    return store_value_read(p->store, &cell->code, p->max, add_piece, p, err);
}

/* A lazy reader gets a value in small pieces, all of it or its beginning. */
static void a_lazy_value_comes_in_pieces(void **state)
{
    struct place *place = *state;
    char *data = malloc(LARGE);
    for (size_t i = 0; i < LARGE; i++)
        data[i] = (char)(i % 251);
    struct store *store = open_store(place->file);
    struct store_visitor visitor = { .cell = read_code, .lazy = true };
    begin_run(store, "a");
    assert_ok(store_turn_begin(store, "a", 1, err));
    begin_cell(store, "a", (droste_value){ data, LARGE });
    struct pieces all = { .store = store, .max = SIZE_MAX },
                  some = { .store = store, .max = 70001 };
    assert_ok(store_run_visit(store, "a", &visitor, &all, err));
    assert_int_equal(all.len, LARGE);
    assert_in_range(all.largest, 1, 1 << 20);
    assert_ok(store_run_visit(store, "a", &visitor, &some, err));
    assert_int_equal(some.len, 70001);
    store_close(store);
    free(data);
}

/* ---- order ---- */

/* Turns in their order; in each, calls and cells in the order in which they began. */
static void steps_come_in_the_order_in_which_they_began(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    struct seen seen = { 0 };
    begin_run(store, "other");
    begin_run(store, "a");
    assert_ok(store_turn_begin(store, "other", 1, err));
    assert_ok(store_turn_begin(store, "a", 1, err));
    end_call(store, begin_call(store, "a", "1"), "r");
    begin_cell(store, "other", store_text("2"));
    int64_t cell = begin_cell(store, "a", store_text("3"));
    int64_t first = begin_call(store, "a", "4");
    int64_t second = begin_call(store, "a", "5");
    end_call(store, second, "r");
    end_call(store, first, "r");
    end_cell(store, cell, store_text("r"));
    end_cell(store, begin_cell(store, "a", store_text("6")), store_text("r"));
    assert_ok(store_turn_begin(store, "a", 2, err));
    assert_ok(store_run_visit(store, "a", &order, &seen, err));
    assert_string_equal(seen.steps, "turn1 call1 cell3 call4 call5 cell6 turn2");
    store_close(store);
}

static int see_begin(void *arg, const droste_record_run *run, struct error *err)
{
    see(arg, run->id, run->depth);
    return 0;
}

static int see_end(void *arg, const droste_record_run *run, struct error *err)
{
    see(arg, "end", run->depth);
    return 0;
}

static const struct store_visitor tree = { .run = see_begin,
    .turn = see_turn,
    .call = see_call,
    .cell = see_cell,
    .end = see_end,
    .children = true };

static void begin_child(
    struct store *store, const char *id, const char *parent, int64_t cell, int64_t depth)
{
    char made[STORE_RUN_ID_SIZE];
    droste_record_run begin = plain_run(id);
    begin.parent = parent;
    begin.parent_cell = cell;
    begin.depth = depth;
    assert_ok(store_run_begin(store, &begin, made, err));
}

/* What children did comes between the steps of their parents, two at once mixed as they were; a run
 * that has no steps yet stands behind the cell that asked for it. */
static void a_tree_comes_in_the_order_in_which_it_grew(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    struct seen seen = { 0 };
    begin_run(store, "root");
    assert_ok(store_turn_begin(store, "root", 1, err));
    begin_call(store, "root", "1");
    int64_t cell = begin_cell(store, "root", store_text("2"));
    begin_child(store, "x", "root", cell, 1);
    begin_child(store, "y", "root", cell, 1);
    begin_child(store, "idle", "root", cell, 1);
    assert_ok(store_turn_begin(store, "x", 1, err));
    assert_ok(store_turn_begin(store, "y", 1, err));
    begin_call(store, "x", "3");
    begin_call(store, "y", "4");
    cell = begin_cell(store, "x", store_text("5"));
    begin_child(store, "z", "x", cell, 2);
    assert_ok(store_turn_begin(store, "z", 1, err));
    begin_call(store, "z", "6");
    begin_cell(store, "root", store_text("7"));
    assert_ok(store_run_visit(store, "root", &tree, &seen, err));
    assert_string_equal(seen.steps,
        "root0 turn1 call1 cell2 idle1 end1 x1 turn1 call3 y1 turn1 call4 end1 cell5 "
        "z2 turn1 call6 end2 end1 cell7 end0");
    store_close(store);
}

/* Of a tree, the part below a run; and of a run, what is its own. */
static void a_branch_is_visited_alone(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    struct seen branch = { 0 }, alone = { 0 };
    begin_run(store, "root");
    assert_ok(store_turn_begin(store, "root", 1, err));
    int64_t cell = begin_cell(store, "root", store_text("1"));
    begin_child(store, "x", "root", cell, 1);
    assert_ok(store_turn_begin(store, "x", 1, err));
    begin_call(store, "x", "2");
    assert_ok(store_run_visit(store, "x", &tree, &branch, err));
    assert_string_equal(branch.steps, "x1 turn1 call2 end1");
    assert_ok(store_run_visit(store, "root", &order, &alone, err));
    assert_string_equal(alone.steps, "turn1 cell1");
    store_close(store);
}

/* Runs that claim to be each other's parents, as only a file from elsewhere does, come once
 * each. */
static void a_circle_of_parents_ends(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    struct seen seen = { 0 };
    begin_run(store, "a");
    begin_child(store, "b", "a", 0, 1);
    ask(place->file, "UPDATE runs SET parent = 'b' WHERE id = 'a'");
    assert_ok(store_run_visit(store, "a", &tree, &seen, err));
    assert_string_equal(seen.steps, "a0 b1 end1 end0");
    store_close(store);
}

/* A visitor's error stops the visit and is its result; the store goes on working. */
static void a_visitor_can_stop(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    struct seen seen = { .stop_at = 2 };
    begin_run(store, "a");
    assert_ok(store_turn_begin(store, "a", 1, err));
    for (int i = 0; i < 3; i++)
        begin_call(store, "a", "p");
    assert_fails(ERROR_CANCELLED, store_run_visit(store, "a", &order, &seen, err));
    assert_string_equal(seen.steps, "turn1 call1 call2");
    seen = (struct seen){ 0 };
    assert_ok(store_turn_begin(store, "a", 2, err));
    assert_ok(store_run_visit(store, "a", &order, &seen, err));
    assert_string_equal(seen.steps, "turn1 call1 call2 call3 turn2");
    store_close(store);
}

static int write_within(void *arg, const droste_record_run *run, struct error *err)
{
    return store_turn_begin(arg, run->id, 1, err);
}

/* Writing from within a visit is an error, and harms neither. */
static void writing_within_a_visit_is_refused(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    struct store_visitor visitor = { .run = write_within };
    begin_run(store, "a");
    assert_fails(ERROR_STORE, store_run_visit(store, "a", &visitor, store, err));
    assert_ok(store_turn_begin(store, "a", 1, err));
    store_close(store);
}

/* ---- lists and prefixes ---- */

static int see_run(void *arg, const droste_record_run *run, struct error *err)
{
    char *names = arg;
    strcat(strcat(names, run->id), " ");
    return 0;
}

static void assert_lists(struct store *store, droste_record_filter filter, const char *expected)
{
    char names[256] = "";
    assert_ok(store_run_list(store, &filter, see_run, names, err));
    assert_string_equal(names, expected);
}

/* The newest first; roots, children of one run, or all; as many as asked for. */
static void lists_are_filtered(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    assert_lists(store, (droste_record_filter){ 0 }, "");
    static const struct {
        const char *id, *parent;
    } runs[] = { { "b", NULL }, { "b1", "b" }, { "a", NULL }, { "b2", "b" }, { "b11", "b1" } };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char id[STORE_RUN_ID_SIZE];
        droste_record_run begin = plain_run(runs[i].id);
        begin.parent = runs[i].parent;
        assert_ok(store_run_begin(store, &begin, id, err));
    }
    assert_lists(store, (droste_record_filter){ 0 }, "a b ");
    assert_lists(store, (droste_record_filter){ .limit = 1 }, "a ");
    assert_lists(store, (droste_record_filter){ .parent = "b" }, "b2 b1 ");
    assert_lists(store, (droste_record_filter){ .parent = "a" }, "");
    assert_lists(store, (droste_record_filter){ .children = true }, "b11 b2 a b1 b ");
    assert_lists(store, (droste_record_filter){ .children = true, .limit = 2 }, "b11 b2 ");
    store_close(store);
}

/* By status, which for a run without a process is `interrupted`, and by a part of the model's name;
 * the limit counts what is left. */
static void lists_are_filtered_by_status_and_model(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    static const char *const ids[] = { "live", "gone", "done1", "done2" };
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        begin_run(store, ids[i]);
    end_run(store, "done1");
    end_run(store, "done2");
    ask(place->file, "UPDATE runs SET owner_start = 1 WHERE id = 'gone'");
    ask(place->file, "UPDATE runs SET model = 'openai/o9' WHERE id = 'done2'");
    assert_lists(store, (droste_record_filter){ .status = "done" }, "done2 done1 ");
    assert_lists(store, (droste_record_filter){ .status = "done", .limit = 1 }, "done2 ");
    assert_lists(store, (droste_record_filter){ .status = "running" }, "live ");
    assert_lists(store, (droste_record_filter){ .status = "interrupted", .limit = 1 }, "gone ");
    assert_lists(store, (droste_record_filter){ .model = "o9" }, "done2 ");
    assert_lists(store, (droste_record_filter){ .model = "replay", .status = "done" }, "done1 ");
    assert_lists(store, (droste_record_filter){ .model = "O9" }, "");
    store_close(store);
}

/* By a part of the batch's name and by the whole of the task's; runs without them never fit. */
static void lists_are_filtered_by_batch_and_task(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    static const char *const runs[][3] = { { "a1", "/x/a.jsonl", "t1" },
        { "a2", "/x/a.jsonl", "t2" }, { "b1", "/y/b.jsonl", "t1" } };
    begin_run(store, "none");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char id[STORE_RUN_ID_SIZE];
        droste_record_run begin = plain_run(runs[i][0]);
        begin.batch = runs[i][1];
        begin.task = runs[i][2];
        assert_ok(store_run_begin(store, &begin, id, err));
    }
    assert_lists(store, (droste_record_filter){ .batch = "/x/a.jsonl" }, "a2 a1 ");
    assert_lists(store, (droste_record_filter){ .batch = "jsonl", .limit = 2 }, "b1 a2 ");
    assert_lists(store, (droste_record_filter){ .task = "t1" }, "b1 a1 ");
    assert_lists(
        store, (droste_record_filter){ .batch = "a.", .task = "t1", .children = true }, "a1 ");
    assert_lists(store, (droste_record_filter){ .task = "t" }, "");
    assert_lists(store, (droste_record_filter){ .batch = "c.jsonl" }, "");
    assert_lists(store, (droste_record_filter){ 0 }, "b1 a2 a1 none ");
    store_close(store);
}

static void assert_find_says(struct store *store, const char *prefix, int code, const char *words)
{
    struct error err = { 0 };
    char id[STORE_RUN_ID_SIZE];
    assert_int_equal(store_run_find(store, prefix, id, &err), -code);
    if (!strstr(err.text, words))
        fail_msg("'%s' does not say '%s'", err.text, words);
}

/* A prefix of one run finds it, and so does an id that is also another's prefix. */
static void a_prefix_finds_its_run(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    char id[STORE_RUN_ID_SIZE] = "";
    begin_run(store, "20260101-000000-aaaaaa");
    begin_run(store, "20260102-000000-bbbbbb");
    begin_run(store, "20260102-000000-bbbbbb.2");
    assert_ok(store_run_find(store, "20260101", id, err));
    assert_string_equal(id, "20260101-000000-aaaaaa");
    assert_ok(store_run_find(store, "20260102-000000-bbbbbb", id, err));
    assert_string_equal(id, "20260102-000000-bbbbbb");
    store_close(store);
}

/* "last" is the newest root run, unless an id begins so. */
static void last_is_the_newest_root_run(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    char id[STORE_RUN_ID_SIZE] = "";
    assert_find_says(store, "last", ERROR_NOT_FOUND, "is empty");
    begin_run(store, "r1");
    begin_run(store, "r2");
    droste_record_run child = plain_run("r2.1");
    child.parent = "r2";
    assert_ok(store_run_begin(store, &child, id, err));
    assert_ok(store_run_find(store, "last", id, err));
    assert_string_equal(id, "r2");
    begin_run(store, "lasting");
    begin_run(store, "r3");
    assert_ok(store_run_find(store, "last", id, err));
    assert_string_equal(id, "lasting");
    store_close(store);
}

/* A prefix of none or of several is an error that names what could have been meant. */
static void a_wrong_prefix_names_candidates(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    assert_find_says(store, "x", ERROR_NOT_FOUND, "is empty");
    begin_run(store, "r1");
    begin_run(store, "r2");
    assert_find_says(store, "x", ERROR_NOT_FOUND, "r2, r1");
    assert_find_says(store, "r", ERROR_ARGUMENT, "r2, r1");
    begin_run(store, "r3");
    begin_run(store, "r4");
    begin_run(store, "r5");
    assert_find_says(store, "r", ERROR_ARGUMENT, "r5, r4, r3, r2, ...");
    assert_find_says(store, "", ERROR_ARGUMENT, "cannot be the beginning");
    assert_find_says(store, "r%", ERROR_ARGUMENT, "cannot be the beginning");
    store_close(store);
}

/* Visiting a run that is not there says so. */
static void an_unknown_run_is_not_found(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    assert_fails(ERROR_NOT_FOUND, store_run_visit(store, "a", &order, NULL, err));
    store_close(store);
}

/* The newest run of a task is found, by the batch and the task, with what became of it. */
static void the_newest_run_of_a_task_is_found(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    struct store_found found;
    char id[STORE_RUN_ID_SIZE];
    droste_record_run begin = {
        .model = "m", .environment = "local", .version = "0", .batch = "/r.jsonl", .task = "t"
    };
    begin.id = "first";
    assert_ok(store_run_begin(store, &begin, id, err));
    end_run(store, "first");
    begin.id = "second";
    assert_ok(store_run_begin(store, &begin, id, err));
    begin.id = "other";
    begin.task = "u";
    assert_ok(store_run_begin(store, &begin, id, err));
    assert_ok(store_task_find(store, "/r.jsonl", "t", &found, err));
    assert_string_equal(found.id, "second");
    assert_string_equal(found.status, "running");
    assert_ok(store_run_release(store, "second", err));
    assert_ok(store_task_find(store, "/r.jsonl", "t", &found, err));
    assert_string_equal(found.status, "interrupted");
    assert_ok(store_task_find(store, "/other.jsonl", "t", &found, err));
    assert_string_equal(found.id, "");
    store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        store_test(a_run_comes_back_whole),
        store_test(steps_come_back_whole),
        store_test(absent_is_not_empty),
        store_test(a_large_value_that_shrinks),
        store_test(a_large_value_that_does_not),
        store_test(damaged_values_are_refused),
        store_test(a_lazy_value_comes_in_pieces),
        store_test(steps_come_in_the_order_in_which_they_began),
        store_test(a_tree_comes_in_the_order_in_which_it_grew),
        store_test(a_branch_is_visited_alone),
        store_test(a_circle_of_parents_ends),
        store_test(a_visitor_can_stop),
        store_test(writing_within_a_visit_is_refused),
        store_test(lists_are_filtered),
        store_test(lists_are_filtered_by_status_and_model),
        store_test(lists_are_filtered_by_batch_and_task),
        store_test(a_prefix_finds_its_run),
        store_test(last_is_the_newest_root_run),
        store_test(a_wrong_prefix_names_candidates),
        store_test(an_unknown_run_is_not_found),
        store_test(the_newest_run_of_a_task_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
