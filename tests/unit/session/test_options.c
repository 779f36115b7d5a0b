/* Options of a session: the cap of cell time limits, rules, and the setup code. */
#include "fixture.h"

#include "session/options.h"
#include "session/prepare.h"

static void a_limit_fits_under_its_cap(void **state)
{
    static const struct {
        double seconds, cap;
        bool fits;
    } cases[] = {
        { 0, 0, true }, { 1e6, 0, true }, { 300, 300, true }, { 0.1, 300, true },
        { 300.5, 300, false }, { 0, 300, false }, /* no limit is more than any */
    };
    for (size_t i = 0; i < array_length(cases); i++) {
        struct error why = { 0 };
        int rc = session_check_timeout(cases[i].seconds, cases[i].cap, &why);
        assert_int_equal(rc, cases[i].fits ? 0 : -(int)ERROR_ARGUMENT);
        if (!cases[i].fits) {
            assert_non_null(strstr(why.text, "execute-timeout is "));
            assert_non_null(strstr(why.text, "execute-timeout-cap"));
        }
    }
}

static void assert_hello(const struct session_options *options, const char *json)
{
    cleanup_buf struct buf head = { 0 };
    session_write_hello(options, NULL, NULL, NULL, &head);
    assert_string_equal(buf_text(&head), json);
}

static void hello_speaks_of_rules_only_where_there_are_some(void **state)
{
    static const char schema[] = "{\"properties\":{\"a\":{},\"b\\\"\":{}}}";
    static const char *const allow[] = { "os", "/m" }, *const read[] = { "/r" };
    struct session_options options = { .allow_imports = allow,
        .allow_import_count = 2,
        .spec = { .read_paths = read, .read_path_count = 1 } };
    assert_hello(&options, "");
    options.rules = true;
    assert_hello(&options, "{\"rules\":{\"allow\":[\"os\",\"/m\"],\"read\":[\"/r\"]}}");
    assert_ok(schema_parse(schema, strlen(schema), &options.answer, err));
    assert_hello(&options, "{\"output_fields\":[\"a\",\"b\\\"\"],"
                           "\"rules\":{\"allow\":[\"os\",\"/m\"],\"read\":[\"/r\"]}}");
    char context[] = "context", query[] = "llm_query", *restored[] = { context, query };
    const struct list names = { restored, 2 };
    options.literal_grep = true;
    options.restored = &names;
    options.rules = false;
    assert_hello(&options, "{\"output_fields\":[\"a\",\"b\\\"\"],\"literal_grep\":true,"
                           "\"restored\":[\"context\",\"llm_query\"]}");
    options.literal_grep = false;
    options.restored = NULL;
    options.rules = true;
    options.no_helpers = true;
    options.tools = "[]";
    assert_hello(&options, "{\"output_fields\":[\"a\",\"b\\\"\"],\"helpers\":false,"
                           "\"rules\":{\"allow\":[\"os\",\"/m\"],\"read\":[\"/r\"]},\"tools\":[]}");
    options.rules = options.no_helpers = false;
    options.tools = NULL;
    assert_hello(&options, "{\"output_fields\":[\"a\",\"b\\\"\"]}");
    schema_drop(options.answer);
}

/* The cap is the host's: it holds for a cell's own limit too, and the session lives on. */
static void no_cell_gets_more_time_than_the_cap(void **state)
{
    struct fixture *f = *state;
    struct session_options options = fixture_options();
    options.execute_timeout = 20;
    options.execute_timeout_cap = 30;
    fixture_open(f, &options);
    struct session_cell cell = { .code = "1", .len = 1, .execute_timeout = 31 };
    assert_fails(ERROR_ARGUMENT, session_exec(f->session, &cell, fixture_took, f, err));
    cell.execute_timeout = 0;
    assert_fails(ERROR_ARGUMENT, session_exec(f->session, &cell, fixture_took, f, err));
    assert_status(run_limited(f, "pass", 30), CELL_OK);
    assert_status(run_limited(f, "pass", -1), CELL_OK);
}

