/* Interrupts at any instant: they stop the cell they are meant for, never another one, and never
 * leave the guest deaf. Deadlines are drawn at random around the time that a cell takes. */
#include "fixture.h"

#include <unistd.h>

enum { ROUNDS = 500 };

static uint32_t seed = 20260801;

static double random_seconds(double most)
{
    seed = seed * 1664525u + 1013904223u;
    return 0.001 + most * (seed >> 8) / (double)(1 << 24);
}

/* Runs the cell again and again under random deadlines; each time it either ends or is interrupted,
 * and the next cell ends as it should. */
static void storm(struct fixture *f, const char *code, double most)
{
    unsigned ended = 0, stopped = 0;
    fixture_open_plain(f);
    run(f, "import threading, time");
    for (int i = 0; i < ROUNDS; i++) {
        char next[64], expected[64];
        const struct cell_result *r = run_limited(f, code, random_seconds(most));
        if (r->status != CELL_OK)
            assert_status(r, CELL_TIMEOUT);
        assert_true(r->alive);
        ended += r->status == CELL_OK;
        stopped += r->status == CELL_TIMEOUT;
        snprintf(next, sizeof next, "SUBMIT(i=%d)", i);
        snprintf(expected, sizeof expected, "{\"i\": %d}", i);
        assert_submits(f, next, expected);
    }
    print_message("%u ended, %u were interrupted\n", ended, stopped);
    assert_true(stopped > 0);
}

static void computing_can_be_interrupted_at_any_instant(void **state)
{
    storm(*state, "t = time.perf_counter()\nwhile time.perf_counter() - t < 0.003: pass", 0.005);
}

static void sleeping_can_be_interrupted_at_any_instant(void **state)
{
    storm(*state, "for _ in range(3): time.sleep(0.001)", 0.005);
}

static void calling_can_be_interrupted_at_any_instant(void **state)
{
    storm(*state,
        "t = time.perf_counter()\n"
        "while time.perf_counter() - t < 0.003: assert llm_query('x') == 'x'",
        0.005);
}

static void writing_can_be_interrupted_at_any_instant(void **state)
{
    storm(*state,
        "t = time.perf_counter()\n"
        "while time.perf_counter() - t < 0.003: print('x' * 1000)",
        0.005);
}

/* The main thread waits for its own reply while other threads read the channel, and hand it on. */
static void threads_that_call_do_not_make_the_guest_deaf(void **state)
{
    storm(*state,
        "stop = time.perf_counter() + 0.003\n"
        "def ask():\n"
        "    while time.perf_counter() < stop: assert llm_query('y') == 'y'\n"
        "ts = [threading.Thread(target=ask) for _ in range(4)]\n"
        "[t.start() for t in ts]\n"
        "while time.perf_counter() < stop: assert llm_query('x') == 'x'\n"
        "[t.join() for t in ts]",
        0.010);
}

/* An interrupt that is as old as the sandbox: the cell waits in the channel while Python starts. */
static void the_first_cell_can_be_interrupted_before_it_begins(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 50; i++) {
        fixture_open_plain(f);
        fixture_start(f, "while True: pass", 0);
        for (int turns = i / 5; turns > 0; turns--)
            usleep(500);
        session_interrupt(f->session);
        assert_ok(loop_run_until(f->loop, &f->done, err));
        assert_status(&f->last, CELL_ERROR);
        assert_true(f->last.alive);
        assert_string_equal(f->last.error.type, "KeyboardInterrupt");
        assert_submits(f, "SUBMIT(x=1)", "{\"x\": 1}");
    }
}

/* Fifty threads call while the main thread is interrupted at random; afterwards none is left
 * waiting, and every answer went to the thread that asked. */
