/* The cache: hits, misses, and identical concurrent calls. */
#include "fixture.h"

#include <signal.h>
#include <sys/resource.h>

struct place {
    struct loop *loop;
    char path[64];
    unsigned asked; /* calls that reached the model */
    struct lm_call *kept[8];
    bool keep;
    bool deduplicate; /* instead of a cache */
};

static int with_directory(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    assert_ok(loop_open(&p->loop, err));
    snprintf(p->path, sizeof p->path, "/tmp/droste-test-cache-%d", getpid());
    unlink(p->path);
    *state = p;
    return 0;
}

static int with_deduplication(void **state)
{
    int rc = with_directory(state);
    ((struct place *)*state)->deduplicate = true;
    return rc;
}

static int without_directory(void **state)
{
    struct place *p = *state;
    unlink(p->path);
    loop_close(p->loop);
    free(p);
    return 0;
}

/* Answers with the number of the question, or keeps the call. */
static void model(void *arg, const struct lm_request *request, struct lm_call *call)
{
    struct place *p = arg;
    char text[64];
    struct lm_usage usage = { 10, 20, false, 0 };
    static const struct error refused = { .code = ERROR_MODEL_RATE, .text = "not now" };
    p->asked++;
    if (p->keep) {
        p->kept[p->asked - 1] = call;
        return;
    }
    int n = snprintf(text, sizeof text, "answer %u \"\xC3\xA9\"\n", p->asked);
    if (strncmp(request->messages[0].text, "refuse", 6) == 0)
        lm_answer(call, NULL, 0, NULL, &refused);
    else
        lm_answer(call, text, (size_t)n, &usage, NULL);
}

static struct lm *open_model(struct place *p, const char *cache)
{
    struct lm_options options = { .model = "callback",
        .callback = model,
        .callback_arg = p,
        .cache = p->deduplicate ? NULL : cache,
        .deduplicate = p->deduplicate };
    return open_lm(p->loop, &options);
}

static void says(
    struct place *p, struct lm *lm, const char *text, const char *answer, unsigned attempts)
{
    cleanup_answer struct answer a = { 0 };
    ask(p->loop, lm, text, &a);
    assert_answered(&a, answer);
    assert_int_equal(a.attempts, attempts);
    assert_int_equal(a.usage.input_tokens, attempts ? 10 : 0);
    assert_int_equal(a.usage.output_tokens, attempts ? 20 : 0);
    assert_string_equal(a.finish, "stop");
    if (!attempts)
        assert_string_equal(buf_text(&a.deltas), answer);
}

#define FIRST  "answer 1 \"\xC3\xA9\"\n"
#define SECOND "answer 2 \"\xC3\xA9\"\n"
#define THIRD  "answer 3 \"\xC3\xA9\"\n"

/* The same call gets the same answer and costs nothing, also after the program was started anew. */
static void a_cached_answer_is_returned(void **state)
{
    struct place *p = *state;
    struct lm *lm = open_model(p, p->path);
    says(p, lm, "one", FIRST, 1);
    says(p, lm, "one", FIRST, 0);
    says(p, lm, "two", SECOND, 1);
    lm_close(lm);
    lm = open_model(p, p->path);
    says(p, lm, "two", SECOND, 0);
    says(p, lm, "one", FIRST, 0);
    lm_close(lm);
    assert_int_equal(p->asked, 2);
}

/* Without a cache, the same call is asked again: models answer differently, on purpose. */
static void without_a_cache_the_same_call_is_asked_again(void **state)
{
    struct place *p = *state;
    struct lm *lm = open_model(p, NULL);
    says(p, lm, "one", FIRST, 1);
    says(p, lm, "one", SECOND, 1);
    lm_close(lm);
}

