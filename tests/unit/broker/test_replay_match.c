/* How a resumed run's requests are answered: from the record, again, as new ones, or not at all. */
#include "../store/stored_run.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/loop.h"
#include "broker/ask.h"
#include "broker/replay/replay_log.h"
#include "broker/replay/replay_match.h"
#include "session/internal.h"

/* One turn of run "a" with a cell, and a guest's ask with one item in it. */
static struct stored_run_file file;
static int64_t cell;
static struct loop *loop;
static struct lm *lm;
static struct budget budget;
static struct broker b;
static struct session session;
static struct ask *asked;
static struct item *item;
static struct error diverged;
static char started[64];

static void on_diverged(void *arg, const struct error *why)
{
    diverged = *why;
}

static int on_start(struct item *of, const char *text, size_t len, struct error *err)
{
    snprintf(started, sizeof started, "%.*s", (int)len, text);
    return 0;
}

static void no_model(void *arg, const struct lm_request *request, struct lm_call *call)
{
    fail_msg("a model was called");
}

static int match_setup(void **state)
{
    static const struct broker_function function = { .name = "llm_query", .start = on_start };
    const struct lm_options options = { .model = "callback", .callback = no_model };
    const struct budget_limits limits = { .calls = -1 };
    if (stored_run_make(&file) < 0)
        return -1;
    cell = begin_cell(file.store, "a", store_text("code"));
    assert_ok(loop_open(&loop, err));
    assert_ok(lm_open(loop, &options, &lm, err));
    budget_init(&budget, &limits);
    diverged = (struct error){ 0 };
    started[0] = '\0';
    b = (struct broker){ .cell = cell, .turn = 1 };
    b.options = (struct broker_options){
        .lm = lm, .budget = &budget, .loop = loop, .diverged = on_diverged
    };
    asked = calloc(1, sizeof *asked + sizeof *item);
    assert_non_null(asked);
    *asked = (struct ask){ .broker = &b, .session = &session, .function = &function };
    asked->model = strdup("m");
    asked->count = 1;
    asked->starting = true; /* the reply waits: there is no guest */
    item = &asked->items[0];
    item->ask = asked;
    return 0;
}

static int match_teardown(void **state)
{
    ask_free(asked);
    timer_free(b.doubt);
    replay_log_free(b.options.recorded);
    budget_free(&budget);
    lm_close(lm);
    loop_close(loop);
    return stored_run_remove(&file);
}

/* The record is complete: the run is resumed. */
static void resume(void)
{
    assert_ok(replay_log_load(file.store, "a", &b.options.recorded, err));
    b.doubt = timer_new(loop, replay_match_doubt, &b);
    assert_non_null(b.doubt);
}

/* The item asks for this; 1: it has its answer or waits for it. */
static int request(const char *text, struct lm_request *out)
{
    const struct budget_call call = { .model = "m", .prompt_bytes = strlen(text) };
    struct error err = { 0 };
    item->asked = text;
    item->asked_len = strlen(text);
    assert_int_equal(replay_match_find_call(item, text, strlen(text), &err), 0);
    return replay_match_start(item, out, &call, &err);
}

static int64_t record_call(const char *text, const char *reply)
{
    int64_t call = stored_run_begin_call(&file, cell, "m", text);
    if (reply)
        end_call(file.store, call, reply);
    return call;
}

static void close_cell(const char *status)
{
    const droste_record_cell end = { .status = status };
    assert_ok(store_cell_end(file.store, cell, &end, err));
}

static void a_completed_call_gets_its_answer(void **state)
{
    struct lm_request out = { 0 };
    record_call("a", "the answer");
    resume();
    assert_int_equal(request("a", &out), 1);
    assert_string_equal(item->text, "the answer");
    assert_int_equal(asked->done, 1);
    assert_int_equal(item->waits, WAITS_NOT);
}

