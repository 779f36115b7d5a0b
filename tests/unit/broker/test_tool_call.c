/* One call of a tool: what a tool may answer, when, and what the code of a real guest gets. */
#include "tool_session.h"

#include "broker/tool_call.h"

struct fixture {
    struct tool_session s;
    const char *answer;         /* JSON; NULL: it fails */
    const char *type, *message; /* of the failure */
    bool is_late;               /* it answers from the loop; else at once */
    bool is_forgotten;          /* the test answers */
    struct tool_call *call;     /* not answered yet */
    struct timer *timer;
    unsigned called, cancelled;
    char arguments[64];
};

static void answer(struct fixture *f)
{
    struct tool_call *call = steal(&f->call);
    if (f->answer)
        tool_call_answer(call, f->answer, strlen(f->answer));
    else
        tool_call_fail(call, f->type, f->message);
}

static void answer_late(void *arg)
{
    answer(arg);
}

static void note_cancel(void *arg, struct tool_call *call)
{
    struct fixture *f = arg;
    assert_ptr_equal(f->call, call);
    assert_true(tool_call_is_cancelled(call));
    f->cancelled++;
}

static void tool(void *arg, struct tool_call *call, const char *json, size_t len)
{
    struct fixture *f = arg;
    f->called++;
    f->call = call;
    snprintf(f->arguments, sizeof f->arguments, "%.*s", (int)len, json);
    assert_false(tool_call_is_cancelled(call));
    tool_call_on_cancel(call, note_cancel, f);
    if (f->is_late)
        timer_start(f->timer, 10, 0);
    else if (!f->is_forgotten)
        answer(f);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    tool_session_begin(&f->s);
    f->timer = timer_new(f->s.loop, answer_late, f);
    f->answer = "null";
    const struct tool_spec spec = { .name = "tool",
        .parameters = "{\"type\": \"object\", \"properties\": {\"n\": {\"type\": \"integer\"}}}",
        .fn = tool,
        .arg = f };
    assert_ok(tools_add(f->s.tools, &spec, err));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    timer_free(f->timer);
    broker_close(steal(&f->s.broker));
    if (f->call)
        answer(f); /* nobody waits for it */
    tool_session_end(&f->s);
    free(f);
    return 0;
}

#define call_test(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* The code catches what the call raises. */
#define TRYING(call) "try: r = " call "\nexcept Exception as e: r = [type(e).__name__, str(e)]\n"

/* A cell that calls the tool submits this. */
static void gives(struct fixture *f, const char *json)
{
    cleanup_buf struct buf expected = { 0 };
    buf_printf(&expected, "{\"output\": %s}", json);
    if (!f->s.session)
        tool_session_open(&f->s, (struct broker_options){ 0 });
    tool_session_submits(&f->s, TRYING("tool(n=1)") "SUBMIT(r)", buf_text(&expected));
}

static void an_answer_is_the_value_of_the_call(void **state)
{
    struct fixture *f = *state;
    f->answer = "{\"a\": [1, null, \"\\u00e9\"]}";
    gives(f, "{\"a\": [1, null, \"é\"]}");
    assert_string_equal(f->arguments, "{\"n\": 1}");
    f->answer = "7";
    gives(f, "7");
    assert_int_equal(f->called, 2);
}

static void an_answer_may_come_from_the_loop(void **state)
{
    struct fixture *f = *state;
    f->is_late = true;
    f->answer = "\"late\"";
    gives(f, "\"late\"");
    gives(f, "\"late\"");
    assert_int_equal(f->cancelled, 0);
}

/* The tool is the host's own, but its answer may be made of what others say. */
static void an_answer_that_is_not_json_is_an_error_of_the_tool(void **state)
{
    struct fixture *f = *state;
    static const char *const wrong[] = { "", "{", "nope", "1 2", "\"\xff\"" };
    f->answer = wrong[0];
    gives(f,
        "[\"RuntimeError\", \"the tool's answer is not JSON: JSON is invalid at byte 0: a missing value\"]");
    for (size_t i = 1; i < array_length(wrong); i++) {
        f->answer = wrong[i];
        tool_session_submits(&f->s,
            TRYING("tool()") "SUBMIT(r[0], r[1].startswith(\"the tool's answer is not JSON: \"))",
            "{\"output\": [\"RuntimeError\", true]}");
    }
    f->answer = "1";
    gives(f, "1");
}

