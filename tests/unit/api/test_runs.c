/* Runs that are started without waiting for their end. */
#include "../test.h"

#include <stdbool.h>

#include <unistd.h>

#include "droste.h"

#define API_ERROR f.err
#include "assert_fine.h"

enum { RUNS = 12 };

struct fixture {
    droste *d;
    droste_error err;
    /* of the model: a call is kept until all runs have made theirs, or answered at once */
    droste_call *kept[RUNS];
    unsigned keep, kept_count;
    /* of the runs, by their number */
    droste_running *running[RUNS];
    char status[RUNS][20], answer[RUNS][40];
    unsigned ended;
    int nested;         /* what waiting from within a callback gave */
    const char *end_at; /* an event, whose receiver ends the run; NULL: none does */
    bool suspends;
    unsigned asked; /* so many times */
};

static struct fixture f;

static const char code[] = "```repl\nSUBMIT(answer=len(context))\n```";

static void model(void *arg, const droste_message *messages, size_t count, droste_call *call)
{
    if (f.kept_count >= f.keep) {
        droste_answer(call, code, sizeof code - 1);
        return;
    }
    f.kept[f.kept_count++] = call;
}

static int setup(void **state)
{
    f = (struct fixture){ 0 };
    assert_fine(droste_new(&f.d, &f.err));
    assert_fine(droste_set(f.d, "database", "none", &f.err));
    assert_fine(droste_set(f.d, "model", "callback", &f.err));
    droste_set_model(f.d, model, NULL);
    return 0;
}

static int teardown(void **state)
{
    droste_free(f.d);
    return 0;
}

struct one {
    unsigned number;
};
static struct one ones[RUNS];

static void done(void *arg, droste_result *r)
{
    unsigned n = ((struct one *)arg)->number;
    droste_result *never = NULL;
    assert_non_null(r);
    snprintf(f.status[n], sizeof f.status[n], "%s", droste_result_status(r));
    snprintf(f.answer[n], sizeof f.answer[n], "%s",
        droste_result_answer(r, NULL) ? droste_result_answer(r, NULL) : "");
    droste_result_free(r);
    f.ended++;
    f.nested = droste_run(f.d, "?", NULL, NULL, NULL, &never, &f.err);
}

/* Ends its run, from within each of its events of one kind. */
static void on_event(void *arg, const droste_event *event)
{
    unsigned n = ((struct one *)arg)->number;
    if (!f.end_at || strcmp(event->kind, f.end_at) != 0 || !f.running[n])
        return;
    f.asked++;
    if (f.suspends)
        droste_suspend(f.running[n]);
    droste_cancel(f.running[n]);
    droste_cancel(f.running[n]);
}

static void start(unsigned n)
{
    static const char data[] = "xxxxxxxxxxxxxxxxxxxx";
    ones[n].number = n;
    droste_request q = {
        .event = on_event,
        .question = "How long?",
        .data = data,
        .len = n,
        .kind = "text",
        .done = done,
        .arg = &ones[n],
    };
    assert_fine(droste_start(f.d, &q, &f.running[n], &f.err));
}

/* Turns the loop until so many runs were told of, or none is left. */
static void turn_until(unsigned ended)
{
    int left = 1;
    while (f.ended < ended && left > 0) {
        left = droste_turn(f.d, -1, &f.err);
        assert_fine(left);
    }
}

/* Whatever it is told of: the run ends when the receiver has come back, and its neighbour goes
 * on. */
static void a_run_can_be_ended_from_within_its_events(void **state)
{
    static const char *const kinds[] = { "turn", "reply", "cell" };
    for (unsigned i = 0; i < 2 * sizeof kinds / sizeof kinds[0]; i++) {
        f.end_at = kinds[i / 2];
        f.suspends = i % 2;
        f.ended = f.asked = 0;
        f.running[1] = NULL;
        start(0);
        start(1);
        f.running[1] = NULL; /* this one is not to be ended */
        turn_until(2);
        assert_true(f.asked > 0);
        assert_int_equal(f.ended, 2);
        assert_string_equal(f.status[0], f.suspends ? "interrupted" : "cancelled");
        assert_string_equal(f.status[1], "answered");
    }
}

/* All are under way at the same time: the model answers none before it has heard of all. Each has
 * its own answer, and is told of once. */
static void many_runs_are_under_way_at_once(void **state)
{
    f.keep = RUNS;
    for (unsigned n = 0; n < RUNS; n++)
        start(n);
    assert_int_equal(f.ended, 0);
    while (f.kept_count < RUNS)
        assert_int_equal(droste_turn(f.d, -1, &f.err), RUNS);
    for (unsigned n = 0; n < RUNS; n++)
        droste_answer(f.kept[n], code, sizeof code - 1);
    turn_until(RUNS);
    for (unsigned n = 0; n < RUNS; n++) {
        char expected[40];
        snprintf(expected, sizeof expected, "%u", n);
        assert_string_equal(f.status[n], "answered");
        assert_string_equal(f.answer[n], expected);
    }
    assert_int_equal(droste_turn(f.d, 0, &f.err), 0);
    assert_int_equal(f.ended, RUNS);
}

