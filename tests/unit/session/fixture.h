/* A session over a real local sandbox, for the tests of this floor.
 *
 * The isolation is the one that DROSTE_TEST_ISOLATION names, `full` by default; a test that is
 * about one of them says so in its options.
 */
#pragma once

#include "../test.h"

#include "base/cleanup.h"
#include "session/session.h"

struct fixture {
    struct loop *loop;
    struct environment *env;
    struct session *session;
    struct cell_result last; /* of the last operation */
    bool done;
    unsigned call_count, dropped;
};

static inline void fixture_took(void *arg, struct cell_result *result)
{
    struct fixture *f = arg;
    cell_result_free(&f->last);
    f->last = *result;
    f->done = true;
}

/* Every call is answered at once with its own prompt. */
static inline void fixture_called(void *arg, struct session *s, const struct session_call *call)
{
    struct fixture *f = arg;
    struct frame_parts parts = call->parts;
    struct session_part part = { 0 };
    assert_true(frame_parts_next(&parts, &part.data, &part.len));
    f->call_count++;
    assert_ok(session_reply(s, call->id, NULL, &part, 1, err));
}

static inline void fixture_dropped(void *arg, struct session *s, uint64_t id)
{
    ((struct fixture *)arg)->dropped++;
}

static inline int fixture_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_ok(loop_open(&f->loop, err));
    assert_ok(environment_open("local", f->loop, NULL, &f->env, err));
    *state = f;
    return 0;
}

static inline void fixture_close(struct fixture *f)
{
    session_close(f->session);
    f->session = NULL;
}

static inline int fixture_teardown(void **state)
{
    struct fixture *f = *state;
    fixture_close(f);
    environment_close(f->env);
    loop_close(f->loop);
    cell_result_free(&f->last);
    free(f);
    return 0;
}

static inline enum isolation fixture_isolation(void)
{
    enum isolation isolation = ISOLATION_FULL;
    const char *word = getenv("DROSTE_TEST_ISOLATION");
    if (word)
        assert_ok(isolation_parse(word, &isolation, err));
    return isolation;
}

static inline struct session_options fixture_options(void)
{
    struct session_options options;
    session_options_init(&options);
    options.spec.isolation = fixture_isolation();
    assert_ok(user_range_parse("auto", &options.spec.users, err));
    options.grace = 30; /* a busy machine must not turn an interrupt into a kill */
    return options;
}

/* Opens the fixture's session, after closing the one before. */
static inline void fixture_open(struct fixture *f, const struct session_options *options)
{
    static const struct session_events events = { fixture_called, fixture_dropped, NULL };
    fixture_close(f);
    assert_ok(session_open(f->env, options, &events, f, &f->session, err));
}

static inline void fixture_open_plain(struct fixture *f)
{
    struct session_options options = fixture_options();
    fixture_open(f, &options);
}

/* Starts a cell with a deadline in seconds (0: none). */
static inline void fixture_start(struct fixture *f, const char *code, double limit)
{
    struct session_cell cell = { .code = code, .len = strlen(code), .execute_timeout = limit };
    f->done = false;
    assert_ok(session_exec(f->session, &cell, fixture_took, f, err));
}

static inline const struct cell_result *run_limited(
    struct fixture *f, const char *code, double limit)
{
    fixture_start(f, code, limit);
    assert_ok(loop_run_until(f->loop, &f->done, err));
    return &f->last;
}

static inline const struct cell_result *run(struct fixture *f, const char *code)
{
    return run_limited(f, code, 0);
}

/* Runs the loop until `seconds` have passed. */
static inline void fixture_pass(struct fixture *f, double seconds)
{
    uint64_t start = uv_hrtime();
    while ((double)(uv_hrtime() - start) / 1e9 < seconds) {
        loop_turn(f->loop, 0);
        usleep(1000);
    }
}

static inline void assert_status(const struct cell_result *r, enum cell_status status)
{
    if (r->status != status)
        fail_msg("status %s (%s: %s; %s; stderr %s), not %s", cell_status_name(r->status),
            r->error.type ? r->error.type : "-", r->error.message ? r->error.message : "-",
            r->reason.text, buf_text(&r->err), cell_status_name(status));
}

/* What it submitted, as JSON; NULL: nothing. */
static inline const char *submitted(const struct cell_result *r)
{
    return submission_json(r->submit, NULL);
}

/* Runs code that must submit exactly this JSON. */
#define assert_submits(f, code, json)                                                              \
    do {                                                                                           \
        const struct cell_result *result_ = run(f, code);                                          \
        assert_status(result_, CELL_SUBMITTED);                                                    \
        assert_string_equal(submitted(result_), json);                                             \
    } while (0)

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
