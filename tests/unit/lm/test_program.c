/* A program as a model: many calls at once, and each kind of failure. */
#include "fixture.h"

#include <signal.h>

struct with_program {
    struct loop *loop;
    struct lm *lm;
};

static const char *program_name(void)
{
    static char name[512];
    const char *source = getenv("DROSTE_TEST_SOURCE");
    snprintf(name, sizeof name, "exec:%s/tests/fakes/model_program.py", source ? source : ".");
    return name;
}

static int open_program(void **state)
{
    struct with_program *p = calloc(1, sizeof *p);
    struct lm_options options = { .model = program_name(), .retries = 1 };
    assert_ok(loop_open(&p->loop, err));
    p->lm = open_lm(p->loop, &options);
    *state = p;
    return 0;
}

static int close_program(void **state)
{
    struct with_program *p = *state;
    lm_close(p->lm);
    loop_close(p->loop);
    free(p);
    return 0;
}

static void says(struct with_program *p, const char *text, const char *answer)
{
    cleanup_answer struct answer a = { 0 };
    ask(p->loop, p->lm, text, &a);
    assert_answered(&a, answer);
}

static void fails(struct with_program *p, const char *text, enum error_code code, const char *words)
{
    cleanup_answer struct answer a = { 0 };
    ask(p->loop, p->lm, text, &a);
    assert_failed(&a, code, words);
    assert_null(strchr(a.error.text, '\n'));
}

/* The program is started once; it counts what it is asked. */
static void one_program_answers_all_calls(void **state)
{
    struct with_program *p = *state;
    says(p, "echo a \"\xE2\x9F\xA8\"\n", "1:echo a \"\xE2\x9F\xA8\"\n");
    says(p, "echo b", "2:echo b");
    says(p, "echo c", "3:echo c");
}

/* Answers come in any order, and each finds its call. */
static void many_calls_are_in_flight(void **state)
{
    enum { CALLS = 40 };
    struct with_program *p = *state;
    struct answer a[CALLS] = { 0 };
    for (int i = 0; i < CALLS; i++) {
        char text[20];
        int n = snprintf(text, sizeof text, "hold %d", i);
        start(p->lm, NULL, text, (size_t)n, 0, &a[i]);
    }
    says(p, "release", "released");
    for (int i = 0; i < CALLS; i++) {
        char text[20];
        snprintf(text, sizeof text, "hold %d", i);
        assert_answered(&a[i], text);
        assert_int_equal(a[i].times_done, 1);
        answer_free(&a[i]);
    }
}

/* What a request holds beside its messages. */
static void a_request_has_the_documented_fields(void **state)
{
    struct with_program *p = *state;
    struct lm_message message = { "user", "fields", 6 };
    struct lm_request request = { .model = "anthropic/x",
        .messages = &message,
        .message_count = 1,
        .max_tokens = 9,
        .temperature = 0.25 };
    cleanup_answer struct answer a = { 0 };
    assert_ok(lm_start(p->lm, &request, on_answer, NULL, &a, NULL, err));
    assert_ok(loop_run_until(p->loop, &a.done, err));
    assert_answered(
        &a, "{\"id\": 0, \"max_tokens\": 9, \"model\": \"anthropic/x\", \"temperature\": 0.25}");
}

/* Ten megabytes go through, while the program writes too. */
static void a_long_prompt_arrives_whole(void **state)
{
    enum { SIZE = 10 << 20 };
    struct with_program *p = *state;
    cleanup_free char *text = malloc(SIZE + 1);
    memset(text, 'x', SIZE);
    memcpy(text, "long ", 5);
    text[SIZE] = '\0';
    says(p, text, "10485760");
}

