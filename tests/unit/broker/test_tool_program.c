/* Programs as tools: what may be one, and what the code of a real guest gets from them. */
#include "../programs.h"

#include "broker/tool_program.h"
#include "tool_session.h"

struct fixture {
    struct tool_session s;
    struct programs programs;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    programs_begin(&f->programs);
    tool_session_begin(&f->s);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    tool_session_end(&f->s);
    programs_end(&f->programs);
    free(f);
    return 0;
}

#define tool_test(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

static int add(struct fixture *f, const char *path, struct error *err)
{
    return tools_add_program(f->s.tools, f->s.loop, "tool", path, err);
}

static void add_script(struct fixture *f, const char *script)
{
    assert_ok(add(f, programs_make(&f->programs, "tool", script), err));
}

/* ---- cells ---- */

static void open_session(struct fixture *f, double tool_timeout)
{
    tool_session_open(&f->s, (struct broker_options){ .tool_timeout = tool_timeout });
}

/* The cell submits this. */
static void submits(struct fixture *f, const char *code, const char *json)
{
    if (!f->s.session)
        open_session(f, 0);
    tool_session_submits(&f->s, code, json);
}

#define FAILING                                                                                    \
    "try: tool(n=1)\n"                                                                             \
    "except Exception as e: SUBMIT(type(e).__name__, str(e))"

/* ---- what may be a tool ---- */

static void the_file_beside_it_describes_it(void **state)
{
    struct fixture *f = *state;
    cleanup_buf struct buf text = { 0 };
    programs_write(&f->programs, "tool.json",
        "{\"description\": \"Doubles.\", \"parameters\": {\"type\": \"object\", "
        "\"properties\": {\"n\": {\"type\": \"integer\"}}, \"required\": [\"n\"]}}",
        0644);
    add_script(f, "cat");
    tools_describe(tools_find(f->s.tools, "tool"), &text);
    assert_non_null(strstr(buf_text(&text), "\"Doubles.\""));
    submits(f, "SUBMIT(tool(2)['arguments'], tool.__doc__.strip())",
        "{\"output\": [{\"n\": 2}, \"Doubles.\"]}");
}

static void without_a_description_it_takes_any_arguments(void **state)
{
    struct fixture *f = *state;
    add_script(f, "cat");
    submits(f, "SUBMIT(x=tool(a='\\n', b=[1, None]))",
        "{\"x\": {\"arguments\": {\"a\": \"\\n\", \"b\": [1, null]}}}");
}

static void what_cannot_be_started_is_refused(void **state)
{
    struct fixture *f = *state;
    assert_fails_saying(
        ERROR_NOT_FOUND, "tool 'tool': the program /nowhere/tool", add(f, "/nowhere/tool", err));
    assert_fails_saying(ERROR_CONFIG, "could not be started",
        add(f, programs_write(&f->programs, "plain", "#!/bin/sh\n", 0644), err));
    assert_false(tools_have(f->s.tools, "tool"));
    assert_ok(add(f, programs_make(&f->programs, "fine", "true"), err));
    assert_true(tools_have(f->s.tools, "tool"));
}

static void a_description_that_is_none_is_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const wrong[][2] = { { "[]", "it is not an object" }, { "{", "" },
        { "{\"parameters\": {\"type\": \"array\"}}", "" } };
    for (size_t i = 0; i < array_length(wrong); i++) {
        struct error why = { 0 };
        programs_write(&f->programs, "tool.json", wrong[i][0], 0644);
        if (add(f, programs_make(&f->programs, "tool", "cat"), &why) >= 0)
            fail_msg("%s was taken", wrong[i][0]);
        if (!strstr(why.text, "tool") || !strstr(why.text, wrong[i][1]))
            fail_msg("%s: %s", wrong[i][0], why.text);
    }
    programs_write(&f->programs, "tool.json", "{}", 0644);
    add_script(f, "cat");
}

/* ---- what the code gets ---- */

static void its_input_is_one_line(void **state)
{
    struct fixture *f = *state;
    add_script(f, "read -r one; if read -r two; then echo 2; else echo 1; fi");
    submits(f, "SUBMIT(x=tool(text='a\\nb\\r\\n\\u2028c'))", "{\"x\": 1}");
}

