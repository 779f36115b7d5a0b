/* A run whose record is kept elsewhere, too, goes on in another place without asking anything
 * again; and it neither asks nor ends before what came before is kept. */
#include "runs.h"

#include <sys/stat.h>

static struct {
    char *units;
    size_t len;
    droste_running *running; /* has given a unit that is not yet said to be kept */
    bool is_broken;          /* nothing is kept any more */
} kept;

static const char *const replies[] = { "```repl\na = llm_query('one')\nb = llm_query('two')\n```",
    "```repl\nSUBMIT(answer=[a, b])\n```" };

static void append(void *arg, droste_running *run, const void *data, size_t len)
{
    assert_null(kept.running);
    kept.running = run;
    if (kept.is_broken)
        return;
    kept.units = realloc(kept.units, kept.len + len);
    memcpy(kept.units + kept.len, data, len);
    kept.len += len;
}

static void turn(void)
{
    assert_fine(droste_turn(runs.d, 200, &runs.err));
    if (kept.running && !kept.is_broken) {
        droste_running *run = kept.running;
        kept.running = NULL;
        droste_log_kept(run);
    }
}

static droste_running *begin(const char *resume)
{
    static const droste_log log = { .append = append };
    droste_running *running = NULL;
    droste_request q = { .question = resume ? NULL : "What?",
        .resume = resume,
        .event = runs_event,
        .done = runs_done,
        .log = &log };
    runs.status[0] = '\0';
    assert_fine(droste_start(runs.d, &q, &running, &runs.err));
    return running;
}

static void until_asked(const char *prompt)
{
    runs.hold = prompt;
    while (!runs.held && !runs.status[0])
        turn();
    runs.hold = NULL;
    assert_non_null(runs.held);
}

static void until_done(void)
{
    while (!runs.status[0])
        turn();
}

/* As on another machine: another record, nothing in memory. */
static void leave(droste_running *running)
{
    droste_error lost = { .text = "another has it" };
    droste_log_lost(running, &lost);
    until_done();
    assert_string_equal(runs.status, "interrupted");
    assert_non_null(strstr(runs.why, "another has it"));
    droste_refuse(runs.held, "too late");
    kept.running = NULL;
    runs_teardown(NULL);
    assert_int_equal(mkdir(runs.place, 0700), 0);
    runs.d = NULL;
    runs_new();
}

static int check_end(void *arg, const droste_record_run *run, droste_error *err)
{
    assert_string_equal(run->status, "answered");
    assert_int_equal(run->calls, 4);
    return 0;
}

static void a_run_goes_on_in_another_record(void **state)
{
    runs.replies = replies;
    droste_running *running = begin(NULL);
    until_asked("two");
    leave(running);
    assert_fine(droste_record_import(runs.d, runs.run, kept.units, kept.len, &runs.err));
    begin(runs.run);
    until_done();
    assert_string_equal(runs.status, "answered");
    assert_string_equal(runs.answer, "[\"ONE\",\"TWO\"]");
    assert_int_equal(runs_asked("one"), 1);
    assert_int_equal(runs_asked("two"), 2); /* it had no answer */
    assert_int_equal(runs.turns, 2);
    /* the whole log is that of a run that has ended */
    assert_fine(droste_record_import(runs.d, runs.run, kept.units, kept.len, &runs.err));
    droste_record *record = NULL;
    assert_fine(droste_record_open(runs.d, &record, &runs.err));
    assert_fine(droste_record_get(record, runs.run, check_end, NULL, &runs.err));
    droste_record_close(record);
}

static int no_run(void *arg, const droste_record_run *run, droste_error *err)
{
    fail_msg("the run %s is still there", run->id);
    return -1;
}

/* A program whose run goes on elsewhere keeps no copy, and may say so twice. */
static void a_copy_is_removed_by_an_import_of_nothing(void **state)
{
    runs.replies = replies;
    begin(NULL);
    until_done();
    droste_record *record = NULL;
    assert_fine(droste_record_open(runs.d, &record, &runs.err));
    assert_fine(droste_record_get(record, runs.run, check_end, NULL, &runs.err));
    assert_fine(droste_record_import(runs.d, runs.run, NULL, 0, &runs.err));
    assert_fine(droste_record_import(runs.d, runs.run, NULL, 0, &runs.err));
    assert_int_equal(
        droste_record_get(record, runs.run, no_run, NULL, &runs.err), -(int)DROSTE_ERROR_NOT_FOUND);
    droste_record_close(record);
}

/* Nothing is asked while the log cannot be kept; it goes on as soon as it can. */
static void nothing_is_asked_before_its_record_is_kept(void **state)
{
    runs.replies = replies;
    begin(NULL);
    until_asked("one");
    assert_int_equal(runs.asked_count, 1);
    kept.is_broken = true;
    droste_answer(runs.held, "ONE", 3);
    for (int i = 0; i < 5; i++)
        turn();
    assert_int_equal(runs.asked_count, 1);
    kept.is_broken = false;
    until_done();
    assert_int_equal(runs.asked_count, 2);
    assert_string_equal(runs.status, "answered");
}

/* The end of a run is not reported before it is kept. A suspension then leaves it open. */
static void an_end_that_is_not_kept_is_none(void **state)
{
    static const char *const once[] = { "```repl\nx = llm_query('last')\nSUBMIT(answer=x)\n```" };
    runs.replies = once;
    droste_running *running = begin(NULL);
    until_asked("last");
    kept.is_broken = true;
    droste_answer(runs.held, "LAST", 4);
    for (int i = 0; i < 10; i++)
        turn();
    assert_string_equal(runs.status, "");
    droste_suspend(running);
    until_done();
    assert_string_equal(runs.status, "interrupted");
}

static int setup(void **state)
{
    memset(&kept, 0, sizeof kept);
    return runs_setup(state);
}

static int teardown(void **state)
{
    free(kept.units);
    return runs_teardown(state);
}

#define log_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        log_test(a_run_goes_on_in_another_record),
        log_test(a_copy_is_removed_by_an_import_of_nothing),
        log_test(nothing_is_asked_before_its_record_is_kept),
        log_test(an_end_that_is_not_kept_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
