/* What is written is on disk when the function returns, once, and only if it makes sense. */
#include "fixture.h"

/* Each step is seen by a second connection before the next one begins. */
static void every_step_is_visible_at_once(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    begin_run(store, "a");
    assert_int_equal(ask(place->file, "SELECT count(*) FROM runs WHERE id = 'a'"), 1);
    assert_ok(store_run_note_isolation(store, "a", "full", err));
    assert_int_equal(ask(place->file, "SELECT count(*) FROM runs WHERE isolation = 'full'"), 1);
    assert_ok(store_turn_begin(store, "a", 1, err));
    assert_int_equal(ask(place->file, "SELECT count(*) FROM turns"), 1);
    int64_t call = begin_call(store, "a", "prompt");
    assert_int_equal(ask(place->file, "SELECT count(*) FROM calls WHERE status = 'running'"), 1);
    end_call(store, call, "reply");
    assert_int_equal(ask(place->file, "SELECT count(*) FROM calls WHERE status = 'ok'"), 1);
    int64_t cell = begin_cell(store, "a", store_text("1"));
    assert_int_equal(ask(place->file, "SELECT count(*) FROM cells WHERE status = 'running'"), 1);
    end_cell(store, cell, store_text("1\n"));
    assert_int_equal(ask(place->file, "SELECT count(*) FROM cells WHERE status = 'ok'"), 1);
    end_run(store, "a");
    assert_int_equal(ask(place->file, "SELECT count(*) FROM runs WHERE status = 'done'"), 1);
    store_close(store);
}

/* The same bytes are one row, whatever they are used for and however often. */
static void the_same_value_is_kept_once(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    begin_run(store, "a"); /* "why?" */
    assert_ok(store_turn_begin(store, "a", 1, err));
    for (int i = 0; i < 3; i++)
        end_call(store, begin_call(store, "a", "same"), "same");
    end_cell(store, begin_cell(store, "a", store_text("same")), store_text("other"));
    assert_int_equal(ask(place->file, "SELECT count(*) FROM blobs"), 3);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM blobs WHERE size = 4"), 2);
    store_close(store);
}

/* Small values and those that do not shrink are kept as they are, the others compressed. */
static void values_are_compressed_where_it_helps(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    static char letters[1 << 20];
    memset(letters, 'x', sizeof letters);
    begin_run(store, "a");
    assert_ok(store_turn_begin(store, "a", 1, err));
    begin_cell(store, "a", (droste_value){ letters, 1024 });
    begin_cell(store, "a", (droste_value){ letters, sizeof letters });
    assert_int_equal(ask(place->file, "SELECT encoding = 'raw' FROM blobs WHERE size = 1024"), 1);
    assert_int_equal(
        ask(place->file,
            "SELECT encoding = 'zstd' AND length(data) < 1000 FROM blobs WHERE size = 1048576"),
        1);
    store_close(store);
}

/* A value beyond the limit is refused before a byte of it is read, and nothing is left behind. */
static void refuses_a_value_that_is_too_large(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    droste_value huge = { "x", (size_t)STORE_VALUE_MAX + 1 };
    droste_record_cell begin = { .run = "a", .turn = 1, .code = huge };
    int64_t cell;
    begin_run(store, "a");
    assert_ok(store_turn_begin(store, "a", 1, err));
    assert_fails(ERROR_STORE, store_cell_begin(store, &begin, &cell, err));
    assert_int_equal(ask(place->file, "SELECT count(*) FROM cells"), 0);
    begin_cell(store, "a", store_text("x"));
    store_close(store);
}

/* Ids made here sort by time, and a taken one is refused. */
static void ids_are_readable_and_unique(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    char id[STORE_RUN_ID_SIZE];
    droste_record_run begin = plain_run(NULL);
    for (int i = 0; i < 200; i++) {
        int end = 0;
        assert_ok(store_run_begin(store, &begin, id, err));
        sscanf(id, "20%*6[0-9]-%*6[0-9]-%*6[0-9a-f]%n", &end);
        if (end != 22 || id[22] != '\0')
            fail_msg("not a date, a time and six digits: %s", id);
    }
    begin.id = id;
    assert_fails(ERROR_ARGUMENT, store_run_begin(store, &begin, id, err));
    begin.id = "../x";
    assert_fails(ERROR_ARGUMENT, store_run_begin(store, &begin, id, err));
    assert_int_equal(ask(place->file, "SELECT count(*) FROM runs"), 200);
    store_close(store);
}