static void a_failure_has_the_status_and_the_complaint(void **state)
{
    struct fixture *f = *state;
    add_script(f, "echo 'not read'; printf 'no such \\033[2J row\\n\\n' >&2; exit 3");
    submits(f, FAILING,
        "{\"output\": [\"RuntimeError\", "
        "\"tool ended with exit status 3: no such \\\\x1b[2J row\"]}");
}

static void a_signal_is_named(void **state)
{
    struct fixture *f = *state;
    add_script(f, "kill -9 $$");
    submits(f, FAILING, "{\"output\": [\"RuntimeError\", \"tool was ended by signal 9\"]}");
}

/* Of a long complaint the end is shown. */
static void a_long_complaint_is_shortened(void **state)
{
    struct fixture *f = *state;
    add_script(f, "head -c 100000 /dev/zero | tr '\\0' x >&2; echo the end >&2; exit 1");
    submits(f,
        "try: tool()\n"
        "except RuntimeError as e: SUBMIT(x=[len(str(e)) < 2000, str(e).endswith('xthe end')])",
        "{\"x\": [true, true]}");
}

static void output_that_is_no_json_fails(void **state)
{
    struct fixture *f = *state;
    add_script(f, "echo '{\"a\": '");
    submits(
        f, "try: tool()\nexcept RuntimeError as e: SUBMIT(x='JSON' in str(e))", "{\"x\": true}");
}

static void output_is_bounded(void **state)
{
    struct fixture *f = *state;
    add_script(f, "yes x | head -c 80000000");
    submits(f, FAILING, "{\"output\": [\"RuntimeError\", \"tool wrote more than 64 MiB\"]}");
}

/* More calls than programs that run at once: the others wait, and each gets its own answer. */
static void calls_beyond_those_that_run_wait(void **state)
{
    struct fixture *f = *state;
    add_script(f, "cat");
    submits(f,
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(30) as pool:\n"
        "    got = list(pool.map(lambda n: tool(n=n)['arguments']['n'], range(30)))\n"
        "SUBMIT(x=got == list(range(30)))",
        "{\"x\": true}");
}

/* One that is gone fails its calls; the tool works again when it is back. */
static void a_program_that_is_removed_fails_its_calls(void **state)
{
    struct fixture *f = *state;
    add_script(f, "cat");
    submits(f, "SUBMIT(x=tool()['arguments'])", "{\"x\": {}}");
    unlink(f->programs.path);
    submits(f, "try: tool()\nexcept RuntimeError as e: SUBMIT(x='No such file' in str(e))",
        "{\"x\": true}");
    programs_make(&f->programs, "tool", "cat");
    submits(f, "SUBMIT(x=tool()['arguments'])", "{\"x\": {}}");
}

static void a_program_that_takes_too_long_is_ended(void **state)
{
    struct fixture *f = *state;
    add_script(f, "exec sleep 100000");
    open_session(f, 0.05);
    submits(f, "try: tool()\nexcept Exception as e: SUBMIT(x=isinstance(e, TimeoutError))",
        "{\"x\": true}");
}

/* Closing everything while programs run and calls wait leaves nothing behind. */
static void tools_are_freed_while_programs_run(void **state)
{
    struct fixture *f = *state;
    add_script(f, "exec sleep 100000");
    submits(f,
        "import threading\n"
        "for _ in range(12): threading.Thread(target=tool, daemon=True).start()\n"
        "SUBMIT(x=1)",
        "{\"x\": 1}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        tool_test(the_file_beside_it_describes_it),
        tool_test(without_a_description_it_takes_any_arguments),
        tool_test(what_cannot_be_started_is_refused),
        tool_test(a_description_that_is_none_is_refused),
        tool_test(its_input_is_one_line),
        tool_test(a_failure_has_the_status_and_the_complaint),
        tool_test(a_signal_is_named),
        tool_test(a_long_complaint_is_shortened),
        tool_test(output_that_is_no_json_fails),
        tool_test(output_is_bounded),
        tool_test(calls_beyond_those_that_run_wait),
        tool_test(a_program_that_is_removed_fails_its_calls),
        tool_test(a_program_that_takes_too_long_is_ended),
        tool_test(tools_are_freed_while_programs_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
