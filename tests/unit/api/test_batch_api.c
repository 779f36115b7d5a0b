/* A batch of tasks, from its file to the file of its results. */
#include "runs.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/file.h"

static char tasks[64], results[64];
static unsigned events_of_results;
static droste_batch_state end;

static void write_tasks(const char *text)
{
    FILE *f = fopen(tasks, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int batch_setup(void **state)
{
    static const char *const answers[] = { "```repl\nSUBMIT(answer=len(context))\n```",
        "```repl\nSUBMIT(answer=len(context))\n```", "```repl\nSUBMIT(answer=len(context))\n```",
        "```repl\nSUBMIT(answer=len(context))\n```", "```repl\nSUBMIT(answer=len(context))\n```",
        "```repl\nSUBMIT(answer=len(context))\n```" };
    int rc = runs_setup(state);
    runs.replies = answers;
    events_of_results = 0;
    snprintf(tasks, sizeof tasks, "%s/tasks.jsonl", runs.place);
    snprintf(results, sizeof results, "%s/results.jsonl", runs.place);
    return rc;
}

static int batch_teardown(void **state)
{
    unlink(tasks);
    unlink(results);
    return runs_teardown(state);
}

static void on_batch(void *arg, const droste_batch_event *event)
{
    events_of_results += strcmp(event->kind, "result") == 0;
}

static int run_batch(const char *grader, bool again, int64_t max_calls)
{
    droste_batch_options options = { .tasks = tasks,
        .results = results,
        .concurrency = 1,
        .grader = grader,
        .again = again,
        .max_calls = max_calls };
    return droste_batch(runs.d, &options, on_batch, NULL, &end, &runs.err);
}

/* How often the file of results has this text. */
static size_t count_in_results(const char *text)
{
    cleanup_buf struct buf all = { 0 };
    size_t count = 0;
    if (file_read(results, 1 << 20, &all, NULL) < 0)
        return 0;
    for (const char *at = buf_text(&all); (at = strstr(at, text)); at++)
        count++;
    return count;
}

static const char three[] =
    "{\"id\": \"a\", \"question\": \"?\", \"context_text\": \"xx\", \"expected\": 2}\n"
    "{\"id\": \"b\", \"question\": \"?\", \"context_text\": \"xxx\", \"expected\": 4}\n"
    "{\"id\": 7, \"question\": \"?\", \"context_text\": \"\", \"expected\": 0}\n";

static void every_task_has_a_result_and_a_grade(void **state)
{
    write_tasks(three);
    assert_fine(run_batch("exact", false, 0));
    assert_int_equal(end.tasks, 3);
    assert_int_equal(end.answered, 3);
    assert_int_equal(end.graded, 3);
    assert_int_equal(end.passed, 2);
    assert_null(end.stopped);
    assert_int_equal(events_of_results, 3);
    assert_int_equal(count_in_results("\"status\":"), 3);
    assert_int_equal(count_in_results("\"id\":7"), 1);
    assert_int_equal(count_in_results("\"passed\":false"), 1);
}

/* What has a result is not asked again; new tasks are. */
static void a_batch_continues_where_it_stopped(void **state)
{
    write_tasks("{\"id\": \"a\", \"question\": \"?\", \"context_text\": \"xx\"}\n");
    assert_fine(run_batch(NULL, false, 0));
    assert_int_equal(runs.turns, 1);
    write_tasks(three);
    assert_fine(run_batch(NULL, false, 0));
    assert_int_equal(end.earlier, 1);
    assert_int_equal(runs.turns, 3);
    assert_int_equal(count_in_results("\"id\":\"a\""), 1);
}

/* A batch that is left in the middle of a task goes on with that run: its answered calls are not
 * repeated. */
static droste_batch_state left;

static void hold_and_leave(void *arg, const droste_message *m, size_t count, droste_call *call)
{
    runs_model(arg, m, count, call);
    if (runs.held)
        droste_interrupt(runs.d);
}

static void a_run_in_the_middle_is_resumed(void **state)
{
    static const char *const replies[] = {
        "```repl\na = llm_query('one')\nb = llm_query('two')\nSUBMIT(answer=a + b)\n```"
    };
    runs.replies = replies;
    runs.hold = "two";
    write_tasks("{\"id\": \"a\", \"question\": \"?\"}\n");
    droste_set_model(runs.d, hold_and_leave, NULL);
    run_batch(NULL, false, 0);
    left = end;
    assert_string_equal(left.stopped, "interrupt");
    assert_int_equal(left.interrupted, 1);
    assert_int_equal(count_in_results("\"id\""), 0);
    droste_refuse(runs.held, "too late");
    runs.hold = NULL;
    runs_new();
    assert_fine(run_batch(NULL, false, 0));
    assert_int_equal(end.resumed, 1);
    assert_int_equal(end.answered, 1);
    assert_int_equal(count_in_results("ONETWO"), 1);
    assert_int_equal(runs_asked("one"), 1);
    assert_int_equal(runs_asked("two"), 2);
}

/* Before anything is paid. */
static void a_wrong_line_is_named(void **state)
{
    write_tasks("{\"question\": \"?\"}\n{\"question\": 5}\n");
    assert_true(run_batch(NULL, false, 0) < 0);
    assert_non_null(strstr(runs.err.text, "line 2"));
    write_tasks("{\"id\": 1, \"question\": \"?\"}\n{\"id\": 1, \"question\": \"?\"}\n");
    assert_true(run_batch(NULL, false, 0) < 0);
    assert_non_null(strstr(runs.err.text, "line 2"));
    assert_int_equal(runs.turns, 0);
    write_tasks("{\"question\": \"?\", \"context_text\": \"\"}\n");
    assert_fine(run_batch(NULL, false, 0));
}

/* The others have no result, and are begun when the limit is higher. */
static void no_task_begins_without_a_budget(void **state)
{
    write_tasks(three);
    run_batch(NULL, false, 1);
    assert_string_equal(end.stopped, "budget");
    size_t first = count_in_results("\"status\":\"answered\"");
    assert_in_range(first, 0, 2);
    runs_new();
    assert_fine(run_batch(NULL, true, 0));
    assert_null(end.stopped);
    assert_int_equal(end.answered, 3);
}

/* ---- without waiting ---- */

static unsigned ended_batches, started_runs;

static void on_batch_end(void *arg, const droste_batch_state *state, const droste_error *err)
{
    droste_batch_state *out = arg;
    assert_null(err);
    *out = *state;
    ended_batches++;
}

static void on_run_end(void *arg, droste_result *result)
{
    *(bool *)arg = true;
    droste_result_free(result);
}

static int host_start(void *arg, const droste_request *request, droste_error *err)
{
    started_runs++;
    return droste_start(runs.d, request, NULL, err);
}

static int host_stop(void *arg, const droste_request *request)
{
    return 0;
}

/* The limit is the batch's own: the run beside it does not count. */
static void two_batches_and_a_run_go_on_together(void **state)
{
    char more[80];
    droste_batch_state first = { 0 }, second = { 0 };
    bool done = false;
    droste_running_batch *running[2];
    const droste_batch_host host = { .start = host_start, .stop = host_stop };
    snprintf(more, sizeof more, "%s.more", results);
    write_tasks(three);
    const droste_batch_options one = { .tasks = tasks, .results = results, .concurrency = 2 };
    const droste_batch_options two = {
        .tasks = tasks, .results = more, .concurrency = 1, .max_calls = 2
    };
    const droste_request beside = {
        .question = "?", .data = "x", .len = 1, .done = on_run_end, .arg = &done
    };
    ended_batches = started_runs = 0;
    assert_fine(droste_batch_start(
        runs.d, &one, &host, NULL, on_batch_end, &first, &running[0], &runs.err));
    assert_fine(droste_batch_start(
        runs.d, &two, NULL, NULL, on_batch_end, &second, &running[1], &runs.err));
    assert_fine(droste_start(runs.d, &beside, NULL, &runs.err));
    assert_int_equal(droste_batch_state_of(running[0])->tasks, 3);
    while (ended_batches < 2 || !done)
        assert_true(droste_turn(runs.d, 1000, &runs.err) >= 0);
    assert_int_equal(first.answered, 3);
    assert_null(first.stopped);
    assert_int_equal(started_runs, 3);
    assert_string_equal(second.stopped, "budget");
    assert_int_equal(second.answered, 2);
    unlink(more);
}

static int host_check(void *arg, const droste_request *request, droste_error *err)
{
    *err = (droste_error){ .code = DROSTE_ERROR_ARGUMENT, .text = "not here" };
    return strcmp(request->question, arg) == 0 ? -1 : 0;
}

/* Before anything is paid; its twin begins. */
static void a_host_refuses_tasks(void **state)
{
    char question[] = "no";
    droste_batch_state left_over = { 0 };
    droste_running_batch *running = NULL;
    const droste_batch_host host = { .name = "theirs", .check = host_check, .arg = question };
    const droste_batch_options options = { .tasks = tasks, .results = results };
    write_tasks("{\"question\": \"?\", \"context_text\": \"\"}\n{\"question\": \"no\"}\n");
    assert_true(droste_batch_start(runs.d, &options, &host, NULL, on_batch_end, &left_over,
                    &running, &runs.err) < 0);
    assert_string_equal(runs.err.text, "theirs, line 2: not here");
    assert_int_equal(runs.turns, 0);
    write_tasks("{\"question\": \"?\", \"context_text\": \"\"}\n");
    ended_batches = 0;
    assert_fine(droste_batch_start(
        runs.d, &options, &host, NULL, on_batch_end, &left_over, &running, &runs.err));
    while (ended_batches < 1)
        assert_true(droste_turn(runs.d, 1000, &runs.err) >= 0);
    assert_int_equal(left_over.answered, 1);
}

static const droste_request *elsewhere[3];
static unsigned elsewhere_count;

static int elsewhere_start(void *arg, const droste_request *request, droste_error *err)
{
    elsewhere[elsewhere_count++] = request;
    return 0;
}

/* Their usage counts, and the text of another machine is not trusted. */
static void runs_of_another_machine_end_with_what_it_says_of_them(void **state)
{
    static const char answered[] =
        "{\"run\": \"there-1\", \"status\": \"answered\", \"answer\": 1, \"error\": null, \"usage\": "
        "{\"calls\": 4, \"input_tokens\": 5, \"output_tokens\": 6, \"cost\": 0.5, \"seconds\": 2}}";
    static const char *const wrong[] = { "", "[]", "{\"answer\": 1}", "{\"status\": 1}" };
    droste_batch_state last = { 0 };
    droste_running_batch *running = NULL;
    droste_error err = { 0 };
    const droste_batch_host host = {
        .start = elsewhere_start, .stop = host_stop, .is_elsewhere = 1
    };
    const droste_batch_options options = {
        .tasks = tasks, .results = results, .concurrency = 1, .max_calls = 8
    };
    write_tasks(three);
    ended_batches = elsewhere_count = 0;
    assert_fine(droste_batch_start(
        runs.d, &options, &host, NULL, on_batch_end, &last, &running, &runs.err));
    for (unsigned i = 0; i < 2; i++) {
        while (elsewhere_count == i)
            assert_true(droste_turn(runs.d, 1000, &runs.err) >= 0);
        for (size_t j = 0; j < sizeof wrong / sizeof *wrong; j++)
            assert_true(
                droste_batch_take(running, elsewhere[i], wrong[j], strlen(wrong[j]), &err) < 0);
        assert_int_equal(
            droste_batch_take(running, elsewhere[i], answered, strlen(answered), &err), 0);
    }
    while (ended_batches < 1)
        assert_true(droste_turn(runs.d, 1000, &runs.err) >= 0);
    assert_int_equal(elsewhere_count, 2);
    assert_string_equal(last.stopped, "budget");
    assert_int_equal(last.answered, 2);
    assert_int_equal(last.calls, 8);
    assert_true(last.cost == 1.0);
    assert_int_equal(runs.turns, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            every_task_has_a_result_and_a_grade, batch_setup, batch_teardown),
        cmocka_unit_test_setup_teardown(
            a_batch_continues_where_it_stopped, batch_setup, batch_teardown),
        cmocka_unit_test_setup_teardown(
            a_run_in_the_middle_is_resumed, batch_setup, batch_teardown),
        cmocka_unit_test_setup_teardown(a_wrong_line_is_named, batch_setup, batch_teardown),
        cmocka_unit_test_setup_teardown(
            no_task_begins_without_a_budget, batch_setup, batch_teardown),
        cmocka_unit_test_setup_teardown(
            two_batches_and_a_run_go_on_together, batch_setup, batch_teardown),
        cmocka_unit_test_setup_teardown(a_host_refuses_tasks, batch_setup, batch_teardown),
        cmocka_unit_test_setup_teardown(
            runs_of_another_machine_end_with_what_it_says_of_them, batch_setup, batch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