/* A step that names what is not there is refused, and so is one that lacks what it must have. */
static void refuses_steps_of_nothing(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    char id[STORE_RUN_ID_SIZE];
    int64_t step;
    droste_record_run orphan = plain_run(NULL);
    droste_record_run bare = { .environment = "local", .version = "1" };
    orphan.parent = "nobody";
    assert_fails(ERROR_ARGUMENT, store_run_begin(store, &orphan, id, err));
    assert_fails(ERROR_ARGUMENT, store_run_begin(store, &bare, id, err));
    assert_fails(ERROR_ARGUMENT, store_turn_begin(store, "nobody", 1, err));
    assert_fails(ERROR_ARGUMENT, store_run_note_isolation(store, "nobody", "full", err));

    begin_run(store, "a");
    droste_record_call call = { .run = "a", .turn = 1, .kind = "root", .model = "m" };
    assert_fails(ERROR_ARGUMENT, store_call_begin(store, &call, &step, err)); /* no such turn */
    assert_fails(ERROR_ARGUMENT, store_turn_begin(store, "a", 0, err));
    assert_ok(store_turn_begin(store, "a", 1, err));
    assert_fails(ERROR_ARGUMENT, store_turn_begin(store, "a", 1, err));
    assert_ok(store_call_begin(store, &call, &step, err));
    call.cell = 77;
    assert_fails(ERROR_ARGUMENT, store_call_begin(store, &call, &step, err));
    assert_int_equal(ask(place->file, "SELECT count(*) FROM calls"), 1);
    store_close(store);
}

/* What has ended, or never began, cannot end; nor can it end as if it had not. */
static void an_end_needs_its_beginning(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    droste_record_run run = { .status = "running" };
    droste_record_call call = { .status = "ok" };
    droste_record_cell cell = { .status = "ok" };
    begin_run(store, "a");
    assert_fails(ERROR_ARGUMENT, store_run_end(store, "a", &run, err));
    run.status = "interrupted";
    assert_fails(ERROR_ARGUMENT, store_run_end(store, "a", &run, err));
    run.status = NULL;
    assert_fails(ERROR_ARGUMENT, store_run_end(store, "a", &run, err));
    end_run(store, "a");
    run.status = "done";
    assert_fails(ERROR_ARGUMENT, store_run_end(store, "a", &run, err));
    assert_fails(ERROR_ARGUMENT, store_call_end(store, 1, &call, err));
    assert_fails(ERROR_ARGUMENT, store_cell_end(store, 1, &cell, err));
    store_close(store);
}

/* A process that runs for a while, writing `steps` cells; exits 0 if every one was taken. */
static void write_many(const char *file, const char *run, int steps)
{
    struct store *store = NULL;
    droste_record_run begin = plain_run(run);
    char id[STORE_RUN_ID_SIZE];
    int64_t cell;
    if (store_open(file, &store, NULL) < 0 || store_run_begin(store, &begin, id, NULL) < 0 ||
        store_turn_begin(store, run, 1, NULL) < 0)
        _exit(1);
    for (int i = 0; i < steps; i++) {
        droste_record_cell code = { .run = run, .turn = 1, .code = store_text(run) };
        droste_record_cell end = { .status = "ok", .standard_output = store_text("same") };
        if (store_cell_begin(store, &code, &cell, NULL) < 0 ||
            store_cell_end(store, cell, &end, NULL) < 0)
            _exit(1);
    }
    store_close(store);
    _exit(0);
}

/* Processes that make, migrate and write one file at the same time all succeed. */
static void processes_write_at_once(void **state)
{
    struct place *place = *state;
    enum { PROCESSES = 6, STEPS = 100 };
    pid_t pids[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        char run[16];
        snprintf(run, sizeof run, "run%d", i);
        pids[i] = fork();
        if (pids[i] == 0)
            write_many(place->file, run, STEPS);
    }
    for (int i = 0; i < PROCESSES; i++)
        assert_int_equal(wait_for(pids[i]), 0);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM runs"), PROCESSES);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM cells"), PROCESSES * STEPS);
    assert_intact(place->file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        store_test(every_step_is_visible_at_once),
        store_test(the_same_value_is_kept_once),
        store_test(values_are_compressed_where_it_helps),
        store_test(refuses_a_value_that_is_too_large),
        store_test(ids_are_readable_and_unique),
        store_test(refuses_steps_of_nothing),
        store_test(an_end_needs_its_beginning),
        store_test(processes_write_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
