/* The public interface: what an embedding program relies on. */
#include "../test.h"

#include <signal.h>
#include <unistd.h>

#include "droste.h"

#define API_ERROR fixture.err
#include "assert_fine.h"

struct fixture {
    droste *d;
    droste_session *session;
    droste_error err;
};

static struct fixture fixture;

static int setup(void **state)
{
    fixture = (struct fixture){ 0 };
    assert_fine(droste_new(&fixture.d, &fixture.err));
    assert_fine(droste_set(fixture.d, "database", "none", &fixture.err));
    return 0;
}

static int teardown(void **state)
{
    droste_free(fixture.d); /* its sessions too */
    return 0;
}

static void open_session(void)
{
    assert_fine(droste_session_open(fixture.d, &fixture.session, &fixture.err));
}

/* Runs a cell that must end with this status; the result is the caller's. */
static droste_result *run(const char *code, const char *status)
{
    droste_result *r = NULL;
    assert_fine(droste_session_exec(fixture.session, code, strlen(code), 0, &r, &fixture.err));
    if (strcmp(droste_result_status(r), status) != 0)
        fail_msg("%s, not %s", droste_result_json(r, NULL), status);
    return r;
}

static void ring(int signal)
{
    droste_interrupt(fixture.d);
}

/* The cell runs: it has said something. */
static void interrupt_what_speaks(void *arg, int stream, const char *data, size_t len)
{
    signal(SIGALRM, ring);
    raise(SIGALRM);
}

/* An interrupt stops the cell that runs, from a signal handler, and the variables stay. */
static void an_interrupt_stops_the_cell_and_keeps_the_session(void **state)
{
    open_session();
    droste_session_on_output(fixture.session, interrupt_what_speaks, NULL);
    droste_result *r = run("x = 2\nprint('on', flush=True)\nwhile True: pass", "error");
    droste_session_on_output(fixture.session, NULL, NULL);
    assert_non_null(strstr(droste_result_traceback(r), "KeyboardInterrupt"));
    assert_true(droste_result_alive(r));
    droste_result_free(r);
    r = run("SUBMIT(x=x)", "submitted");
    assert_string_equal(droste_result_submit(r, NULL), "{\"x\": 2}");
    droste_result_free(r);
}

/* The twin: an interrupt while nothing runs is not kept for what runs next. */
static void an_interrupt_while_nothing_runs_hits_nothing(void **state)
{
    open_session();
    droste_interrupt(fixture.d);
    droste_result_free(run("import time; time.sleep(0.1); SUBMIT(1)", "submitted"));
    droste_interrupt(fixture.d);
    droste_result_free(run("SUBMIT(2)", "submitted"));
}

static void answer(void *arg, const droste_message *messages, size_t count, droste_call *call)
{
    static const char text[] = "```repl\nSUBMIT(answer=len(context))\n```";
    droste_answer(call, text, sizeof text - 1);
}

/* A stale interrupt does not cancel a run either; runs of one context follow each other. */
static void runs_follow_each_other(void **state)
{
    droste_set_model(fixture.d, answer, NULL);
    assert_fine(droste_set(fixture.d, "model", "callback", &fixture.err));
    for (int i = 0; i < 3; i++) {
        droste_result *r = NULL;
        droste_interrupt(fixture.d);
        assert_fine(droste_run(fixture.d, "How long?", NULL, NULL, NULL, &r, &fixture.err));
        assert_string_equal(droste_result_status(r), "answered");
        assert_string_equal(droste_result_answer(r, NULL), "0");
        droste_result_free(r);
    }
}

/* A session that ended is told apart from a cell that failed, and a new one can be opened. */
static void a_dead_session_says_so(void **state)
{
    open_session();
    droste_result *r = run("import os; os._exit(3)", "killed");
    assert_false(droste_result_alive(r));
    droste_result_free(r);
    assert_true(droste_session_exec(fixture.session, "1", 1, 0, &r, &fixture.err) < 0);
    assert_int_equal(fixture.err.code, DROSTE_ERROR_LOST);
    droste_session_close(fixture.session);
    open_session();
    droste_result_free(run("SUBMIT(1)", "submitted"));
}

/* Ready sandboxes are used once: what one session left behind, the next does not see. */
static void the_pool_gives_fresh_sandboxes(void **state)
{
    assert_fine(droste_set(fixture.d, "pool", "2", &fixture.err));
    for (int i = 0; i < 8; i++) {
        open_session();
        droste_result_free(run("import builtins, os, time\n"
                               "assert not hasattr(builtins, 'mark') and os.listdir('/tmp') == []\n"
                               "builtins.mark = open('/tmp/mark', 'w').write('x')\n"
                               "time.sleep(0.02); SUBMIT(1)",
            "submitted"));
        droste_session_close(fixture.session);
    }
}

/* A pool member was built for other limits: it is not given to a session that asks for these. */
static void the_pool_honours_the_limits_that_were_asked_for(void **state)
{
    static const char limits[] = "import resource\n"
                                 "SUBMIT(resource.getrlimit(resource.RLIMIT_NOFILE)[0])";
    static const char *const asked[] = { "64", "128", "64" };
    assert_fine(droste_set(fixture.d, "pool", "2", &fixture.err));
    for (size_t i = 0; i < 3; i++) {
        char expected[32];
        snprintf(expected, sizeof expected, "{\"output\": %s}", asked[i]);
        assert_fine(droste_set(fixture.d, "open-files", asked[i], &fixture.err));
        open_session();
        droste_result_free(run("import time; time.sleep(0.05); SUBMIT(1)", "submitted"));
        droste_result *r = run(limits, "submitted");
        assert_string_equal(droste_result_submit(r, NULL), expected);
        droste_result_free(r);
        droste_session_close(fixture.session);
    }
}

/* Contexts that were added are bound under all their names, until they are taken back. */
static void added_contexts_are_bound(void **state)
{
    char path[] = "/tmp/droste-test-XXXXXX", context[80];
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "text", 4) == 4);
    close(fd);
    snprintf(context, sizeof context, "mail=%s", path);
    assert_fine(droste_context_add(fixture.d, path, &fixture.err));
    assert_fine(droste_context_add(fixture.d, context, &fixture.err));
    open_session();
    assert_fine(droste_session_load_contexts(fixture.session, &fixture.err));
    assert_null(droste_session_notice(fixture.session));
    droste_result_free(
        run("SUBMIT(1 / (context == context_0 == context_1 == mail == 'text'))", "submitted"));
    droste_session_close(fixture.session);
    droste_context_clear(fixture.d);
    open_session();
    assert_fine(droste_session_load_contexts(fixture.session, &fixture.err));
    droste_result_free(run("mail", "error"));
    unlink(path);
}

/* What cannot be a context is refused where it is added, and is not kept. */
static void contexts_that_cannot_be_are_refused(void **state)
{
    static const char *const bad[] = { "context=x", "a-b=x", "SUBMIT=x", "a=" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(
            droste_context_add(fixture.d, bad[i], &fixture.err), -DROSTE_ERROR_ARGUMENT);
        assert_int_equal(fixture.err.code, DROSTE_ERROR_ARGUMENT);
    }
    open_session();
    assert_fine(droste_session_load_contexts(fixture.session, &fixture.err));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(an_interrupt_stops_the_cell_and_keeps_the_session),
        T(an_interrupt_while_nothing_runs_hits_nothing),
        T(runs_follow_each_other),
        T(a_dead_session_says_so),
        T(added_contexts_are_bound),
        T(contexts_that_cannot_be_are_refused),
        T(the_pool_gives_fresh_sandboxes),
        T(the_pool_honours_the_limits_that_were_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
