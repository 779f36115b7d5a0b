/* Runs that are left in the middle, as by a process that died, and resumed from their record. */
#include "runs.h"

static void no_answered_call_is_repeated(void **state)
{
    static const char *const replies[] = {
        "```repl\na = llm_query_batched(['one', 'two', 'one'])\nb = llm_query('three')\n```",
        "```repl\nSUBMIT(answer=a + [b, llm_query('four')])\n```"
    };
    runs.replies = replies;
    runs_leave_at("four");
    assert_int_equal(runs.asked_count, 5);
    runs_resume();
    assert_string_equal(runs.status, "answered");
    assert_string_equal(runs.answer, "[\"ONE\",\"TWO\",\"ONE\",\"THREE\",\"FOUR\"]");
    assert_int_equal(runs.turns, 2);
    assert_int_equal(runs.asked_count, 6);
    assert_int_equal(runs_asked("one"), 2);
    assert_int_equal(runs_asked("four"), 2); /* it had no answer: asked again */
}

/* Which thread asks first does not matter: each gets the answer to what it asks. */
static void threads_may_ask_in_another_order(void **state)
{
    static const char *const replies[] = {
        "```repl\nfrom concurrent.futures import ThreadPoolExecutor as P\n"
        "with P(4) as p:\n    a = list(p.map(llm_query, ['a', 'b', 'c', 'd']))\n"
        "x = llm_query('last')\nSUBMIT(answer=a)\n```"
    };
    runs.replies = replies;
    runs_leave_at("last");
    runs_resume();
    assert_string_equal(runs.status, "answered");
    assert_string_equal(runs.answer, "[\"A\",\"B\",\"C\",\"D\"]");
    assert_int_equal(runs.asked_count, 6);
}

/* The code asks for something else than it did: the error names the place, nothing is asked, and
 * the run can be resumed again. */
static void a_run_that_deviates_is_stopped(void **state)
{
    static const char *const replies[] = {
        "```repl\nimport os\nllm_query('x' + os.urandom(8).hex())\n"
        "llm_query('end')\n```"
    };
    runs.replies = replies;
    runs_leave_at("end");
    size_t asked = runs.asked_count;
    for (int again = 0; again < 2; again++) {
        runs_resume();
        assert_string_equal(runs.status, "error");
        assert_non_null(strstr(runs.why, "turn 1, cell 1, call 1: the code asks for 'x"));
        assert_non_null(strstr(runs.why, "differs from the record"));
        assert_int_equal(runs.asked_count, asked);
        runs_new();
    }
}

static void run_with_children(const char *held)
{
    static const char *const replies[] = {
        "```repl\na = rlm_query('first')\nb = rlm_query('second')\nSUBMIT(answer=[a, b])\n```",
        "```repl\nSUBMIT(answer=llm_query('of the first'))\n```",
        "```repl\nx = llm_query('of the second')\nSUBMIT(answer=x + llm_query('more'))\n```",
    };
    runs.replies = replies;
    runs_leave_at(held);
    runs_resume();
    assert_string_equal(runs.status, "answered");
    assert_string_equal(runs.answer, "[\"OF THE FIRST\",\"OF THE SECONDMORE\"]");
    assert_int_equal(runs.turns, 3);
}

/* A child that had ended gives its answer; one that was under way goes on where it was. */
static void children_are_resumed_too(void **state)
{
    run_with_children("more");
    assert_int_equal(runs_asked("of the first"), 1);
    assert_int_equal(runs_asked("of the second"), 1);
    assert_int_equal(runs_asked("more"), 2);
}

static void a_child_that_had_not_ended_goes_on(void **state)
{
    run_with_children("of the first");
    assert_int_equal(runs_asked("of the first"), 2);
    assert_int_equal(runs_asked("of the second"), 1);
}

/* Each fork of fork_map gets the answers of its item, whichever asks first. */
static void forks_of_a_map_are_answered_from_the_record(void **state)
{
    static const char *const replies[] = {
        "```repl\na = fork_map(lambda x: llm_query('item %d' % x), range(3))\n"
        "b = llm_query('end')\nSUBMIT(answer=a + [b])\n```"
    };
    runs.replies = replies;
    runs_leave_at("end");
    runs_resume();
    assert_string_equal(runs.status, "answered");
    assert_string_equal(runs.answer, "[\"ITEM 0\",\"ITEM 1\",\"ITEM 2\",\"END\"]");
    assert_int_equal(runs.asked_count, 5);
}

/* What a tool answered is not asked of it again; what it was doing is. */
static unsigned tool_calls;

static void count_tool(void *arg, droste_tool_call *call, const char *json, size_t len)
{
    char number[16];
    snprintf(number, sizeof number, "%u", ++tool_calls);
    droste_tool_answer(call, number, strlen(number));
}

