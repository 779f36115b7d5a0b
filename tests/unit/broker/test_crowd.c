/* Many sandboxes that attack beside an honest one, in one host process: tests/attack/crowd.h. */
#include "../test.h"

#include <inttypes.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "../../attack/crowd.h"
#include "base/cleanup.h"
#include "base/clock.h"

enum {
    CALLERS = 12, /* more than may take much of the host's time without waiting */
    ATTACKERS = 24,
    CELLS = 300,           /* of the honest session, at least */
    HEAP_GROWTH = 1 << 20, /* bytes that the host may hold afterwards and did not before */
    RESIDENT_GROWTH =
        3 << 20,      /* bytes of memory that it may keep for more of the same; else some 6 MiB */
    PATIENCE_S = 100, /* then a test has failed, and not the machine */
};

struct fixture {
    struct loop *loop;
    struct environment *env;
    struct session *honest;
    struct cell_result last;
    bool done;
    uint64_t n;
    struct crowd crowd;
};

static void honest_done(void *arg, struct cell_result *result)
{
    struct fixture *f = arg;
    cell_result_free(&f->last);
    f->last = *result;
    f->done = true;
}

static void honest_cell(struct fixture *f, const char *code)
{
    struct session_cell cell = { .code = code, .len = strlen(code), .execute_timeout = 0 };
    f->done = false;
    assert_ok(session_exec(f->honest, &cell, honest_done, f, err));
    assert_ok(loop_run_until(f->loop, &f->done, err));
}

static void honest_step(struct fixture *f)
{
    char expected[64], output[64];
    snprintf(expected, sizeof expected, "{\"n\": %" PRIu64 "}", ++f->n);
    snprintf(output, sizeof output, "cell %" PRIu64 "\n", f->n);
    honest_cell(f, "n += 1; print('cell', n); SUBMIT(n=n)");
    assert_int_equal(f->last.status, CELL_SUBMITTED);
    assert_string_equal(submission_json(f->last.submit, NULL), expected);
    assert_string_equal(buf_text(&f->last.out), output);
}

static struct session_options limited(void)
{
    struct session_options options;
    session_options_init(&options);
    options.spec.isolation = ISOLATION_FULL;
    options.spec.limits.memory = 200 << 20;
    options.spec.limits.processes = 20;
    options.spec.limits.open_files = 200;
    options.spec.limits.tmp_size = 4 << 20;
    options.execute_timeout = 1;
    options.grace = 0.4;
    return options;
}

static int setup(void **state)
{
    static const struct session_events none = { 0 };
    struct session_options options = limited();
    struct fixture *f = calloc(1, sizeof *f);
    assert_ok(loop_open(&f->loop, err));
    assert_ok(environment_open("local", f->loop, NULL, &f->env, err));
    assert_ok(session_open(f->env, &options, &none, f, &f->honest, err));
    honest_cell(f, "n = 0");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    crowd_close(&f->crowd);
    session_close(f->honest);
    environment_close(f->env);
    loop_close(f->loop);
    cell_result_free(&f->last);
    free(f);
    return 0;
}

static bool attack_is_over(const struct attacker *a)
{
    return (a->cells > 1 && a->done) || !session_is_alive(a->session);
}

static bool all_are_over(const struct crowd *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (!attack_is_over(&c->attackers[i]))
            return false;
    return true;
}

/* Whatever it did, the host has a word for it, and so has every later call. */
static void assert_ended_in_order(struct attacker *a)
{
    const struct cell_result *r = &a->last;
    bool alive = session_is_alive(a->session);
    if (a->refused.code != ERROR_NONE)
        fail_msg("%s: %s", a->attack->name, a->refused.text);
    if (r->status == CELL_LOST)
        fail_msg("%s: nothing is known of its cell", a->attack->name);
    if (r->status == CELL_KILLED && (!r->killed[0] || r->reason.code == ERROR_NONE))
        fail_msg("%s: killed, and nobody knows why", a->attack->name);
    if (a->attack->ends && alive)
        fail_msg("%s: its sandbox is still there", a->attack->name);
    if (!alive) {
        struct session_cell cell = { .code = "1", .len = 1 };
        struct error why = { 0 };
        assert_true(session_exec(a->session, &cell, NULL, NULL, &why) < 0);
        assert_true(
            why.code == ERROR_TIMEOUT || why.code == ERROR_LOST || why.code == ERROR_PROTOCOL);
    }
}

/* The processes of closed sandboxes are killed, which takes them a moment, and the zygote's answer
 * to a request that nobody waits for any more may still be under way. There may be less than
 * before: a standby counts as a process until it has its name. */
static void look_when_they_are_gone(
    struct fixture *f, const struct crowd_host *before, struct crowd_host *after)
{
    uint64_t start = clock_ns();
    do {
        usleep(10000);
        honest_step(f);
        crowd_look(after);
    } while ((after->processes > before->processes || after->descriptors > before->descriptors) &&
             clock_seconds_since(start) < PATIENCE_S);
    assert_in_range(after->processes, 0, before->processes);
    assert_in_range(after->descriptors, 0, before->descriptors);
}