static void fifty_threads_get_their_own_answers(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    run(f, "import threading, time\nwrong, ts = [], []\n"
           "def ask(i):\n"
           "    for n in range(20):\n"
           "        q = '%d/%d' % (i, n)\n"
           "        if llm_query(q) != q: wrong.append(q)\n");
    for (int i = 0; i < 20; i++) {
        run_limited(f,
            "ts = [threading.Thread(target=ask, args=(i,)) for i in range(50)]\n"
            "[t.start() for t in ts]\n"
            "while True: llm_query('main')",
            random_seconds(0.2));
        assert_status(&f->last, CELL_TIMEOUT);
        assert_true(f->last.alive);
        const struct cell_result *r = run(f,
            "[t.join() for t in ts if t.ident]\nSUBMIT(wrong=wrong, alive=sum(t.is_alive() for t "
            "in ts))");
        assert_status(r, CELL_SUBMITTED);
        assert_string_equal(submitted(r), "{\"wrong\": [], \"alive\": 0}");
    }
    assert_int_equal(f->dropped, 0);
}

/* Threads that still wait for an answer when the main thread has stopped calling get it. */
static void an_interrupted_caller_leaves_the_reading_to_others(void **state)
{
    struct fixture *f = *state;
    fixture_open_plain(f);
    run(f, "import threading, time\ndone = []\n"
           "def ask(i):\n    done.append(llm_query(str(i)))\n"
           "    time.sleep(0.001)\n    done.append(llm_query(str(i)))");
    for (int i = 0; i < 100; i++) {
        run_limited(f,
            "done.clear()\n"
            "ts = [threading.Thread(target=ask, args=(i,)) for i in range(8)]\n"
            "[t.start() for t in ts]\n"
            "while True: llm_query('main')",
            random_seconds(0.01));
        assert_status(&f->last, CELL_TIMEOUT);
        const struct cell_result *r =
            run(f, "ts = globals().get('ts', [])\n"
                   "while any(t.is_alive() for t in ts): time.sleep(0.0005)\nSUBMIT(ok=True)");
        assert_status(r, CELL_SUBMITTED);
    }
}

/* A deadline that is over before the code is where it should be proves nothing: the next is longer.
 */
static const double limits[] = { 0.3, 3, 30 };

/* Python only prints what is raised in a destructor, and goes on. */
static void an_interrupt_that_python_swallows_is_repeated(void **state)
{
    struct fixture *f = *state;
    struct session_options options = fixture_options();
    bool is_swallowed = false;
    options.grace = 10; /* it comes again after half of this */
    fixture_open(f, &options);
    run(f, "import time\nclass D:\n    def __del__(self): time.sleep(1e9)");
    for (size_t i = 0; i < array_length(limits) && !is_swallowed; i++) {
        const struct cell_result *r =
            run_limited(f, "x = 1\nD()\nx = 2\nwhile True: time.sleep(0.001)", limits[i]);
        assert_status(r, CELL_TIMEOUT);
        assert_true(r->alive);
        is_swallowed = strstr(buf_text(&r->err), "KeyboardInterrupt");
    }
    assert_true(is_swallowed);
    assert_submits(f, "SUBMIT(x=x)", "{\"x\": 2}");
}

static void a_cell_may_catch_the_interrupt_and_end_in_order(void **state)
{
    struct fixture *f = *state;
    bool is_caught = false;
    fixture_open_plain(f);
    run(f, "import time\nkept = 0");
    for (size_t i = 0; i < array_length(limits) && !is_caught; i++) {
        const struct cell_result *r = run_limited(
            f, "try:\n    time.sleep(1e9)\nexcept KeyboardInterrupt:\n    kept = 7", limits[i]);
        assert_status(r, CELL_TIMEOUT);
        assert_true(r->alive);
        is_caught = strcmp(submitted(run(f, "SUBMIT(kept=kept)")), "{\"kept\": 7}") == 0;
    }
    assert_true(is_caught);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(computing_can_be_interrupted_at_any_instant),
        T(sleeping_can_be_interrupted_at_any_instant),
        T(calling_can_be_interrupted_at_any_instant),
        T(writing_can_be_interrupted_at_any_instant),
        T(threads_that_call_do_not_make_the_guest_deaf),
        T(the_first_cell_can_be_interrupted_before_it_begins),
        T(fifty_threads_get_their_own_answers),
        T(an_interrupted_caller_leaves_the_reading_to_others),
        T(an_interrupt_that_python_swallows_is_repeated),
        T(a_cell_may_catch_the_interrupt_and_end_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
