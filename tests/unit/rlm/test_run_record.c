/* What a run writes into the record. */
#include "../store/fixture.h"

#include "base/cleanup.h"
#include "rlm/run.h"

static struct store *store;
static struct tree tree;
static struct rlm_run run;

static int record_begin(void **state)
{
    if (place_make(state) < 0)
        return -1;
    store = open_store(((struct place *)*state)->file);
    tree = (struct tree){ .o = { .store = store, .env_name = "local", .id = "r1" } };
    run = (struct rlm_run){ .tree = &tree,
        .place = { .question = "why?", .model = "m", .iterations = 5 },
        .model = (char *)"m",
        .turn = 1 };
    tree.root = &run;
    return 0;
}

static int record_end(void **state)
{
    for (size_t i = 0; i < run.message_count; i++)
        message_free(&run.messages[i]);
    free(run.messages);
    store_close(store);
    return place_remove(state);
}

static void say(const char *role, const char *text)
{
    assert_ok(message_add(&run, role, strdup(text), strlen(text), err));
}

static int64_t count(void **state, const char *where)
{
    char sql[256];
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", where);
    return ask(((struct place *)*state)->file, sql);
}

/* A run, its turn, its call and its cell, from beginning to end. */
static void each_step_is_a_row(void **state)
{
    struct lm_reply reply = { .text = "print(1)", .len = 8, .usage = { 10, 2 }, .attempts = 1 };
    struct cell_result cell = { .status = CELL_OK, .seconds = 0.5 };
    assert_ok(run_record_begin(&run, err));
    assert_string_equal(run.result.run, "r1");
    assert_int_equal(count(state, "runs WHERE status = 'running'"), 1);
    assert_ok(run_record_turn(&run, err));
    say("user", "why?");
    assert_ok(run_record_call(&run, "00112233445566778899aabbccddeeff", err));
    assert_int_equal(count(state, "calls WHERE kind = 'root' AND status = 'running'"), 1);
    assert_ok(run_record_call_end(&run, &reply, err));
    assert_int_equal(run.call_record, 0);
    assert_int_equal(count(state, "calls WHERE status = 'ok' AND input_tokens = 10"), 1);
    assert_ok(run_record_cell(&run, "print(1)", 8, err));
    buf_puts(&cell.out, "1\n");
    assert_ok(run_record_cell_end(&run, &cell, err));
    buf_free(&cell.out);
    assert_int_equal(run.cell_record, 0);
    assert_int_equal(count(state, "cells WHERE status = 'ok'"), 1);
    run.result.status = RLM_ANSWERED;
    run.result.answer = (char *)"1";
    run_record_end(&run);
    assert_int_equal(run.result.error.code, ERROR_NONE);
    assert_int_equal(count(state, "runs WHERE status = 'answered'"), 1);
    assert_intact(((struct place *)*state)->file);
}

/* Without a record, the same functions write nothing and succeed. */
static void without_a_record_nothing_is_written(void **state)
{
    struct lm_reply reply = { .text = "" };
    struct cell_result cell = { .status = CELL_OK };
    tree.o.store = NULL;
    assert_ok(run_record_begin(&run, err));
    assert_ok(run_record_turn(&run, err));
    assert_ok(run_record_call(&run, "k", err));
    assert_ok(run_record_call_end(&run, &reply, err));
    assert_ok(run_record_cell(&run, "1", 1, err));
    assert_ok(run_record_cell_end(&run, &cell, err));
    run_record_end(&run);
    assert_string_equal(run.result.run, "");
    assert_int_equal(count(state, "runs"), 0);
}

/* Of a conversation, a call has only what earlier calls do not have. */
static void a_call_has_the_new_messages_only(void **state)
{
    cleanup_buf struct buf out = { 0 };
    say("system", "be \"kind\"");
    say("user", "why?");
    run_record_messages(&run, &out);
    assert_string_equal(buf_text(&out), "[{\"role\":\"system\",\"content\":\"be \\\"kind\\\"\"},"
                                        "{\"role\":\"user\",\"content\":\"why?\"}]");
    run.recorded = 1;
    buf_clear(&out);
    run_record_messages(&run, &out);
    assert_string_equal(buf_text(&out), "[{\"role\":\"user\",\"content\":\"why?\"}]");
    run.recorded = 2;
    buf_clear(&out);
    run_record_messages(&run, &out);
    assert_string_equal(buf_text(&out), "[]");
}

/* What does not fit is refused before it is written; less fits. */
static void a_request_beyond_the_limit_is_refused(void **state)
{
    char code[1000];
    memset(code, '#', sizeof code);
    assert_ok(run_record_begin(&run, err));
    assert_ok(run_record_turn(&run, err));
    tree.budget.limits.record_bytes = tree.budget.record_bytes + 500;
    assert_fails(ERROR_BUDGET_RECORD, run_record_cell(&run, code, sizeof code, err));
    assert_int_equal(count(state, "cells"), 0);
    assert_ok(run_record_cell(&run, code, 10, err));
    assert_int_equal(count(state, "cells"), 1);
}

/* Output that does not fit is left out; that the cell has ended is recorded. */
static void the_end_of_a_cell_is_recorded_without_room(void **state)
{
    struct cell_result cell = { .status = CELL_OK };
    assert_ok(run_record_begin(&run, err));
    assert_ok(run_record_turn(&run, err));
    assert_ok(run_record_cell(&run, "1", 1, err));
    tree.budget.limits.record_bytes = tree.budget.record_bytes + 5;
    buf_puts(&cell.out, "much more than five bytes");
    assert_fails(ERROR_BUDGET_RECORD, run_record_cell_end(&run, &cell, err));
    buf_free(&cell.out);
    assert_int_equal(count(state, "cells WHERE status = 'ok' AND ended_ms IS NOT NULL"), 1);
}

/* A sandbox that died is named; a second end does nothing. */
static void a_cell_that_was_lost_says_by_what(void **state)
{
    assert_ok(run_record_begin(&run, err));
    assert_ok(run_record_turn(&run, err));
    assert_ok(run_record_cell(&run, "1", 1, err));
    run_record_cell_lost(&run, "timeout");
    run_record_cell_lost(&run, "memory");
    assert_int_equal(count(state, "cells WHERE status = 'killed' AND killed = 'timeout'"), 1);
    assert_int_equal(run.cell_record, 0);
}

/* A child that could not start has a row of its own, with the reason. */
static void a_child_that_never_started_is_recorded(void **state)
{
    struct error why = { .code = ERROR_BUDGET_TIME, .text = "no time left" };
    assert_ok(run_record_begin(&run, err));
    struct lm *models[] = { NULL }; /* the child's model is named in its place */
    tree.o.models = models;
    tree.o.model_count = 1;
    struct run_place child = { .parent = &run, .depth = 1, .question = "part?", .model = "m" };
    run_record_unstarted(&child, &tree, RLM_BUDGET, &why);
    assert_int_equal(
        count(state, "runs WHERE parent = 'r1' AND status = 'budget' AND depth = 1"), 1);
}

#define record_test(f) cmocka_unit_test_setup_teardown(f, record_begin, record_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        record_test(each_step_is_a_row),
        record_test(without_a_record_nothing_is_written),
        record_test(a_call_has_the_new_messages_only),
        record_test(a_request_beyond_the_limit_is_refused),
        record_test(the_end_of_a_cell_is_recorded_without_room),
        record_test(a_cell_that_was_lost_says_by_what),
        record_test(a_child_that_never_started_is_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
