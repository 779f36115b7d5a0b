/* Removing: a tree goes whole and takes nothing of others with it; the collector ends what has no
 * process, keeps what it is told to, and gives the space back. */
#include "fixture.h"

static void begin_child(struct store *store, const char *id, const char *parent, int64_t cell)
{
    char made[STORE_RUN_ID_SIZE];
    droste_record_run begin = plain_run(id);
    begin.parent = parent;
    begin.parent_cell = cell;
    begin.depth = 1;
    assert_ok(store_run_begin(store, &begin, made, err));
}

/* A run with a call and a cell of its own code; it has not ended. */
static int64_t begin_steps(struct store *store, const char *id, const char *code)
{
    assert_ok(store_turn_begin(store, id, 1, err));
    end_call(store, begin_call(store, id, "the same prompt"), "the same reply");
    return begin_cell(store, id, store_text(code));
}

static void whole_run(struct store *store, const char *id, const char *code)
{
    begin_run(store, id);
    end_cell(store, begin_steps(store, id, code), store_text("output"));
    end_run(store, id);
}

/* As if the process that ran it were gone. */
static void lose_owner(struct place *place, const char *id)
{
    char sql[128];
    snprintf(sql, sizeof sql, "UPDATE runs SET owner_start = 1 WHERE id = '%s'", id);
    ask(place->file, sql);
}

static int64_t rows(struct place *place)
{
    return ask(place->file, "SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM turns)"
                            " + (SELECT count(*) FROM calls) + (SELECT count(*) FROM cells)"
                            " + (SELECT count(*) FROM results)");
}

static int read_all(void *arg, const droste_record_cell *cell, struct error *err)
{
    *(int *)arg += 1;
    assert_string_equal(cell->code.data, "shared");
    return 0;
}

/* The rich results of a run go with it, and so do their values; those of another run stay. */
static void results_go_with_their_run(void **state)
{
    static const droste_record_media media[] = {
        { 0, "image/png", "bytes", { "PNG", 3, NULL } },
        { 1, "text/html", "text", { "<b>", 3, NULL } },
    };
    struct place *place = *state;
    struct store *store = open_store(place->file);
    droste_record_freed freed;
    droste_record_cell end = { .status = "ok", .media = media };
    for (int i = 0; i < 2; i++) {
        begin_run(store, i ? "b" : "a");
        end.media_count = (size_t)(2 - i);
        int64_t cell = begin_steps(store, i ? "b" : "a", "same");
        assert_ok(store_cell_end(store, cell, &end, err));
        end_run(store, i ? "b" : "a");
    }
    assert_int_equal(ask(place->file, "SELECT count(*) FROM results"), 3);
    assert_ok(store_run_remove(store, "a", &freed, err));
    assert_int_equal(ask(place->file, "SELECT count(*) FROM results"), 1);
    assert_int_equal(freed.values, 1);
    assert_intact(place->file);
    store_close(store);
}

/* A tree goes with its steps and children; another run keeps all of its own, shared values too. */
static void a_tree_goes_and_nothing_else(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    droste_record_freed freed;
    int cells = 0;
    struct store_visitor visitor = { .cell = read_all };
    begin_run(store, "root");
    int64_t cell = begin_steps(store, "root", "shared");
    begin_child(store, "child", "root", cell);
    end_cell(store, begin_steps(store, "child", "the child's alone"), store_text("output"));
    end_run(store, "child");
    end_cell(store, cell, store_text("its output"));
    end_run(store, "root");
    whole_run(store, "other", "shared");
    assert_ok(store_run_remove(store, "root", &freed, err));
    assert_int_equal(freed.runs, 2);
    assert_int_equal(freed.values, 2);
    assert_int_equal(freed.value_bytes, strlen("the child's alone") + strlen("its output"));
    assert_int_equal(rows(place), 4);
    assert_ok(store_run_visit(store, "other", &visitor, &cells, err));
    assert_int_equal(cells, 1);
    assert_intact(place->file);
    store_close(store);
}

/* A child goes alone, and its parent stays. */
static void a_child_goes_alone(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    droste_record_freed freed;
    begin_run(store, "root");
    begin_child(store, "child", "root", begin_steps(store, "root", "code"));
    end_run(store, "child");
    assert_ok(store_run_remove(store, "child", &freed, err));
    assert_int_equal(freed.runs, 1);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM runs WHERE id = 'root'"), 1);
    assert_intact(place->file);
    store_close(store);
}

/* What may still go on is refused, also deep in the tree; what is only said to run goes. */
static void what_still_runs_is_refused(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    droste_record_freed freed;
    begin_run(store, "root");
    begin_child(store, "child", "root", begin_steps(store, "root", "code"));
    end_run(store, "root");
    int64_t before = rows(place);
    assert_fails(ERROR_ARGUMENT, store_run_remove(store, "root", &freed, err));
    assert_int_equal(rows(place), before);
    lose_owner(place, "child");
    assert_ok(store_run_remove(store, "root", &freed, err));
    assert_int_equal(rows(place), 0);
    store_close(store);
}