/* The provider may have been paid for it: it knows the call by its key. */
static void an_open_call_is_repeated_with_its_key(void **state)
{
    struct lm_request out = { 0 };
    int64_t call = record_call("a", NULL);
    resume();
    assert_int_equal(request("a", &out), 0);
    assert_int_equal(item->record, call);
    assert_string_equal(out.key, "00112233445566778899aabbccddeeff");
    assert_int_equal(asked->done, 0);
}

/* Its cell ran into the deadline first, and does so again. */
static void an_answer_that_came_late_waits_for_the_end_of_the_cell(void **state)
{
    struct lm_request out = { 0 };
    int64_t call = record_call("a", NULL);
    close_cell("timeout");
    end_call(file.store, call, "too late");
    resume();
    assert_int_equal(request("a", &out), 1);
    assert_int_equal(item->waits, WAITS_FOR_CELL);
    assert_null(item->text);
    replay_match_cancel(item);
    assert_string_equal(item->text, "too late");
}

static void a_new_call_in_a_cell_that_timed_out_waits_for_its_end(void **state)
{
    struct lm_request out = { 0 };
    close_cell("timeout");
    resume();
    assert_int_equal(request("new", &out), 1);
    assert_int_equal(item->waits, WAITS_FOR_CELL);
    assert_int_equal(diverged.code, ERROR_NONE);
}

/* The process died in this cell: nothing says what it asked next. */
static void a_new_call_of_a_cell_without_an_end_is_made(void **state)
{
    struct lm_request out = { 0 };
    resume();
    assert_int_equal(request("new", &out), 0);
    assert_int_equal(diverged.code, ERROR_NONE);
    assert_null(out.key);
}

/* The message is one line, whatever the guest asked. */
static void a_new_call_of_a_completed_cell_stops_the_run(void **state)
{
    struct lm_request out = { 0 };
    close_cell("ok");
    resume();
    assert_int_equal(request("one\ntwo and more, which is longer than is shown", &out), 1);
    assert_int_equal(diverged.code, ERROR_MODEL_REPLAY);
    assert_non_null(strstr(diverged.text, "turn 1, cell 1, call 1"));
    assert_non_null(strstr(diverged.text, "'one two and more"));
    assert_non_null(strstr(diverged.text, "…'"));
    assert_null(strchr(diverged.text, '\n'));
}

/* Threads come in another order: a call that is not known waits for those that are due. */
static void a_new_call_waits_while_others_are_due(void **state)
{
    struct lm_request out = { 0 };
    record_call("due", "A");
    resume();
    assert_int_equal(request("new", &out), 1);
    assert_int_equal(item->waits, WAITS_FOR_OTHERS);
    assert_true(b.parked);
    assert_string_equal(item->kept, "new");
    assert_int_equal(diverged.code, ERROR_NONE);
    b.asks = asked;
    replay_match_start_waiting(&b);
    assert_string_equal(started, "new");
    assert_int_equal(item->waits, WAITS_NOT);
    assert_false(b.parked);
}

/* As if the last check was a quarter of a second ago. */
static void doubt_after(uint64_t idle_ms, uint64_t busy_ns)
{
    b.seen_ns = clock_ns() - 250000000;
    b.busy_ns = busy_ns;
    b.idle_ms = idle_ms;
    replay_match_doubt(&b);
}

/* No call comes from a guest that does nothing; one that works, or has just lost a process, may
 * still ask. */
static void a_guest_that_is_idle_for_long_asks_no_more(void **state)
{
    struct lm_request out = { 0 };
    record_call("due", "A");
    resume();
    request("new", &out);
    b.asks = asked;
    doubt_after(0, 0);
    assert_int_equal(diverged.code, ERROR_NONE);
    doubt_after(600000, 1);
    assert_int_equal(diverged.code, ERROR_NONE);
    assert_true(b.idle_ms >= 600000 - 500 && b.idle_ms <= 600000 - 250);
    doubt_after(100, 1);
    assert_int_equal(b.idle_ms, 0);
    doubt_after(600000, 0);
    assert_int_equal(diverged.code, ERROR_MODEL_REPLAY);
    assert_non_null(strstr(diverged.text, "'new'"));
}