/* Until all of them have had their time; how many calls they have made. */
static size_t run_attackers(struct fixture *f, const struct session_options *options)
{
    uint64_t start = clock_ns();
    assert_ok(crowd_open(&f->crowd, f->loop, f->env, options, ATTACKERS, NULL, false, err));
    for (int i = 0; i < CELLS || !all_are_over(&f->crowd); i++) {
        honest_step(f);
        if (clock_seconds_since(start) > PATIENCE_S)
            fail_msg("some attackers are not over after %d s", PATIENCE_S);
    }
    for (size_t i = 0; i < f->crowd.count; i++)
        assert_ended_in_order(&f->crowd.attackers[i]);
    size_t calls = (size_t)f->crowd.calls;
    crowd_close(&f->crowd);
    return calls;
}

static void an_honest_session_is_right_among_attackers_and_the_host_is_as_before(void **state)
{
    struct fixture *f = *state;
    struct crowd_host before, after;
    struct session_options options = limited();
    size_t calls = 0;
    for (int i = 0; i < CELLS; i++)
        honest_step(f);
    crowd_look(&before);
    /* On a busy machine the time of those that call may be over before they have: then there is
     * more of it. */
    for (; calls == 0 && options.execute_timeout < 30; options.execute_timeout *= 5)
        calls = run_attackers(f, &options);
    assert_true(calls > 0);
    look_when_they_are_gone(f, &before, &after);
    assert_int_equal(after.threads, before.threads);
    assert_int_equal(after.children, before.children);
    assert_in_range(after.mounts, 0, before.mounts); /* others may remove what one is on */
    if (after.heap > before.heap + HEAP_GROWTH)
        fail_msg("the host's heap grew from %zu to %zu bytes", before.heap, after.heap);
#ifndef __SANITIZE_ADDRESS__ /* which keeps freed memory */
    if (after.rss > before.rss + RESIDENT_GROWTH)
        fail_msg("the host kept memory: %zu bytes of it before, %zu after", before.rss, after.rss);
#endif
    for (int i = 0; i < CELLS; i++)
        honest_step(f);
}

/* What is under attack is closed in the middle of it. */
static void attackers_can_be_closed_at_any_moment(void **state)
{
    struct fixture *f = *state;
    struct crowd_host before, after;
    struct session_options options = limited();
    for (int i = 0; i < CELLS; i++) /* the first may be over before all is told of its sandbox */
        honest_step(f);
    crowd_look(&before);
    for (int round = 0; round < 4; round++) {
        assert_ok(crowd_open(&f->crowd, f->loop, f->env, &options, ATTACKERS, NULL, true, err));
        for (int i = 0; i < 50 * round; i++)
            honest_step(f);
        crowd_close(&f->crowd);
    }
    look_when_they_are_gone(f, &before, &after);
    assert_true(after.heap <= before.heap + HEAP_GROWTH);
}

/* ---- the host's time ---- */

struct caller {
    struct session *session;
    unsigned heard, *in_round;
};

/* A call that keeps the host for a while. */
static void answer_slowly(void *arg, struct session *s, const struct session_call *call)
{
    struct caller *c = arg;
    struct session_part part = { "yes", 3 };
    uint64_t begun = clock_ns();
    while (clock_ns() - begun < 400000)
        ;
    c->heard++;
    ++*c->in_round;
    assert_ok(session_reply(s, call->id, NULL, &part, 1, err));
}

static void no_call_is_dropped(void *arg, struct session *s, uint64_t id)
{
}

static void caller_done(void *arg, struct cell_result *result)
{
    cell_result_free(result);
}

static unsigned heard_least(const struct caller *callers)
{
    unsigned least = UINT_MAX;
    for (size_t i = 0; i < CALLERS; i++)
        least = callers[i].heard < least ? callers[i].heard : least;
    return least;
}

/* Guests that call all the time have the host one after the other, and it looks at everybody else
 * in between: in a round of its loop one of them is heard, and all in time. */
static void who_calls_without_end_leaves_the_host_to_others(void **state)
{
    static const struct session_events events = { answer_slowly, no_call_is_dropped, NULL };
    static const char code[] = "while True: llm_query('x')";
    struct session_cell cell = { .code = code, .len = sizeof code - 1, .execute_timeout = 0 };
    struct session_options options = limited();
    struct fixture *f = *state;
    struct caller callers[CALLERS] = { 0 };
    unsigned in_round = 0;
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i].in_round = &in_round;
        assert_ok(session_open(f->env, &options, &events, &callers[i], &callers[i].session, err));
        assert_ok(session_exec(callers[i].session, &cell, caller_done, NULL, err));
    }
    while (heard_least(callers) < 4) /* each has taken more than a millisecond */
        uv_run(&f->loop->uv, UV_RUN_ONCE);
    for (unsigned enough = heard_least(callers) + 10; heard_least(callers) < enough;) {
        in_round = 0;
        uv_run(&f->loop->uv, UV_RUN_NOWAIT);
        assert_in_range(in_round, 0, 1);
    }
    for (size_t i = 0; i < CALLERS; i++)
        session_close(callers[i].session);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* Other programs of this machine mount and unmount, too: as root, the host has its own mounts. */
static int setup_mounts(void **state)
{
    if (unshare(CLONE_NEWNS) == 0)
        return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(an_honest_session_is_right_among_attackers_and_the_host_is_as_before),
        T(attackers_can_be_closed_at_any_moment),
        T(who_calls_without_end_leaves_the_host_to_others),
    };
    return cmocka_run_group_tests(tests, setup_mounts, NULL);
}