/* Another limit, temperature, model or server makes another call. */
static void other_parameters_are_another_call(void **state)
{
    struct place *p = *state;
    struct lm_message message = { "user", "one", 3 };
    struct lm_request requests[] = {
        { .messages = &message, .message_count = 1, .temperature = -1 },
        { .messages = &message, .message_count = 1, .temperature = 0 },
        { .messages = &message, .message_count = 1, .temperature = -1, .max_tokens = 5 },
        { .messages = &message, .message_count = 1, .temperature = -1, .model = "other" },
    };
    struct lm *lm = open_model(p, p->path);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < array_length(requests); i++) {
            cleanup_answer struct answer a = { 0 };
            assert_ok(lm_start(lm, &requests[i], on_answer, NULL, &a, NULL, err));
            assert_ok(loop_run_until(p->loop, &a.done, err));
            assert_int_equal(a.attempts, round == 0);
        }
    lm_close(lm);
    assert_int_equal(p->asked, 4);
}

/* A failure is not kept. */
static void a_failure_is_asked_again(void **state)
{
    struct place *p = *state;
    struct lm *lm = open_model(p, p->path);
    for (int i = 0; i < 2; i++) {
        cleanup_answer struct answer a = { 0 };
        ask(p->loop, lm, "refuse", &a);
        assert_failed(&a, ERROR_MODEL_RATE, "not now");
        assert_int_equal(a.attempts, 1);
    }
    lm_close(lm);
}

static void wait_until_asked(struct place *p, unsigned times)
{
    while (p->asked < times)
        loop_turn(p->loop, 0);
    for (int turn = 0; turn < 10; turn++)
        loop_turn(p->loop, 0);
    assert_int_equal(p->asked, times);
}

/* Identical calls at the same time are one; each ends by itself, and only the first is paid for. */
static void identical_calls_in_flight_are_one(void **state)
{
    struct place *p = *state;
    struct answer a[5] = { 0 };
    struct lm_usage usage = { 10, 20, false, 0 };
    p->keep = true;
    struct lm *lm = open_model(p, p->path);
    for (int i = 0; i < 5; i++)
        start(lm, NULL, i < 4 ? "same" : "other", i < 4 ? 4 : 5, 0, &a[i]);
    wait_until_asked(p, 2);
    lm_answer(p->kept[0], "x", 1, &usage, NULL);
    lm_answer(p->kept[1], "y", 1, &usage, NULL);
    for (int i = 0; i < 5; i++) {
        assert_ok(loop_run_until(p->loop, &a[i].done, err));
        assert_answered(&a[i], i < 4 ? "x" : "y");
        assert_int_equal(a[i].usage.input_tokens, i == 0 || i == 4 ? 10 : 0);
        answer_free(&a[i]);
    }
    lm_close(lm);
}

/* Without a cache nothing is kept: the same call afterwards is asked again, and no file is made. */
static void deduplication_keeps_nothing(void **state)
{
    struct place *p = *state;
    struct lm *lm = open_model(p, p->path);
    says(p, lm, "one", FIRST, 1);
    says(p, lm, "one", SECOND, 1);
    lm_close(lm);
    assert_int_equal(access(p->path, F_OK), -1);
}

/* Neither is a default: each of many equal calls at the same time is asked, and has an answer of
 * its own. */
static void identical_calls_are_each_asked_unless_a_setting_joins_them(void **state)
{
    struct place *p = *state;
    struct answer a[4] = { 0 };
    struct lm *lm = open_model(p, NULL);
    p->keep = true;
    for (int i = 0; i < 4; i++)
        start(lm, NULL, "same", 4, 0, &a[i]);
    wait_until_asked(p, 4);
    for (int i = 0; i < 4; i++)
        lm_answer(p->kept[i], &"wxyz"[i], 1, NULL, NULL);
    for (int i = 0; i < 4; i++) {
        char expected[2] = { "wxyz"[i], '\0' };
        assert_ok(loop_run_until(p->loop, &a[i].done, err));
        assert_answered(&a[i], expected);
        answer_free(&a[i]);
    }
    lm_close(lm);
}

