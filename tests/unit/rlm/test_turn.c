/* How turns end: with an answer, with an error, or with another turn. */
#include "../test.h"

#include <unistd.h>

#include "base/cleanup.h"
#include "base/loop.h"
#include "rlm/run.h"

static struct tree tree;
static struct rlm_run run;
static unsigned times_done;

static void turn_done(void *arg, const struct rlm_result *result)
{
    times_done++;
}

/* A run without a session, in its first turn of three. */
static int turn_setup(void **state)
{
    tree = (struct tree){ .o = { .env_name = "local" } };
    run = (struct rlm_run){ .tree = &tree,
        .place = { .question = "why?", .model = "m", .iterations = 3 },
        .done = turn_done,
        .turn = 1 };
    tree.root = &run;
    assert_ok(loop_open(&tree.loop, err));
    run.deadline = timer_new(tree.loop, run_time_is_up, &run);
    run.later = timer_new(tree.loop, run_session_restart, &run);
    run.step = timer_new(tree.loop, replay_step, &run);
    TAILQ_INIT(&tree.children);
    times_done = 0;
    return 0;
}

static int turn_teardown(void **state)
{
    for (size_t i = 0; i < run.message_count; i++)
        message_free(&run.messages[i]);
    free(run.messages);
    buf_free(&run.reply);
    buf_free(&run.feedback);
    free(run.result.answer);
    free(run.result.message);
    timer_free(run.deadline);
    timer_free(run.later);
    timer_free(run.step);
    loop_close(tree.loop);
    return 0;
}

static void assert_ended(enum rlm_status status, enum error_code code)
{
    assert_true(run.finished);
    assert_int_equal(times_done, 1);
    assert_int_equal(run.result.status, status);
    assert_int_equal(run.result.error.code, code);
}

static void take_reply(const char *text)
{
    struct lm_reply reply = { .text = text, .len = strlen(text) };
    turn_take_reply(&run, &reply);
}

/* Words in the model's own form are an answer, and the run is over. */
static void an_answer_in_words_ends_the_run(void **state)
{
    take_reply("I know it.\nFINAL(forty-two)");
    assert_ended(RLM_ANSWERED, ERROR_NONE);
    assert_string_equal(run.result.answer, "\"forty-two\"");
}

static void an_answer_without_memory_is_an_error(void **state)
{
    run_answered(&run, NULL, RLM_ANSWERED);
    assert_ended(RLM_ERROR, ERROR_MEMORY);
}

/* The result has all that the provider said, of which the error has a part. */
static void a_failed_call_ends_the_run_with_the_whole_message(void **state)
{
    struct lm_reply reply = { .error = { .code = ERROR_MODEL_SERVER, .text = "part…" },
        .message = "part and the rest",
        .text = "" };
    turn_take_reply(&run, &reply);
    assert_ended(RLM_ERROR, ERROR_MODEL_SERVER);
    assert_string_equal(run.result.message, "part and the rest");
}

static void a_budget_that_is_spent_is_a_status(void **state)
{
    struct lm_reply reply = { .error = { .code = ERROR_BUDGET_CALLS, .text = "spent" },
        .text = "" };
    turn_take_reply(&run, &reply);
    assert_ended(RLM_BUDGET, ERROR_BUDGET_CALLS);
}

/* Turns in a row whose code failed are bounded. */
static void too_many_failed_turns_end_the_run(void **state)
{
    tree.o.max_errors = 2;
    run.errors = 1;
    run.failed = true;
    run.block = 1;
    turn_finish(&run);
    assert_ended(RLM_BUDGET, ERROR_BUDGET_ERRORS);
    assert_non_null(strstr(run.result.error.text, "2 turns in a row"));
}

static void the_result_of_a_run_is_delivered_once(void **state)
{
    take_reply("FINAL(1)");
    run_end(&run, RLM_ERROR, NULL);
    assert_ended(RLM_ANSWERED, ERROR_NONE);
}

/* A traceback, else the message, else why the sandbox ended, else nothing. */
static void a_complaint_is_the_best_that_there_is(void **state)
{
    struct cell_result cell = { 0 };
    assert_string_equal(run_cell_complaint(&cell), "");
    cell.reason = (struct error){ .code = ERROR_LOST, .text = "killed" };
    assert_string_equal(run_cell_complaint(&cell), "killed");
    cell.error.message = (char *)"division by zero";
    assert_string_equal(run_cell_complaint(&cell), "division by zero");
    cell.error.traceback = (char *)"Traceback";
    assert_string_equal(run_cell_complaint(&cell), "Traceback");
}

#define turn_test(f) cmocka_unit_test_setup_teardown(f, turn_setup, turn_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        turn_test(an_answer_in_words_ends_the_run),
        turn_test(an_answer_without_memory_is_an_error),
        turn_test(a_failed_call_ends_the_run_with_the_whole_message),
        turn_test(a_budget_that_is_spent_is_a_status),
        turn_test(too_many_failed_turns_end_the_run),
        turn_test(the_result_of_a_run_is_delivered_once),
        turn_test(a_complaint_is_the_best_that_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