static void tools_are_not_called_again(void **state)
{
    static const char *const replies[] = {
        "```repl\na = [count(), count()]\nb = llm_query('end')\nSUBMIT(answer=a)\n```"
    };
    runs.replies = replies;
    tool_calls = 0;
    assert_fine(droste_tool_add(runs.d, "count", NULL, NULL, count_tool, NULL, &runs.err));
    runs_leave_at("end");
    assert_fine(droste_tool_add(runs.d, "count", NULL, NULL, count_tool, NULL, &runs.err));
    runs_resume();
    assert_string_equal(runs.status, "answered");
    assert_string_equal(runs.answer, "[1,2]");
    assert_int_equal(tool_calls, 2);
}

/* A container without buffers whose tree is the tuple (1, 2). */
static const char typed_pair[] =
    "\1\0\0\0\0\0\0\0\36\0\0\0\0\0\0\0{\"$droste\": [\"tuple\", [1, 2]]}";

static void answer_typed(void *arg, droste_tool_call *call, const char *json, size_t len)
{
    tool_calls++;
    droste_tool_answer_values(call, "[1,2]", 5, typed_pair, sizeof typed_pair - 1);
}

static void run_with_a_typed_tool(void)
{
    static const char *const replies[] = {
        "```repl\na = pair()\nb = llm_query('end')\nSUBMIT(answer=[type(a).__name__, *a])\n```"
    };
    runs.replies = replies;
    tool_calls = 0;
    assert_fine(droste_tool_add(runs.d, "pair", NULL, NULL, answer_typed, NULL, &runs.err));
    runs_leave_at("end");
    assert_fine(droste_tool_add(runs.d, "pair", NULL, NULL, answer_typed, NULL, &runs.err));
}

static void what_a_tool_returned_has_its_type_again(void **state)
{
    run_with_a_typed_tool();
    runs_resume();
    assert_string_equal(runs.status, "answered");
    assert_string_equal(runs.answer, "[\"tuple\",1,2]");
    assert_int_equal(tool_calls, 1);
}

/* ---- a recording as the model ---- */

static void write_recording(char *path, size_t size)
{
    static const char lines[] =
        "{\"content\": \"```repl\\na = llm_query('q')\\n```\"}\n"
        "{\"content\": \"one\", \"contains\": \"q\", \"depth\": 1}\n"
        "{\"content\": \"```repl\\nb = llm_query('q')\\nx = wait()\\nSUBMIT(answer=[a, b])\\n```\"}\n"
        "{\"content\": \"two\", \"contains\": \"q\", \"depth\": 1}\n";
    snprintf(path, size, "%s/model.jsonl", runs.place);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(lines, sizeof lines - 1, 1, f), 1);
    assert_int_equal(fclose(f), 0);
}

static droste_tool_call *waiting;

static void keep_waiting(void *arg, droste_tool_call *call, const char *json, size_t len)
{
    waiting = call;
}

static void answer_at_once(void *arg, droste_tool_call *call, const char *json, size_t len)
{
    droste_tool_answer(call, "1", 1);
}

/* Lines that it has answered are skipped, so that the next ones answer what follows. */
static void a_recording_skips_what_it_has_answered(void **state)
{
    char path[64], model[80];
    write_recording(path, sizeof path);
    snprintf(model, sizeof model, "replay:%s", path);
    assert_fine(droste_set(runs.d, "model", model, &runs.err));
    assert_fine(droste_tool_add(runs.d, "wait", NULL, NULL, keep_waiting, NULL, &runs.err));
    waiting = NULL;
    droste_running *running = runs_begin();
    while (!waiting && !runs.status[0])
        assert_fine(droste_turn(runs.d, -1, &runs.err));
    assert_non_null(waiting);
    droste_suspend(running);
    runs_finish();
    droste_tool_answer(waiting, "1", 1);
    runs_new();
    assert_fine(droste_tool_add(runs.d, "wait", NULL, NULL, answer_at_once, NULL, &runs.err));
    runs_resume();
    unlink(path);
    assert_string_equal(runs.why, "");
    assert_string_equal(runs.status, "answered");
    assert_string_equal(runs.answer, "[\"one\",\"two\"]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        runs_test(no_answered_call_is_repeated),
        runs_test(threads_may_ask_in_another_order),
        runs_test(a_run_that_deviates_is_stopped),
        runs_test(children_are_resumed_too),
        runs_test(a_child_that_had_not_ended_goes_on),
        runs_test(forks_of_a_map_are_answered_from_the_record),
        runs_test(tools_are_not_called_again),
        runs_test(what_a_tool_returned_has_its_type_again),
        runs_test(a_recording_skips_what_it_has_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