/* The usage that the program gives, or an estimate that says so. */
static void usage_is_the_programs_or_estimated(void **state)
{
    struct with_program *p = *state;
    cleanup_answer struct answer a = { 0 }, b = { 0 };
    ask(p->loop, p->lm, "usage", &a);
    assert_int_equal(a.usage.input_tokens, 7);
    assert_int_equal(a.usage.output_tokens, 8);
    assert_false(a.usage.estimated);
    assert_string_equal(a.finish, "length");
    ask(p->loop, p->lm, "echo 78", &b);
    assert_int_equal(b.usage.input_tokens, 2);
    assert_true(b.usage.estimated);
    assert_string_equal(b.finish, "stop");
}

/* An error is its call's alone; the program goes on. */
static void an_error_is_of_its_call(void **state)
{
    struct with_program *p = *state;
    fails(p, "error", ERROR_MODEL, "I will not.");
    fails(p, "rate", ERROR_MODEL_RATE, "slow down");
    says(p, "echo", "3:echo");
}

/* A program that ends fails the calls that it had, with its last words, and is started anew. */
static void a_program_that_ends_is_started_anew(void **state)
{
    struct with_program *p = *state;
    cleanup_answer struct answer held = { 0 };
    start(p->lm, NULL, "hold", 4, 0, &held);
    fails(p, "exit", ERROR_MODEL_SERVER,
        "exit status 3) before it answered all calls: ValueError: something broke");
    assert_failed(&held, ERROR_MODEL_SERVER, "something broke");
    says(p, "echo", "1:echo");
    fails(p, "signal", ERROR_MODEL_SERVER, "signal 11");
    says(p, "echo", "1:echo");
}

/* One that ends well after its answer leaves no call behind: what it did not answer is asked
 * again. */
static void a_program_may_end_after_each_answer(void **state)
{
    struct with_program *p = *state;
    struct answer a[3] = { 0 };
    for (int i = 0; i < 3; i++)
        says(p, "last", "my last words");
    says(p, "echo", "1:echo");
    start(p->lm, NULL, "last", 4, 0, &a[0]);
    start(p->lm, NULL, "echo", 4, 0, &a[1]);
    for (int i = 0; i < 2; i++)
        assert_ok(loop_run_until(p->loop, &a[i].done, err));
    assert_answered(&a[0], "my last words");
    assert_answered(&a[1], "1:echo");
    assert_int_equal(a[1].attempts, 2);
    answer_free(&a[0]);
    answer_free(&a[1]);
}

/* Lines that are not answers end the program, and the errors show them. */
static void what_is_no_answer_ends_the_program(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        { "garbage", "is not a JSON object: Loading model\xE2\x80\xA6 done" },
        { "foreign", "belongs to no request" },
        { "neither", "neither a text nor an error" },
        { "huge", "a line of more than 67108864 bytes" },
    };
    struct with_program *p = *state;
    for (size_t i = 0; i < array_length(cases); i++) {
        fails(p, cases[i].text, ERROR_MODEL_REPLY, cases[i].words);
        says(p, "echo", "1:echo");
    }
}

/* Silence is the call's own deadline; a late answer is dropped, and others are answered. */
static void silence_is_a_timeout(void **state)
{
    struct with_program *p = *state;
    struct lm_message message = { "user", "hold it", 7 };
    struct lm_request request = { .messages = &message, .message_count = 1, .timeout = 0.2 };
    cleanup_answer struct answer a = { 0 };
    says(p, "echo", "1:echo"); /* it runs: what follows is about its silence */
    assert_ok(lm_start(p->lm, &request, on_answer, NULL, &a, NULL, err));
    assert_ok(loop_run_until(p->loop, &a.done, err));
    assert_failed(&a, ERROR_TIMEOUT, "model_program.py within 0.2 s");
    says(p, "release", "released");
    says(p, "echo", "4:echo");
    assert_int_equal(a.times_done, 1);
}

/* A cancelled call has no end; its answer, which comes later, is nobody's. */
static void a_cancelled_call_is_dropped(void **state)
{
    struct with_program *p = *state;
    cleanup_answer struct answer a = { 0 };
    struct lm_call *call = start(p->lm, NULL, "hold", 4, 0, &a);
    says(p, "echo", "2:echo");
    lm_cancel(call, NULL);
    says(p, "release", "released");
    says(p, "echo", "4:echo");
    assert_int_equal(a.times_done, 0);
}