/* They share a failure too, rather than each running into it. */
static void identical_calls_share_a_failure(void **state)
{
    struct place *p = *state;
    struct answer a[3] = { 0 };
    static const struct error refused = { .code = ERROR_MODEL_AUTH, .text = "no" };
    p->keep = true;
    struct lm *lm = open_model(p, p->path);
    for (int i = 0; i < 3; i++)
        start(lm, NULL, "same", 4, 0, &a[i]);
    wait_until_asked(p, 1);
    lm_answer(p->kept[0], NULL, 0, NULL, &refused);
    for (int i = 0; i < 3; i++) {
        assert_ok(loop_run_until(p->loop, &a[i].done, err));
        assert_failed(&a[i], ERROR_MODEL_AUTH, "no");
    }
    lm_close(lm);
}

/* If the one that asks is cancelled or out of time, the next of them asks. */
static void the_next_asks_when_the_first_is_gone(void **state)
{
    struct place *p = *state;
    struct answer a[4] = { 0 };
    struct lm_message message = { "user", "same", 4 };
    struct lm_request hasty = {
        .messages = &message, .message_count = 1, .timeout = 0.5, .temperature = -1
    };
    p->keep = true;
    struct lm *lm = open_model(p, p->path);
    struct lm_call *first = start(lm, NULL, "same", 4, 0, &a[0]);
    assert_ok(lm_start(lm, &hasty, on_answer, NULL, &a[1], NULL, err));
    struct lm_call *third = start(lm, NULL, "same", 4, 0, &a[2]);
    start(lm, NULL, "same", 4, 0, &a[3]);
    wait_until_asked(p, 1);
    lm_cancel(first, NULL);
    lm_cancel(third, NULL);
    wait_until_asked(p, 2);
    assert_ok(loop_run_until(p->loop, &a[1].done, err));
    assert_failed(&a[1], ERROR_TIMEOUT, NULL);
    wait_until_asked(p, 3);
    lm_answer(p->kept[2], "x", 1, NULL, NULL);
    assert_ok(loop_run_until(p->loop, &a[3].done, err));
    assert_answered(&a[3], "x");
    answer_free(&a[3]);
    assert_int_equal(a[0].times_done + a[2].times_done, 0);
    lm_close(lm);
}

