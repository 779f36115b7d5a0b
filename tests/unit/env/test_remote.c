/* Sessions over a real supervisor at the far end of a carrier: what they mean is what they mean locally, the
 * carrier may be cut at any time, and nothing is left at the end.
 */
#include "carrier.h"

#include "session/session.h"

struct fixture {
    struct loop *loop;
    struct environment *env;
};

/* A session and what has come of it. */
struct side {
    struct fixture *f;
    struct session *session;
    struct cell_result last;
    bool done;
    unsigned calls, dropped;
};

static int setup_with(void **state, enum link_form form)
{
    struct fixture *f = calloc(1, sizeof *f);
    struct remote_options options = { .form = form, .eof_ends = true };
    options.means[LIMIT_OPEN_FILES] = LIMIT_BY_RLIMIT;
    assert_ok(loop_open(&f->loop, err));
    carrier_open(f->loop, &options, NULL, &f->env);
    *state = f;
    return 0;
}

static int setup_bare(void **state)
{
    return setup_with(state, LINK_BARE);
}

static int setup_text(void **state)
{
    return setup_with(state, LINK_TEXT);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    environment_close(f->env);
    loop_close(f->loop);
    free(f);
    return 0;
}

static void took(void *arg, struct cell_result *result)
{
    struct side *s = arg;
    cell_result_free(&s->last);
    s->last = *result;
    s->done = true;
}

/* Every call is answered at once with its own prompt. */
static void called(void *arg, struct session *session, const struct session_call *call)
{
    struct side *s = arg;
    struct frame_parts parts = call->parts;
    struct session_part part = { 0 };
    assert_true(frame_parts_next(&parts, &part.data, &part.len));
    s->calls++;
    assert_ok(session_reply(session, call->id, NULL, &part, 1, err));
}

static void dropped(void *arg, struct session *session, uint64_t id)
{
    ((struct side *)arg)->dropped++;
}

static void open_side(struct fixture *f, struct side *s)
{
    static const struct session_events events = { called, dropped, NULL };
    struct session_options options;
    session_options_init(&options);
    options.spec.isolation = ISOLATION_PROCESS;
    options.grace = 1;
    *s = (struct side){ .f = f };
    assert_ok(session_open(f->env, &options, &events, s, &s->session, err));
}

static void close_side(struct side *s)
{
    session_close(s->session);
    cell_result_free(&s->last);
}

static void start(struct side *s, const char *code, double limit)
{
    struct session_cell cell = { .code = code, .len = strlen(code), .execute_timeout = limit };
    s->done = false;
    assert_ok(session_exec(s->session, &cell, took, s, err));
}

static const struct cell_result *wait_done(struct side *s)
{
    assert_ok(loop_run_until(s->f->loop, &s->done, err));
    return &s->last;
}

static const struct cell_result *run(struct side *s, const char *code)
{
    start(s, code, 0);
    return wait_done(s);
}

static void assert_status(const struct cell_result *r, enum cell_status status)
{
    if (r->status != status)
        fail_msg("status %s (%s: %s; %s; stderr %s), not %s", cell_status_name(r->status),
            r->error.type ? r->error.type : "-", r->error.message ? r->error.message : "-",
            r->reason.text, buf_text(&r->err), cell_status_name(status));
}

#define assert_submits(s, code, json)                                                              \
    do {                                                                                           \
        const struct cell_result *result_ = run(s, code);                                          \
        assert_status(result_, CELL_SUBMITTED);                                                    \
        assert_string_equal(result_->submit, json);                                                \
    } while (0)

static void a_cell_runs_and_variables_stay(void **state)
{
    struct side s;
    open_side(*state, &s);
    run(&s, "x = 41\nprint('a')");
    assert_string_equal(buf_text(&s.last.out), "a\n");
    assert_submits(&s, "SUBMIT(x=x + 1)", "{\"x\": 42}");
    close_side(&s);
}

static void a_call_is_answered(void **state)
{
    struct side s;
    open_side(*state, &s);
    assert_submits(&s, "SUBMIT(a=llm_query('hello'))", "{\"a\": \"hello\"}");
    assert_int_equal(s.calls, 1);
    close_side(&s);
}

#define B(name) cmocka_unit_test_setup_teardown(name, setup_bare, teardown)
#define T(name)                                                                                    \
    {                                                                                              \
#name " (text)", name, setup_text, teardown, NULL                                          \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        B(a_cell_runs_and_variables_stay),
        T(a_cell_runs_and_variables_stay),
        B(a_call_is_answered),
        T(a_call_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
