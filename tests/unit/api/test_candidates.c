/* Turns with several candidates: which one is kept, and what a resumed run does with them. */
#include "runs.h"

enum { CANDIDATES = 3 };

static void begin_with(const char *select, const char *const *replies)
{
    runs.replies = replies;
    assert_fine(droste_set(runs.d, "candidates", "3", &runs.err));
    assert_fine(droste_set(runs.d, "select", select, &runs.err));
}

static void run_with(const char *select, const char *const *replies)
{
    begin_with(select, replies);
    runs_begin();
    runs_finish();
    assert_string_equal(runs.why, "");
    assert_string_equal(runs.status, "answered");
}

/* Two of three submit the same. */
static void the_most_common_answer_is_kept(void **state)
{
    static const char *const replies[] = { "```repl\nSUBMIT(answer=1)\n```",
        "```repl\nSUBMIT(answer=2)\n```", "```repl\nSUBMIT(answer=2)\n```" };
    run_with("vote", replies);
    assert_string_equal(runs.answer, "2");
    assert_int_equal(runs.turns, CANDIDATES);
}

/* Without a submission, what was printed decides, whatever the variables are; the kept one's are
 * the session's. */
static void the_session_of_the_kept_one_goes_on(void **state)
{
    static const char *const replies[] = { "```repl\nx = 1\nprint('odd')\n```",
        "```repl\nx = 2\nprint('even')\n```", "```repl\nx = 'longer'\nprint('even')\n```",
        "```repl\nSUBMIT(answer=x)\n```", "```repl\nSUBMIT(answer=x)\n```",
        "```repl\nSUBMIT(answer=x)\n```" };
    run_with("vote", replies);
    assert_string_equal(runs.answer, "2"); /* of equals, the first */
}

/* One that fails or dies has lost, and the others' variables are theirs alone. */
static void a_candidate_that_dies_is_not_kept(void **state)
{
    static const char *const replies[] = { "```repl\nimport os\nos._exit(3)\n```",
        "```repl\nraise ValueError('no')\n```", "```repl\nSUBMIT(answer='x' in globals())\n```" };
    run_with("first", replies);
    assert_string_equal(runs.answer, "false");
}

/* All are dead: the run continues from before the turn. */
static void without_a_survivor_the_turn_is_undone(void **state)
{
    static const char *const replies[] = { "```repl\nx = 1\nprint(x)\n```",
        "```repl\nx = 1\nprint(x)\n```", "```repl\nx = 1\nprint(x)\n```",
        "```repl\nx = 9\nimport os\nos._exit(1)\n```",
        "```repl\nx = 9\nimport os\nos._exit(1)\n```",
        "```repl\nx = 9\nimport os\nos._exit(1)\n```", "```repl\nSUBMIT(answer=x)\n```",
        "```repl\nSUBMIT(answer=x)\n```", "```repl\nSUBMIT(answer=x)\n```" };
    run_with("vote", replies);
    assert_string_equal(runs.answer, "1");
}

/* The call that selects is the loop's, and has no system prompt of a run: it is recognized by its
 * content. */
static void selecting_model(void *arg, const droste_message *m, size_t count, droste_call *call)
{
    const droste_message *last = &m[count - 1];
    if (memmem(last->text, last->len, "Candidate 3", strlen("Candidate 3"))) {
        runs.asked_count++;
        droste_answer(call, "2", 1);
    } else
        runs_model(arg, m, count, call);
}

static void a_model_may_choose(void **state)
{
    static const char *const replies[] = { "```repl\nSUBMIT(answer=1)\n```",
        "```repl\nSUBMIT(answer=2)\n```", "```repl\nSUBMIT(answer=3)\n```" };
    droste_set_model(runs.d, selecting_model, NULL);
    run_with("model", replies);
    assert_string_equal(runs.answer, "2");
    assert_int_equal(runs.asked_count, 1);
}

/* In the turn in which a run was left, all candidates go on; in turns before it, only those that
 * were kept are executed, and nothing answered is asked again. */
static void a_resumed_run_keeps_what_was_kept(void **state)
{
    static const char *const replies[] = { "```repl\nx = llm_query('one')\nprint('a')\n```",
        "```repl\nx = llm_query('two')\nprint('b')\n```",
        "```repl\nx = llm_query('three')\nprint('b')\n```", "```repl\nSUBMIT(answer=x)\n```",
        "```repl\ny = llm_query('held')\nSUBMIT(answer=x)\n```", "```repl\nSUBMIT(answer=x)\n```" };
    begin_with("vote", replies);
    runs_leave_at("held");
    size_t asked = runs.asked_count;
    runs_resume();
    assert_string_equal(runs.why, "");
    assert_string_equal(runs.status, "answered");
    assert_string_equal(runs.answer, "\"TWO\"");
    assert_int_equal(runs.turns, 2 * CANDIDATES);
    assert_int_equal(runs.asked_count, asked + 1);
    assert_int_equal(runs_asked("held"), 2);
}

static void an_unknown_selector_is_refused(void **state)
{
    droste_request q = { .question = "?", .done = runs_done };
    assert_int_equal(droste_set(runs.d, "select", "best", &runs.err) == 0
                         ? droste_start(runs.d, &q, NULL, &runs.err)
                         : -DROSTE_ERROR_ARGUMENT,
        -DROSTE_ERROR_ARGUMENT);
    assert_non_null(strstr(runs.err.text, "first, vote"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        runs_test(the_most_common_answer_is_kept),
        runs_test(the_session_of_the_kept_one_goes_on),
        runs_test(a_candidate_that_dies_is_not_kept),
        runs_test(without_a_survivor_the_turn_is_undone),
        runs_test(a_model_may_choose),
        runs_test(a_resumed_run_keeps_what_was_kept),
        runs_test(an_unknown_selector_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