/* Closing while calls follow, and while answers are about to be given: no `done`. */
static void closing_ends_those_that_wait(void **state)
{
    struct place *p = *state;
    struct answer a[4] = { 0 };
    struct lm *lm = open_model(p, p->path);
    says(p, lm, "known", FIRST, 1);
    p->keep = true;
    start(lm, NULL, "known", 5, 0, &a[0]);
    lm_cancel(start(lm, NULL, "known", 5, 0, &a[1]), NULL);
    start(lm, NULL, "same", 4, 0, &a[2]);
    start(lm, NULL, "same", 4, 0, &a[3]);
    lm_close(lm);
    for (int turn = 0; turn < 10; turn++)
        loop_turn(p->loop, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(a[i].times_done, 0);
}

/* The file is a recording, readable by its owner only; a line that is none is named. */
static void the_file_is_a_recording(void **state)
{
    struct place *p = *state;
    struct stat st;
    cleanup_buf struct buf b = { 0 };
    cleanup_json struct json_object *o = NULL;
    struct lm *lm = open_model(p, p->path);
    says(p, lm, "one", FIRST, 1);
    lm_close(lm);
    assert_int_equal(stat(p->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_ok(file_read(p->path, 1 << 20, &b, err));
    assert_ok(json_parse(b.data, b.len, &json_limits_small, &o, err));
    assert_string_equal(json_get_string(o, "content", ""), FIRST);
    struct lm_options options = {
        .model = "callback", .callback = model, .callback_arg = p, .cache = p->path
    };
    FILE *f = fopen(p->path, "a");
    fputs("{\"content\":\"by hand\"}\n", f);
    fclose(f);
    struct error err = { 0 };
    assert_int_equal(lm_open(p->loop, &options, &lm, &err), -ERROR_ARGUMENT);
    assert_non_null(strstr(err.text, "line 2: the line is not a recorded call"));
}

/* Two programs that append to one file find their own lines, and each other's after a start. */
static void a_file_may_be_shared(void **state)
{
    struct place *p = *state;
    struct lm *one = open_model(p, p->path), *two = open_model(p, p->path);
    says(p, one, "a", FIRST, 1);
    says(p, two, "b", SECOND, 1);
    says(p, one, "c", THIRD, 1);
    says(p, one, "a", FIRST, 0);
    says(p, two, "b", SECOND, 0);
    says(p, one, "c", THIRD, 0);
    lm_close(one);
    lm_close(two);
    one = open_model(p, p->path);
    says(p, one, "b", SECOND, 0);
    says(p, one, "c", THIRD, 0);
    lm_close(one);
}

/* A cache that cannot be written gives the answer all the same, and asks the next time. */
static void a_full_disk_loses_no_answer(void **state)
{
    struct place *p = *state;
    struct rlimit before, full = { 10, 10 };
    struct lm *lm = open_model(p, p->path);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    full.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    says(p, lm, "one", FIRST, 1);
    says(p, lm, "one", SECOND, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    lm_close(lm);
}

/* What is not a file of lines is refused, not read for ever. */
static void a_device_is_no_cache(void **state)
{
    struct place *p = *state;
    struct lm_options options = {
        .model = "callback", .callback = model, .callback_arg = p, .cache = "/dev/full"
    };
    struct lm *lm = NULL;
    assert_fails(ERROR_ARGUMENT, lm_open(p->loop, &options, &lm, err));
}

/* Over HTTP, and with a record beside it: the answer that was given again is recorded again. */
static void a_cached_run_is_recorded_whole(void **state)
{
    struct place *p = *state;
    struct fake f;
    char record[80];
    fake_start(&f, NULL, NULL);
    snprintf(record, sizeof record, "%s-record", p->path);
    struct lm_options options = options_for(&f, "anthropic/ok");
    options.cache = p->path;
    options.record = record;
    options.stream = true;
    for (int i = 0; i < 2; i++) {
        cleanup_answer struct answer a = { 0 };
        ask_once(f.loop, &options, &a);
        assert_int_equal(a.error.code, ERROR_NONE);
        assert_int_equal(a.attempts, i == 0);
    }
    assert_int_equal(fake_stat(&f, "requests"), 1);
    fake_stop(&f);
    cleanup_buf struct buf lines = { 0 };
    assert_ok(file_read(record, 1 << 20, &lines, err));
    unlink(record);
    const char *newline = strchr(lines.data, '\n');
    assert_non_null(newline);
    assert_non_null(strchr(newline + 1, '\n'));
    assert_null(strstr(lines.data, TEST_KEY));
}

#define directory_test(f) cmocka_unit_test_setup_teardown(f, with_directory, without_directory)
#define deduplication_test(name)                                                                   \
    {                                                                                              \
#name ", without a cache", name, with_deduplication, without_directory, NULL               \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(a_cached_answer_is_returned),
        directory_test(without_a_cache_the_same_call_is_asked_again),
        directory_test(other_parameters_are_another_call),
        directory_test(a_failure_is_asked_again),
        directory_test(identical_calls_in_flight_are_one),
        directory_test(identical_calls_share_a_failure),
        directory_test(the_next_asks_when_the_first_is_gone),
        directory_test(identical_calls_are_each_asked_unless_a_setting_joins_them),
        deduplication_test(deduplication_keeps_nothing),
        deduplication_test(identical_calls_in_flight_are_one),
        deduplication_test(identical_calls_share_a_failure),
        deduplication_test(the_next_asks_when_the_first_is_gone),
        directory_test(closing_ends_those_that_wait),
        directory_test(the_file_is_a_recording),
        directory_test(a_file_may_be_shared),
        directory_test(a_full_disk_loses_no_answer),
        directory_test(a_device_is_no_cache),
        directory_test(a_cached_run_is_recorded_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