/* A program that is deaf is ended, with its children, when its output is closed. */
static void a_program_is_killed_with_its_children(void **state)
{
    struct with_program *p = *state;
    char path[64], text[80];
    cleanup_buf struct buf pid = { 0 };
    snprintf(path, sizeof path, "/tmp/droste-test-%d.pid", getpid());
    snprintf(text, sizeof text, "deaf %s", path);
    fails(p, text, ERROR_MODEL_SERVER, "ended");
    assert_ok(file_read(path, 64, &pid, err));
    unlink(path);
    pid_t group = (pid_t)strtol(buf_text(&pid), NULL, 10);
    assert_true(group > 1);
    /* The process that inherits a killed child may take a moment to reap it. */
    for (int i = 0; i < 60000 && kill(-group, 0) == 0; i++)
        usleep(1000);
    assert_int_equal(kill(-group, 0), -1);
}

struct closing {
    struct lm *lm;
    bool closed;
};

static void close_in_done(void *arg, const struct lm_reply *reply)
{
    struct closing *c = arg;
    lm_close(c->lm);
    c->closed = true;
}

/* From inside `done` the model may be closed: by an answer, and by the death of the program. */
static void done_may_close_the_program(void **state)
{
    static const char *const texts[] = { "echo", "exit" };
    struct with_program *p = *state;
    for (size_t i = 0; i < array_length(texts); i++) {
        struct lm_options options = { .model = program_name() };
        struct lm_message message = { "user", texts[i], 4 };
        struct lm_request request = { .messages = &message, .message_count = 1 };
        struct closing c = { open_lm(p->loop, &options), false };
        cleanup_answer struct answer other = { 0 };
        start(c.lm, NULL, "hold", 4, 0, &other);
        assert_ok(lm_start(c.lm, &request, close_in_done, NULL, &c, NULL, err));
        if (i == 1)
            lm_cancel(start(c.lm, NULL, "hold", 4, 0, &other), NULL);
        while (!c.closed && !other.done)
            loop_turn(p->loop, 0);
        if (!c.closed)
            assert_ok(loop_run_until(p->loop, &c.closed, err));
    }
}

/* What cannot be run is said with its name: at once where a path is given, else by the first
 * call. */
static void a_program_that_is_not_there_is_named(void **state)
{
    struct with_program *p = *state;
    struct lm_options options = { .model = "exec:/nonexistent/program" };
    cleanup_answer struct answer a = { 0 };
    struct lm *lm = NULL;
    assert_fails(ERROR_NOT_FOUND, lm_open(p->loop, &options, &lm, err));
    options.model = "exec:/etc/passwd";
    assert_fails(ERROR_CONFIG, lm_open(p->loop, &options, &lm, err));
    options.model = "exec:";
    assert_fails(ERROR_CONFIG, lm_open(p->loop, &options, &lm, err));
    options.model = "exec:droste-no-such-program";
    ask_once(p->loop, &options, &a);
    assert_failed(&a, ERROR_NOT_FOUND, "exec:droste-no-such-program");
}

#define program_test(f) cmocka_unit_test_setup_teardown(f, open_program, close_program)

int main(void)
{
    const struct CMUnitTest tests[] = {
        program_test(one_program_answers_all_calls),
        program_test(many_calls_are_in_flight),
        program_test(a_request_has_the_documented_fields),
        program_test(a_long_prompt_arrives_whole),
        program_test(usage_is_the_programs_or_estimated),
        program_test(an_error_is_of_its_call),
        program_test(a_program_that_ends_is_started_anew),
        program_test(a_program_may_end_after_each_answer),
        program_test(what_is_no_answer_ends_the_program),
        program_test(silence_is_a_timeout),
        program_test(a_cancelled_call_is_dropped),
        program_test(a_program_is_killed_with_its_children),
        program_test(done_may_close_the_program),
        program_test(a_program_that_is_not_there_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