static void a_session_over_its_cap_does_not_open(void **state)
{
    struct fixture *f = *state;
    static const struct session_events events = { fixture_called, fixture_dropped, NULL };
    struct session_options options = fixture_options();
    options.execute_timeout = 31;
    options.execute_timeout_cap = 30;
    assert_fails(ERROR_ARGUMENT, session_open(f->env, &options, &events, f, &f->session, err));
    assert_null(f->session);
    options.execute_timeout = 30;
    fixture_open(f, &options);
    assert_status(run_limited(f, "pass", -1), CELL_OK);
}

static void helpers_are_there_unless_they_are_left_out(void **state)
{
    struct fixture *f = *state;
    struct session_options options = fixture_options();
    fixture_open(f, &options);
    assert_string_equal(submitted(run(f, "SUBMIT(a=grep('x\\ny', 'y'))")), "{\"a\": [\"y\"]}");
    options.no_helpers = true;
    fixture_open(f, &options);
    assert_string_equal(run(f, "grep")->error.type, "NameError");
    assert_status(run(f, "add_buffer('b', 1)"), CELL_OK);
    options.rules = true; /* which switch off one of them, where they are */
    fixture_open(f, &options);
    assert_string_equal(run(f, "run('true')")->error.type, "NameError");
    options.no_helpers = false;
    fixture_open(f, &options);
    assert_string_equal(run(f, "run('true')")->error.type, "RuleError");
    assert_string_equal(run(f, "read_file('/etc/passwd')")->error.type, "PermissionError");
}

static void rules_hold_where_they_are_asked_for_and_nowhere_else(void **state)
{
    struct fixture *f = *state;
    struct session_options options = fixture_options();
    fixture_open(f, &options);
    assert_status(run(f, "import os\neval('1')\nopen('/etc/passwd')"), CELL_OK);
    options.rules = true;
    fixture_open(f, &options);
    assert_string_equal(run(f, "import os")->error.type, "ImportError");
    assert_string_equal(run(f, "eval('1')")->error.type, "RuleError");
    assert_string_equal(run(f, "open('/etc/passwd')")->error.type, "PermissionError");
    assert_null(strstr(f->last.error.traceback, "<droste>"));
    assert_string_equal(
        submitted(run(f, "import math\nSUBMIT(a=llm_query('p'), b=math.floor(2.5))")),
        "{\"a\": \"p\", \"b\": 2}");
}

struct preparing {
    struct prepare prepare;
    struct error why;
    bool done;
};

static void prepared(void *arg, const struct error *why)
{
    struct preparing *p = arg;
    p->done = true;
    if (why)
        p->why = *why;
}

/* Opens a session and does what comes before its first cell; what came of that. */
static int prepare_session(
    struct fixture *f, const struct session_options *options, struct error *why)
{
    struct preparing p = { 0 };
    fixture_open(f, options);
    assert_true(prepare_is_needed(f->session, options, false));
    assert_ok(prepare_start(&p.prepare, f->session, options, false, prepared, &p, err));
    assert_ok(loop_run_until(f->loop, &p.done, err));
    prepare_free(&p.prepare);
    *why = p.why;
    return -(int)why->code;
}

static int set_up_session(
    struct fixture *f, const char *code, double execute_timeout, struct error *why)
{
    struct session_options options = fixture_options();
    options.setup = code;
    options.rules = true;
    options.execute_timeout = execute_timeout;
    return prepare_session(f, &options, why);
}

static void setup_code_runs_free_of_the_rules(void **state)
{
    struct fixture *f = *state;
    struct error why;
    assert_int_equal(set_up_session(f, "import os\nx = eval('41')", 0, &why), 0);
    assert_string_equal(
        submitted(run(f, "SUBMIT(x=x + 1, os=bool(os))")), "{\"x\": 42, \"os\": true}");
    assert_string_equal(run(f, "import subprocess")->error.type, "ImportError");
}