/* What the budget refused is not in the record, and no reason to stop the run. */
static void a_call_that_was_refused_is_refused_again(void **state)
{
    struct lm_request out = { 0 };
    close_cell("ok");
    resume();
    budget.limits.input_tokens = 1;
    assert_int_equal(request("more than one token", &out), -(int)ERROR_BUDGET_TOKENS);
    assert_int_equal(diverged.code, ERROR_NONE);
}

static void what_is_forgotten_is_found_again(void **state)
{
    struct error err = { 0 };
    record_call("a", "A");
    resume();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(replay_match_find_call(item, "a", 1, &err), 0);
        assert_non_null(item->replay_call);
        replay_match_forget(item);
        assert_null(item->replay_call);
    }
}

static void a_replay_calls_no_model(void **state)
{
    resume();
    item->asked = "new";
    item->asked_len = 3;
    assert_ok(replay_match_may_ask(item, err));
    assert_int_equal(diverged.code, ERROR_NONE);
    b.options.recorded_only = true;
    assert_fails(ERROR_MODEL_REPLAY, replay_match_may_ask(item, err));
    assert_int_equal(diverged.code, ERROR_MODEL_REPLAY);
}

/* ---- tools ---- */

static int64_t record_tool(const char *reply, const char *values)
{
    int64_t call = 0;
    const droste_record_call begin = { .run = "a",
        .turn = 1,
        .cell = cell,
        .depth = 1,
        .kind = "tool",
        .model = "m",
        .request = store_text("{}") };
    const droste_record_call end = {
        .status = "ok", .reply = store_text(reply), .reply_values = store_text(values)
    };
    assert_ok(store_call_begin(file.store, &begin, &call, err));
    if (reply)
        assert_ok(store_call_end(file.store, call, &end, err));
    return call;
}

static int request_tool(void)
{
    struct error err = { 0 };
    asked->is_tool = true;
    assert_int_equal(replay_match_find_call(item, "{}", 2, &err), 0);
    return replay_match_start_tool(item, &err);
}

static void a_tool_that_ended_is_not_called_again(void **state)
{
    record_tool("[1]", NULL);
    resume();
    assert_int_equal(request_tool(), 1);
    assert_string_equal(item->text, "[1]");
    assert_int_equal(item->error.code, ERROR_NONE);
}

static void a_tool_without_an_end_is_called_again(void **state)
{
    int64_t call = record_tool(NULL, NULL);
    resume();
    assert_int_equal(request_tool(), 0);
    assert_int_equal(item->record, call);
}

/* The record may have been changed: the guest's decoder gets nothing that was not checked. */
static void damaged_values_of_a_tool_are_an_error(void **state)
{
    record_tool("[1]", "\xff\xff rubbish");
    resume();
    assert_int_equal(request_tool(), 1);
    assert_null(item->values);
    assert_non_null(strstr(item->error.text, "what m() returned cannot be read from the record"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, match_setup, match_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_completed_call_gets_its_answer),
        TEST(an_open_call_is_repeated_with_its_key),
        TEST(an_answer_that_came_late_waits_for_the_end_of_the_cell),
        TEST(a_new_call_in_a_cell_that_timed_out_waits_for_its_end),
        TEST(a_new_call_of_a_cell_without_an_end_is_made),
        TEST(a_new_call_of_a_completed_cell_stops_the_run),
        TEST(a_new_call_waits_while_others_are_due),
        TEST(a_guest_that_is_idle_for_long_asks_no_more),
        TEST(a_call_that_was_refused_is_refused_again),
        TEST(what_is_forgotten_is_found_again),
        TEST(a_replay_calls_no_model),
        TEST(a_tool_that_ended_is_not_called_again),
        TEST(a_tool_without_an_end_is_called_again),
        TEST(damaged_values_of_a_tool_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