/* Python's own exceptions have their names; any other is a ToolError that says it. */
static void a_failure_is_raised_by_its_name(void **state)
{
    struct fixture *f = *state;
    f->answer = NULL;
    f->type = "KeyError";
    f->message = "it";
    gives(f, "[\"KeyError\", \"'it'\"]");
    f->type = "Unheard";
    gives(f, "[\"ToolError\", \"Unheard: it\"]");
    f->type = "SystemExit"; /* an exception that would end the guest */
    gives(f, "[\"ToolError\", \"SystemExit: it\"]");
    f->type = "";
    gives(f, "[\"RuntimeError\", \"it\"]");
    f->type = f->message = NULL;
    gives(f, "[\"RuntimeError\", \"\"]");
}

/* They are neither given to the tool nor counted as calls of it. */
static void arguments_that_do_not_fit_never_reach_the_tool(void **state)
{
    struct fixture *f = *state;
    gives(f, "null");
    tool_session_submits(&f->s, TRYING("tool(n='x')") "SUBMIT(r[0], 'tool()' in r[1])",
        "{\"output\": [\"TypeError\", true]}");
    assert_int_equal(f->called, 1);
}

/* The frames are made by hand. */
static void a_forged_call_of_no_tool_is_refused(void **state)
{
    struct fixture *f = *state;
    tool_session_open(&f->s, (struct broker_options){ 0 });
    tool_session_submits(&f->s,
        "import sys\nf = sys._getframe()\n"
        "while 'CHANNEL_FD' not in f.f_globals: f = f.f_back\n"
        "link = f.f_globals['state'].link\n"
        "def ask(head, parts): return link.call(dict(head, name='tool'), parts)[0]['error']\n"
        "SUBMIT([ask({'tool': 'none'}, [b'{}'])['message'], ask({}, [b'{}'])['message'],\n"
        "    ask({'tool': 'tool', 'pieces': 2}, [b'{}'])['message']])",
        "{\"output\": [\"the host has no tool 'none'\", \"the host has no tool ''\", "
        "\"the call has no prompt\"]}");
    assert_int_equal(f->called, 0);
}

/* The tool may answer all the same: its answer is dropped, and the session's next call works. */
static void a_call_that_waited_too_long_is_cancelled_once(void **state)
{
    struct fixture *f = *state;
    f->is_forgotten = true;
    tool_session_open(&f->s, (struct broker_options){ .tool_timeout = 0.1 });
    tool_session_submits(&f->s, TRYING("tool()") "SUBMIT(r[0])", "{\"output\": \"TimeoutError\"}");
    assert_int_equal(f->cancelled, 1);
    assert_true(tool_call_is_cancelled(f->call));
    answer(f);
    f->is_forgotten = false;
    gives(f, "null");
    assert_int_equal(f->cancelled, 1);
}

static void closing_cancels_a_call(void **state)
{
    struct fixture *f = *state;
    f->is_forgotten = true;
    tool_session_open(&f->s, (struct broker_options){ 0 });
    tool_session_start(&f->s, "tool()", 0);
    while (!f->call)
        loop_turn(f->s.loop, -1);
    broker_close(steal(&f->s.broker));
    assert_int_equal(f->cancelled, 1);
}

/* A call that is under way goes on; the next one has no tool any more. */
static void a_tool_can_be_removed_during_its_call(void **state)
{
    struct fixture *f = *state;
    f->is_forgotten = true;
    f->answer = "\"still\"";
    tool_session_open(&f->s, (struct broker_options){ 0 });
    tool_session_start(&f->s, TRYING("tool()") "SUBMIT(r)", 0);
    while (!f->call)
        loop_turn(f->s.loop, -1);
    assert_true(tools_remove(f->s.tools, "tool"));
    answer(f);
    tool_session_finish(&f->s, "{\"output\": \"still\"}");
    tool_session_submits(
        &f->s, TRYING("tool()") "SUBMIT('has no tool' in r[1])", "{\"output\": true}");
    assert_int_equal(f->called, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        call_test(an_answer_is_the_value_of_the_call),
        call_test(an_answer_may_come_from_the_loop),
        call_test(an_answer_that_is_not_json_is_an_error_of_the_tool),
        call_test(a_failure_is_raised_by_its_name),
        call_test(arguments_that_do_not_fit_never_reach_the_tool),
        call_test(a_forged_call_of_no_tool_is_refused),
        call_test(a_call_that_waited_too_long_is_cancelled_once),
        call_test(closing_cancels_a_call),
        call_test(a_tool_can_be_removed_during_its_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