/* The others go on; `done` comes later, not from within. */
static void one_is_cancelled_and_the_other_goes_on(void **state)
{
    f.keep = 2;
    start(0);
    start(1);
    while (f.kept_count < 2)
        assert_fine(droste_turn(f.d, -1, &f.err));
    droste_cancel(f.running[0]);
    droste_cancel(f.running[0]); /* once more is nothing */
    assert_int_equal(f.ended, 0);
    for (int i = 0; i < 2; i++) /* the duty to answer is not over */
        droste_answer(f.kept[i], code, sizeof code - 1);
    turn_until(2);
    assert_string_equal(f.status[0], "cancelled");
    assert_string_equal(f.status[1], "answered");
}

static void all_are_interrupted(void **state)
{
    f.keep = 3;
    for (unsigned n = 0; n < 3; n++)
        start(n);
    while (f.kept_count < 3)
        assert_fine(droste_turn(f.d, -1, &f.err));
    droste_interrupt(f.d);
    turn_until(3);
    for (unsigned n = 0; n < 3; n++)
        assert_string_equal(f.status[n], "cancelled");
    for (unsigned n = 0; n < 3; n++)
        droste_answer(f.kept[n], code, sizeof code - 1);
}

/* The loop is not turned from within itself. */
static void a_callback_may_not_wait(void **state)
{
    start(0);
    turn_until(1);
    assert_int_equal(f.nested, -DROSTE_ERROR_ARGUMENT);
    droste_result *r = NULL;
    assert_fine(droste_run(f.d, "How long?", NULL, NULL, NULL, &r, &f.err));
    assert_string_equal(droste_result_status(r), "answered");
    droste_result_free(r);
}

/* Of a context with nothing under way there is nothing to wait for, but for as long as was said. */
static void without_runs_a_turn_ends(void **state)
{
    assert_int_equal(droste_turn(f.d, -1, &f.err), 0);
    assert_int_equal(droste_turn(f.d, 5, &f.err), 0);
}

/* A run keeps the settings that it was started with; another one has its own. */
static void each_run_has_its_settings(void **state)
{
    const char *const few[] = { "max-iterations", "1", "model", "callback", NULL };
    const char *const wrong[] = { "max-iterations", "none", NULL };
    droste_request q = { .question = "?", .settings = wrong, .done = done, .arg = &ones[0] };
    assert_int_equal(droste_start(f.d, &q, NULL, &f.err), -DROSTE_ERROR_ARGUMENT);
    assert_non_null(strstr(f.err.text, "max-iterations"));
    q.settings = few;
    f.keep = 1;
    assert_fine(droste_start(f.d, &q, NULL, &f.err));
    assert_fine(droste_set(f.d, "max-iterations", "7", &f.err));
    while (f.kept_count < 1)
        assert_fine(droste_turn(f.d, -1, &f.err));
    droste_answer(f.kept[0], "I think.", 8);
    turn_until(1);
    assert_string_equal(f.status[0], "exhausted");
}

static void a_run_that_cannot_begin_has_no_events(void **state)
{
    droste_request q = { .question = "?", .context = "/nowhere", .done = done, .arg = &ones[0] };
    assert_int_equal(droste_start(f.d, &q, NULL, &f.err), -DROSTE_ERROR_NOT_FOUND);
    q.context = NULL;
    q.question = "";
    assert_int_equal(droste_start(f.d, &q, NULL, &f.err), -DROSTE_ERROR_ARGUMENT);
    q.question = "?";
    q.done = NULL;
    assert_int_equal(droste_start(f.d, &q, NULL, &f.err), -DROSTE_ERROR_ARGUMENT);
    assert_int_equal(droste_turn(f.d, 0, &f.err), 0);
    assert_int_equal(f.ended, 0);
}

/* What is left ends with the context, and nobody is told. */
static void a_context_ends_with_runs_under_way(void **state)
{
    f.keep = 2;
    start(0);
    start(1);
    while (f.kept_count < 1)
        assert_fine(droste_turn(f.d, -1, &f.err));
    droste_cancel(f.running[0]);
    droste_free(f.d);
    assert_int_equal(f.ended, 0);
    assert_fine(droste_new(&f.d, &f.err));
}

static void ask_next(droste_chat *chat, unsigned n, const char *context, int expected)
{
    ones[n].number = n;
    droste_request q = { .question = "How long?",
        .data = context,
        .len = strlen(context),
        .kind = "text",
        .done = done,
        .arg = &ones[n],
        .chat = chat };
    assert_int_equal(droste_start(f.d, &q, &f.running[n], &f.err), expected);
}

/* In one session, whose `context` stays the first one; one at a time, and one that cannot begin is
 * none. */