/* Removing what is not there says so, and writing goes on with foreign keys checked. */
static void an_unknown_run_is_not_removed(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    droste_record_freed freed;
    begin_run(store, "a");
    assert_fails(ERROR_NOT_FOUND, store_run_remove(store, "b", &freed, err));
    assert_fails(ERROR_ARGUMENT, store_turn_begin(store, "b", 1, err));
    assert_ok(store_turn_begin(store, "a", 1, err));
    store_close(store);
}

/* ---- the collector ---- */

static int check_interrupted(void *arg, const droste_record_run *run, struct error *err)
{
    assert_string_equal(run->status, "interrupted");
    assert_int_equal(run->iterations, 1);
    assert_int_equal(run->calls, 1);
    assert_int_equal(run->input_tokens, 7);
    assert_true(run->ended_ms >= run->started_ms);
    assert_true(run->seconds >= 0 && run->seconds < 3600);
    assert_true(run->cost == 0.25);
    return 0;
}

/* A run without a process ends, with the totals of its steps; one with a process goes on. Who
 * wants to go on with the former still can. */
static void a_run_without_a_process_is_ended(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    struct store_visitor visitor = { .run = check_interrupted };
    droste_record_call end = { .status = "ok", .input_tokens = 7, .cost = 0.25 };
    droste_record_freed freed;
    begin_run(store, "lives");
    begin_run(store, "gone");
    assert_ok(store_turn_begin(store, "gone", 1, err));
    assert_ok(store_call_end(store, begin_call(store, "gone", "p"), &end, err));
    int64_t tool;
    droste_record_call of_tool = {
        .run = "gone", .turn = 1, .kind = "tool", .model = "look", .request = store_text("{}")
    };
    assert_ok(store_call_begin(store, &of_tool, &tool, err)); /* which has no price, and no end */
    lose_owner(place, "gone");
    assert_ok(store_collect(store, NULL, &freed, err));
    assert_int_equal(freed.interrupted, 1);
    assert_int_equal(freed.runs, 0);
    assert_ok(store_run_visit(store, "gone", &visitor, NULL, err));
    assert_int_equal(
        ask(place->file, "SELECT count(*) FROM runs WHERE id = 'lives' AND status = 'running'"), 1);
    assert_ok(store_run_adopt(store, "gone", err));
    end_run(store, "gone");
    store_close(store);
}

/* Values that nothing refers to go, the others stay, and the file gets smaller. */
static void what_nothing_refers_to_goes(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    droste_record_freed freed;
    whole_run(store, "a", "code");
    int64_t before = ask(place->file, "SELECT count(*) FROM blobs");
    ask(place->file, "INSERT INTO blobs SELECT 'waste', 1000000, 'raw', randomblob(1000000)");
    assert_ok(store_collect(store, NULL, &freed, err));
    assert_int_equal(freed.values, 1);
    assert_int_equal(freed.value_bytes, 1000000);
    assert_in_range(freed.file_bytes, 900000, 1100000);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM blobs"), before);
    assert_intact(place->file);
    struct stat st;
    assert_int_equal(stat(place->file, &st), 0);
    assert_in_range(st.st_size, 4096, 900000);
    store_close(store);
}

static void assert_kept(struct place *place, droste_record_keep keep, const char *ids)
{
    droste_record_freed freed;
    char sql[160];
    struct store *store = open_store(place->file);
    assert_ok(store_collect(store, &keep, &freed, err));
    snprintf(sql, sizeof sql,
        "SELECT '%s' = (SELECT group_concat(id, ' ') FROM (SELECT id FROM runs ORDER BY seq))",
        ids);
    assert_int_equal(ask(place->file, sql), 1);
    store_close(store);
}

/* The newest stay, what is young stays, and what goes on stays; the rest goes with its children. */
static void what_is_to_be_kept_stays(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    whole_run(store, "old1", "code");
    whole_run(store, "old2", "code");
    begin_run(store, "old3");
    whole_run(store, "young1", "code");
    begin_child(store, "child", "old1", 0);
    end_run(store, "child");
    whole_run(store, "young2", "code");
    store_close(store);
    ask(place->file, "UPDATE runs SET started_ms = started_ms - 7200000 WHERE id LIKE 'old%'");
    assert_kept(place, (droste_record_keep){ 0, 8000000 }, "old1 old2 old3 young1 child young2");
    assert_kept(place, (droste_record_keep){ 4, 3600000 }, "old2 old3 young1 young2");
    assert_kept(place, (droste_record_keep){ 0, 3600000 }, "old3 young1 young2");
    assert_kept(place, (droste_record_keep){ 1, -1 }, "old3 young2");
    assert_intact(place->file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        store_test(results_go_with_their_run),
        store_test(a_tree_goes_and_nothing_else),
        store_test(a_child_goes_alone),
        store_test(what_still_runs_is_refused),
        store_test(an_unknown_run_is_not_removed),
        store_test(a_run_without_a_process_is_ended),
        store_test(what_nothing_refers_to_goes),
        store_test(what_is_to_be_kept_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
