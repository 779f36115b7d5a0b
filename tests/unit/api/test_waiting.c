/* Templates, rich results and commands through the functions of C that wait. */
#include "../test.h"

#include "droste.h"

static droste *d;
static droste_error error;
static droste_session *session;

#define API_ERROR error
#include "assert_fine.h"

static int setup(void **state)
{
    assert_fine(droste_new(&d, &error));
    assert_fine(droste_session_open(d, &session, &error));
    return 0;
}

static int teardown(void **state)
{
    droste_session_close(session);
    droste_free(d);
    return 0;
}

static droste_result *run(droste_session *s, const char *code, int flags)
{
    droste_result *r = NULL;
    assert_fine(droste_session_exec(s, code, strlen(code), flags, &r, &error));
    return r;
}

static void assert_echo(droste_session *s, const char *code, const char *echo)
{
    droste_result *r = run(s, code, DROSTE_ECHO);
    assert_string_equal(droste_result_status(r), "ok");
    assert_string_equal(droste_result_echo(r), echo);
    droste_result_free(r);
}

/* ---- templates ---- */

/* They outlive their session, and what one session changes no other sees. */
static void sessions_start_from_a_template(void **state)
{
    droste_template *template = NULL;
    droste_session *one = NULL, *two = NULL;
    droste_result_free(run(session, "x = [1]\nimport decimal", 0));
    assert_fine(droste_session_template(session, &template, &error));
    droste_session_close(session);
    session = NULL;
    assert_fine(droste_session_start_from(template, NULL, &one, &error));
    assert_fine(droste_session_start_from(template, NULL, &two, &error));
    droste_template_free(template);
    assert_echo(one, "x.append(2); x", "[1, 2]");
    assert_echo(two, "x.append(3); x, decimal.Decimal(1)", "([1, 3], Decimal('1'))");
    droste_session_close(one);
    assert_echo(two, "x", "[1, 3]");
    droste_session_close(two);
}

static void a_session_with_threads_is_no_template(void **state)
{
    droste_template *template = NULL;
    droste_result_free(run(session,
        "import threading\ne = threading.Event()\n"
        "t = threading.Thread(target=e.wait, name='sleeper')\nt.start()",
        0));
    assert_int_equal(droste_session_template(session, &template, &error), -DROSTE_ERROR_ARGUMENT);
    assert_non_null(strstr(error.text, "sleeper"));
    assert_null(template);
    droste_result_free(run(session, "e.set(); t.join()", 0));
    assert_fine(droste_session_template(session, &template, &error));
    droste_template_free(template);
}

/* ---- rich results ---- */

static void values_are_shown_in_their_media_types(void **state)
{
    static const char code[] = "class Table:\n    def _repr_html_(self): return '<b>1</b>'\n"
                               "    def __repr__(self): return 'Table'\n"
                               "display({'text/plain': 'one'}, raw=True)\nTable()";
    droste_result *r = run(session, code, DROSTE_ECHO | DROSTE_RESULTS);
    droste_media media;
    assert_int_equal(droste_result_bundles(r), 2);
    assert_true(droste_result_media(r, 0, 0, &media));
    assert_string_equal(media.type, "text/plain");
    assert_int_equal(media.len, 3);
    assert_memory_equal(media.data, "one", 3);
    assert_false(droste_result_media(r, 0, 1, &media));
    assert_int_equal(droste_result_main(r), 1);
    size_t at = 0;
    while (droste_result_media(r, 1, at, &media) && strcmp(media.type, "text/html") != 0)
        at++;
    assert_string_equal(media.type, "text/html");
    assert_string_equal(media.form, "text");
    assert_memory_equal(media.data, "<b>1</b>", media.len);
    assert_false(droste_result_media(r, 2, 0, &media));
    droste_result_free(r);
    r = run(session, code, DROSTE_ECHO);
    assert_int_equal(droste_result_bundles(r), 0);
    droste_result_free(r);
}

/* ---- values ---- */

static void typed_values_travel_both_ways(void **state)
{
    static const char code[] = "SUBMIT(a=b'\\x00\\xff', b={1, 2})";
    droste_session *other = NULL;
    size_t len = 0;
    droste_result *r = run(session, code, DROSTE_VALUES | DROSTE_ONLY_VALUES);
    const char *values = droste_result_values(r, &len);
    assert_non_null(values);
    assert_fine(droste_session_open(d, &other, &error));
    assert_fine(droste_session_set(other, "v", "values", values, len, &error));
    assert_echo(other, "v", "{'a': b'\\x00\\xff', 'b': {1, 2}}");
    assert_int_equal(
        droste_session_set(other, "w", "values", values, len / 2, &error), -DROSTE_ERROR_ARGUMENT);
    assert_echo(other, "'w' in globals()", "False");
    droste_session_close(other);
    droste_result_free(r);
    r = run(session, code, 0);
    assert_null(droste_result_values(r, &len));
    droste_result_free(r);
}

/* ---- commands ---- */

struct output {
    char text[2][64];
    size_t len[2];
};

static void note_output(void *arg, int stream, const char *data, size_t len)
{
    struct output *output = arg;
    size_t *at = &output->len[stream - 1];
    assert_in_range(stream, 1, 2);
    assert_true(*at + len < sizeof output->text[0]);
    memcpy(output->text[stream - 1] + *at, data, len);
    *at += len;
}

static droste_command_reply run_command(const char *const *argv, const char *input, int flags,
    uint64_t timeout_ms, struct output *output)
{
    droste_command_reply end = { 0 };
    const droste_command_request start = { .op = "start",
        .argv = argv,
        .flags = flags | (input ? DROSTE_COMMAND_STDIN : 0),
        .data = input,
        .len = input ? strlen(input) : 0,
        .timeout_ms = timeout_ms };
    *output = (struct output){ 0 };
    assert_fine(droste_command_run(session, &start, note_output, output, &end, &error));
    return end;
}

static void a_command_has_input_output_and_a_status(void **state)
{
    struct output output;
    droste_command_reply end =
        run_command((const char *const[]){ "sh", "-c", "cat; echo no >&2; exit 3", NULL }, "yes", 0,
            0, &output);
    assert_int_equal(end.status, 3);
    assert_false(end.timed_out);
    assert_string_equal(output.text[0], "yes");
    assert_string_equal(output.text[1], "no\n");
    end = run_command((const char *const[]){ "sh", "-c", "echo no >&2", NULL }, NULL,
        DROSTE_COMMAND_MERGE, 0, &output);
    assert_int_equal(end.status, 0);
    assert_string_equal(output.text[0], "no\n");
    assert_string_equal(output.text[1], "");
}

static void a_command_is_killed_at_its_time_limit(void **state)
{
    struct output output;
    droste_command_reply end =
        run_command((const char *const[]){ "sleep", "600", NULL }, NULL, 0, 1, &output);
    assert_true(end.timed_out);
    assert_int_equal(end.status, -9);
}

static void a_program_that_is_not_there_is_named(void **state)
{
    droste_command_reply end;
    const droste_command_request start = { .op = "start",
        .argv = (const char *const[]){ "no-such-program", NULL } };
    assert_true(droste_command_run(session, &start, NULL, NULL, &end, &error) < 0);
    assert_non_null(strstr(error.text, "no-such-program"));
}

#define template_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        template_test(sessions_start_from_a_template),
        template_test(a_session_with_threads_is_no_template),
        template_test(values_are_shown_in_their_media_types),
        template_test(typed_values_travel_both_ways),
        template_test(a_command_has_input_output_and_a_status),
        template_test(a_command_is_killed_at_its_time_limit),
        template_test(a_program_that_is_not_there_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