static void questions_of_a_conversation_follow_one_another(void **state)
{
    droste_chat *chat = NULL;
    droste_request without = { .done = done, .arg = &ones[0] };
    assert_fine(droste_chat_open(f.d, &chat, &f.err));
    f.keep = 1;
    without.chat = chat;
    assert_int_equal(droste_start(f.d, &without, NULL, &f.err), -DROSTE_ERROR_ARGUMENT);
    ask_next(chat, 0, "xxx", 0);
    ask_next(chat, 1, "y", -DROSTE_ERROR_ARGUMENT);
    assert_non_null(strstr(f.err.text, "is active"));
    while (f.kept_count < 1)
        assert_fine(droste_turn(f.d, -1, &f.err));
    droste_answer(f.kept[0], code, sizeof code - 1);
    turn_until(1);
    ask_next(chat, 1, "yyyyy", 0);
    turn_until(2);
    assert_string_equal(f.answer[0], "3");
    assert_string_equal(f.answer[1], "3");
    droste_chat_close(chat);
}

static unsigned requests, calls, called;

static void count_event(void *arg, const droste_event *event)
{
    requests += strcmp(event->kind, "request") == 0;
    calls += strcmp(event->kind, "call") == 0 && event->call == 1 && event->run == 0;
    called += strcmp(event->kind, "called") == 0 && event->call == 1 && event->calls == 1;
    if (strcmp(event->kind, "call") == 0)
        assert_string_equal(event->text, "what?");
}

static void asking_model(void *arg, const droste_message *m, size_t count, droste_call *call)
{
    static const char asks[] = "```repl\nSUBMIT(answer=llm_query('what?'))\n```";
    droste_answer(call, count == 1 ? "that" : asks, count == 1 ? 4 : sizeof asks - 1);
}

/* Each call of the code, and what a model is told, are events where they are asked for, and only
 * there. */
static void all_events_are_delivered_on_request(void **state)
{
    droste_set_model(f.d, asking_model, NULL);
    for (int all = 0; all < 2; all++) {
        requests = calls = called = 0;
        droste_request q = {
            .question = "?", .event = count_event, .done = done, .arg = &ones[0], .all_events = all
        };
        assert_fine(droste_start(f.d, &q, NULL, &f.err));
        turn_until((unsigned)all + 1);
        assert_string_equal(f.answer[0], "\"that\"");
        assert_int_equal(requests, all);
        assert_int_equal(calls, all);
        assert_int_equal(called, all);
    }
}

/* ---- the record's size ---- */

static void printing_model(
    void *arg, const droste_message *messages, size_t count, droste_call *call)
{
    static const char print[] = "```repl\nprint('x' * 60000)\n```";
    if (f.kept_count++ == 0)
        droste_answer(call, print, sizeof print - 1);
    else
        droste_answer(call, code, sizeof code - 1);
}

/* How a run ends that prints 60,000 bytes in its first turn and answers in its second. */
static const char *print_much(const char *database, const char *size)
{
    droste_free(f.d);
    f.ended = f.kept_count = 0;
    assert_fine(droste_new(&f.d, &f.err));
    assert_fine(droste_set(f.d, "database", database, &f.err));
    assert_fine(droste_set(f.d, "model", "callback", &f.err));
    assert_fine(droste_set(f.d, "max-record-size", size, &f.err));
    droste_set_model(f.d, printing_model, NULL);
    start(0);
    turn_until(1);
    return f.status[0];
}

/* What came of the cell has no room: the run ends, and its model is not asked again. With more
 * room, without a limit or without a record it answers. */
static void what_cannot_be_recorded_ends_a_run(void **state)
{
    char place[] = "/tmp/droste-record-XXXXXX", path[64];
    assert_non_null(mkdtemp(place));
    snprintf(path, sizeof path, "%s/runs.db", place);
    assert_string_equal(print_much(path, "60000"), "budget");
    assert_int_equal(f.kept_count, 1);
    assert_string_equal(print_much(path, "600000"), "answered");
    assert_string_equal(print_much(path, "0"), "answered");
    assert_string_equal(print_much("none", "1"), "answered");
    droste_free(f.d);
    assert_fine(droste_new(&f.d, &f.err));
    unlink(path);
    rmdir(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            questions_of_a_conversation_follow_one_another, setup, teardown),
        cmocka_unit_test_setup_teardown(all_events_are_delivered_on_request, setup, teardown),
        cmocka_unit_test_setup_teardown(many_runs_are_under_way_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_run_can_be_ended_from_within_its_events, setup, teardown),
        cmocka_unit_test_setup_teardown(one_is_cancelled_and_the_other_goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(all_are_interrupted, setup, teardown),
        cmocka_unit_test_setup_teardown(a_callback_may_not_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(without_runs_a_turn_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(each_run_has_its_settings, setup, teardown),
        cmocka_unit_test_setup_teardown(a_run_that_cannot_begin_has_no_events, setup, teardown),
        cmocka_unit_test_setup_teardown(a_context_ends_with_runs_under_way, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_recorded_ends_a_run, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
