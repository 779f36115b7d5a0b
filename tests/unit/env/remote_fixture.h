/* tests/unit/env/remote_fixture.h: sessions of a real supervisor, over a transport. */
#pragma once

#include "transport.h"
#include "wait.h"

#include "base/os/file.h"
#include "base/os/tree.h"
#include "session/session.h"
#include "session/submission.h"

#include <sys/stat.h>

struct fixture {
    struct loop *loop;
    struct environment *env;
    struct remote_options options;
};

/* A session and what has come of it. */
struct side {
    struct fixture *f;
    struct session *session;
    struct cell_result last;
    bool done;
    unsigned calls, dropped;
};

static inline int setup_with(void **state, enum link_form form)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->options = (struct remote_options){ .boot.form = form, .boot.eof_ends = true };
    f->options.means[LIMIT_OPEN_FILES] = LIMIT_BY_RLIMIT;
    assert_ok(loop_open(&f->loop, err));
    transport_open(f->loop, &f->options, NULL, &f->env);
    *state = f;
    return 0;
}

/* The same with another program. */
static inline void reopen(struct fixture *f, const char *const *program)
{
    environment_close(f->env);
    transport_open(f->loop, &f->options, program, &f->env);
}

static inline int setup_bare(void **state)
{
    return setup_with(state, LINK_BARE);
}

static inline int setup_text(void **state)
{
    return setup_with(state, LINK_TEXT);
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    environment_close(f->env);
    loop_close(f->loop);
    free(f);
    return 0;
}

static inline void took(void *arg, struct cell_result *result)
{
    struct side *s = arg;
    cell_result_free(&s->last);
    s->last = *result;
    s->done = true;
}

/* Every call is answered at once with its own prompt. */
static inline void called(void *arg, struct session *session, const struct session_call *call)
{
    struct side *s = arg;
    struct frame_parts parts = call->parts;
    struct session_part part = { 0 };
    assert_true(frame_parts_next(&parts, &part.data, &part.len));
    s->calls++;
    assert_ok(session_reply(session, call->id, NULL, &part, 1, err));
}

static inline void dropped(void *arg, struct session *session, uint64_t id)
{
    ((struct side *)arg)->dropped++;
}

static inline struct session_options side_options(void)
{
    struct session_options options;
    session_options_init(&options);
    options.spec.isolation = ISOLATION_PROCESS;
    options.grace = 30; /* a busy machine must not turn an interrupt into a kill */
    return options;
}

static inline void open_side_as(
    struct fixture *f, struct side *s, const struct session_options *options)
{
    static const struct session_events events = { called, dropped, NULL };
    *s = (struct side){ .f = f };
    assert_ok(session_open(f->env, options, &events, s, &s->session, err));
}

static inline void open_side_with(
    struct fixture *f, struct side *s, const char *const *preload, size_t preload_count)
{
    struct session_options options = side_options();
    options.spec.preload = preload;
    options.spec.preload_count = preload_count;
    open_side_as(f, s, &options);
}

static inline void open_side(struct fixture *f, struct side *s)
{
    open_side_with(f, s, NULL, 0);
}

static inline void close_side(struct side *s)
{
    session_close(s->session);
    cell_result_free(&s->last);
}

static inline void start(struct side *s, const char *code, double limit)
{
    struct session_cell cell = { .code = code, .len = strlen(code), .execute_timeout = limit };
    s->done = false;
    assert_ok(session_exec(s->session, &cell, took, s, err));
}

static inline const struct cell_result *wait_done(struct side *s)
{
    assert_ok(loop_run_until(s->f->loop, &s->done, err));
    return &s->last;
}

static inline const struct cell_result *run(struct side *s, const char *code)
{
    start(s, code, 0);
    return wait_done(s);
}

static inline void assert_status(const struct cell_result *r, enum cell_status status)
{
    if (r->status != status)
        fail_msg("status %s (%s: %s; %s; stderr %s), not %s", cell_status_name(r->status),
            r->error.type ? r->error.type : "-", r->error.message ? r->error.message : "-",
            r->reason.text, buf_text(&r->err), cell_status_name(status));
}

/* As JSON; NULL: nothing. */
static inline const char *submitted(const struct cell_result *r)
{
    return submission_json(r->submit, NULL);
}

#define assert_submits(s, code, json)                                                              \
    do {                                                                                           \
        const struct cell_result *result_ = run(s, code);                                          \
        assert_status(result_, CELL_SUBMITTED);                                                    \
        assert_string_equal(submitted(result_), json);                                             \
    } while (0)

enum { LARGE = 20 << 20 };

static inline char *large_text(void)
{
    char *text = malloc(LARGE);
    assert_non_null(text);
    for (size_t i = 0; i < LARGE; i++)
        text[i] = (char)('a' + (i * 2654435761u >> 11) % 26);
    return text;
}

static inline void set_large(struct side *s, const char *text, int fd)
{
    static const char *const name = "x";
    s->done = false;
    assert_ok(session_set(s->session, &name, 1, VALUE_TEXT, text, LARGE, fd, took, s, err));
    assert_status(wait_done(s), CELL_OK);
}

static inline void assert_large_comes_back(struct side *s, const char *text)
{
    const struct cell_result *r = run(s, "SUBMIT(x=x, n=len(x))");
    assert_status(r, CELL_SUBMITTED);
    assert_memory_equal(submitted(r), "{\"x\": \"", 7);
    assert_memory_equal(submitted(r) + 7, text, LARGE);
    assert_string_equal(submitted(r) + 7 + LARGE, "\", \"n\": 20971520}");
}

static inline struct transport *the_transport(struct fixture *f)
{
    return transport_of(f->env);
}

/* All but the supervisor itself. */
static inline size_t count_left(struct fixture *f)
{
    return count_descendants(the_transport(f)->pid);
}

#define B(name) cmocka_unit_test_setup_teardown(name, setup_bare, teardown)
#define T(name)                                                                                    \
    {                                                                                              \
#name ", terminal", name, setup_text, teardown, NULL                                       \
    }