static void what_fails_in_the_setup_code_is_named(void **state)
{
    static const struct {
        const char *code;
        enum error_code error;
        const char *says;
    } cases[] = {
        { "x = 1\n\n1 / 0", ERROR_CONFIG, "in line 3: ZeroDivisionError: division by zero" },
        { "def f():\n  raise ValueError('é')\nf()", ERROR_CONFIG, "in line 2: ValueError: é" },
        { "x = = 1", ERROR_CONFIG, "in line 1: SyntaxError" },
        { "while True: pass", ERROR_TIMEOUT, "TimeoutError: the cell ran longer than 1 s" },
        { "import os\nos._exit(3)", ERROR_LOST, "running the setup code: " },
    };
    struct fixture *f = *state;
    struct error why;
    for (size_t i = 0; i < array_length(cases); i++) {
        double limit = cases[i].error == ERROR_TIMEOUT ? 1 : 0;
        assert_int_equal(set_up_session(f, cases[i].code, limit, &why), -(int)cases[i].error);
        if (!strstr(why.text, cases[i].says))
            fail_msg("'%s' does not say '%s'", why.text, cases[i].says);
    }
}

/* In this order, and free of the rules; what the source defines is a tool and no variable. */
static void tools_come_after_setup_code_and_values(void **state)
{
    static const char code[] = "import os\n"
                               "def more():\n"
                               "    'Adds what was given.'\n"
                               "    return given['n'] + start + len(eval('[1]'))\n"
                               "def helper(): pass\n";
    static const struct session_datum data[] = { { "given", "{\"n\": 2}", 8 } };
    const struct session_source sources[] = { { "<tools t.py>", code, sizeof code - 1 } };
    struct fixture *f = *state;
    struct error why;
    struct session_options options = fixture_options();
    options.setup = "start = 39";
    options.rules = true;
    options.data = data;
    options.datum_count = 1;
    options.sources = sources;
    options.source_count = 1;
    assert_int_equal(prepare_session(f, &options, &why), 0);
    assert_submits(f, "SUBMIT(n=more(), mine='more' in globals(), other='helper' in globals())",
        "{\"n\": 42, \"mine\": false, \"other\": true}");
    assert_submits(f, "more = 1\ndel more\nSUBMIT(n=more())", "{\"n\": 42}");
}

/* The line is the source's own, whatever else runs before it. */
static void what_fails_in_a_source_of_tools_is_named(void **state)
{
    static const struct {
        const char *code, *says;
    } cases[] = {
        { "x = 1\n1 / 0", "the tools failed in line 2 of <tools t.py>: ZeroDivisionError" },
        { "def f(:", "line 1 of <tools t.py>: SyntaxError" },
        { "def print(x):\n  'Mine.'\n", "ValueError: the name 'print' is already in use" },
        { "def given():\n  'Mine.'\n", "ValueError: the name 'given' is already in use" },
    };
    static const struct session_datum data[] = { { "given", "1", 1 } };
    struct fixture *f = *state;
    struct error why;
    for (size_t i = 0; i < array_length(cases); i++) {
        const struct session_source sources[] = { { "<tools t.py>", cases[i].code,
            strlen(cases[i].code) } };
        struct session_options options = fixture_options();
        options.data = data;
        options.datum_count = 1;
        options.sources = sources;
        options.source_count = 1;
        assert_int_equal(prepare_session(f, &options, &why), -(int)ERROR_CONFIG);
        if (!strstr(why.text, cases[i].says))
            fail_msg("'%s' does not say '%s'", why.text, cases[i].says);
    }
}

/* The session's own directory is where temporary files go, whatever the isolation. */
static void temporary_files_are_the_sessions_own(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    run(f, "import os, tempfile\n"
           "here = os.getcwd()\n"
           "made = os.path.dirname(tempfile.mkdtemp())\n"
           "SUBMIT(same=made == here == os.environ['TMPDIR'] == os.path.expanduser('~'),\n"
           "       own=here == '/tmp' or '/droste-' in os.path.dirname(here))");
    assert_string_equal(submitted(&f->last), "{\"same\": true, \"own\": true}");
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_fits_under_its_cap),
        cmocka_unit_test(hello_speaks_of_rules_only_where_there_are_some),
        T(no_cell_gets_more_time_than_the_cap),
        T(a_session_over_its_cap_does_not_open),
        T(helpers_are_there_unless_they_are_left_out),
        T(rules_hold_where_they_are_asked_for_and_nowhere_else),
        T(setup_code_runs_free_of_the_rules),
        T(what_fails_in_the_setup_code_is_named),
        T(tools_come_after_setup_code_and_values),
        T(what_fails_in_a_source_of_tools_is_named),
        T(temporary_files_are_the_sessions_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
