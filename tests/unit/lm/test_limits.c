/* Limits: information from headers, and the order of the queue. */
#include "fixture.h"

#include <math.h>

#include "lm/limits.h"

#define SECOND 1000000000ull

/* Headers as pairs; a NULL ends them. */
static const char *find_header(void *arg, const char *name)
{
    for (const char *const *h = arg; *h; h += 2)
        if (strcmp(h[0], name) == 0)
            return h[1];
    return NULL;
}

static struct limits learned(const char *const *headers, double sent_since)
{
    struct limits l = { 0 };
    struct limits_need since = { { sent_since, sent_since, sent_since, sent_since } };
    limits_learn(&l, find_header, (void *)headers, &since, 100 * SECOND);
    return l;
}

static double waits(const struct limits *l, double requests, double tokens, double at)
{
    struct limits_need need = { { requests, tokens, tokens, 1 } };
    return limits_wait(l, &need, (uint64_t)(at * 1e9));
}

static void assert_near(double is, double expected)
{
    if (fabs(is - expected) > 1e-6)
        fail_msg("%g is not %g", is, expected);
}

/* The ways in which providers say how long. */
static void a_reset_is_understood_in_all_its_forms(void **state)
{
    static const struct {
        const char *text;
        double seconds;
    } cases[] = {
        { "1s", 1 },
        { "6m0s", 360 },
        { "12ms", 0.012 },
        { "1h2m3.5s", 3723.5 },
        { "30", 30 },
        { "0", 0 },
        { "1970-01-01T00:20:00Z", 200 },
        { "1970-01-01T00:20:00.5Z", 200.5 },
        { "1970-01-01T01:20:00+01:00", 200 },
        { "1970-01-01T00:00:00Z", 0 },
        { "", -1 },
        { "soon", -1 },
        { "-5", -1 },
        { "1s later", -1 },
        { "1970-01-01", -1 },
        { "1970-01-01T00:20:00 in Rome", -1 },
        { "nan", -1 },
    };
    for (size_t i = 0; i < array_length(cases); i++)
        assert_near(limits_parse_reset(cases[i].text, 1000), cases[i].seconds);
}

/* Nothing left of 10, which fill in 5 seconds: the next one goes in half a second. */
static void an_empty_bucket_fills_at_its_rate(void **state)
{
    static const char *const headers[] = { "x-ratelimit-limit-requests", "10",
        "x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "5s", NULL };
    struct limits l = learned(headers, 0);
    assert_near(waits(&l, 1, 0, 100), 0.5);
    assert_near(waits(&l, 1, 0, 100.5), 0);
    assert_near(waits(&l, 20, 0, 100), 5); /* more than the whole: when it is full */
    assert_near(waits(&l, 1, 0, 106), 0);
    assert_true(limits_are_idle(&l, 106 * SECOND));
    assert_false(limits_are_idle(&l, 101 * SECOND));
}

/* What was sent since the server counted is counted here, and what is sent now as well. */
static void what_is_under_way_counts(void **state)
{
    static const char *const headers[] = { "x-ratelimit-limit-requests", "10",
        "x-ratelimit-remaining-requests", "4", "x-ratelimit-reset-requests", "6s", NULL };
    struct limits l = learned(headers, 3);
    struct limits_need one = { { 1, 0, 0, 0 } };
    assert_near(waits(&l, 1, 0, 100), 0);
    limits_take(&l, &one, 100 * SECOND);
    assert_near(waits(&l, 1, 0, 100), 1);
}

/* Tokens of input, output and both are buckets of their own; the emptiest decides. */
static void each_kind_of_token_has_its_bucket(void **state)
{
    static const char *const openai[] = { "x-ratelimit-limit-tokens", "1000",
        "x-ratelimit-remaining-tokens", "100", "x-ratelimit-reset-tokens", "9s",
        "x-ratelimit-limit-requests", "10", "x-ratelimit-remaining-requests", "10", NULL };
    static const char *const anthropic[] = { "anthropic-ratelimit-input-tokens-limit", "1000",
        "anthropic-ratelimit-input-tokens-remaining", "0",
        "anthropic-ratelimit-output-tokens-limit", "600",
        "anthropic-ratelimit-output-tokens-remaining", "0", NULL };
    struct limits l = learned(openai, 0);
    assert_near(waits(&l, 1, 100, 100), 0);
    assert_near(waits(&l, 1, 200, 100), 1);
    l = learned(anthropic, 0); /* without a reset: full within a minute */
    assert_near(waits(&l, 1, 100, 100), 6);
    assert_near(waits(&l, 1, 0, 100), 0.1);
}

/* Headers that make no sense teach nothing, and what makes sense is believed for a minute. */
static void a_server_cannot_stop_us_for_long(void **state)
{
    static const char *const nonsense[][7] = {
        { "x-ratelimit-remaining-requests", "0", NULL },
        { "x-ratelimit-remaining-requests", "none", "x-ratelimit-limit-requests", "5", NULL },
        { "x-ratelimit-remaining-requests", "-1", "x-ratelimit-limit-requests", "5", NULL },
        { "x-ratelimit-remaining-requests", "nan", "x-ratelimit-limit-requests", "5", NULL },
        { "x-ratelimit-limit-requests", "5", "x-ratelimit-reset-requests", "5s", NULL },
    };
    static const char *const endless[] = { "x-ratelimit-limit-requests", "1e300",
        "x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "99999999h", NULL };
    for (size_t i = 0; i < array_length(nonsense); i++) {
        struct limits l = learned(nonsense[i], 0);
        assert_near(waits(&l, 1, 1e9, 100), 0);
    }
    struct limits l = learned(endless, 0);
    assert_true(waits(&l, 1e12, 0, 100) <= 60);
    limits_pause(&l, 1e9, 100 * SECOND);
    assert_near(waits(&l, 1, 0, 100), 60);
    assert_near(waits(&l, 1, 0, 160), 0);
}

/* ---- the queue ---- */

static const char *const limited_models[] = { "openai/limited", "anthropic/limited" };

static void ask_twelve(struct fake *f, struct lm *lm)
{
    for (int i = 0; i < 12; i++) {
        cleanup_answer struct answer a = { 0 };
        ask(f->loop, lm, "x", &a);
        assert_answered(&a, "allowed");
    }
}

/* A server that says what it takes never has to refuse; one that does not say it has to. */
static void an_announced_limit_is_respected(void **state)
{
    struct fake *f = *state;
    for (size_t i = 0; i < array_length(limited_models); i++) {
        struct lm_options options = options_for(f, limited_models[i]);
        struct lm *lm = open_lm(f->loop, &options);
        ask_twelve(f, lm);
        lm_close(lm);
        assert_int_equal(fake_stat(f, "refused"), 0);
    }
    struct lm_options options = options_for(f, "limited-silent");
    options.retries = 10;
    struct lm *lm = open_lm(f->loop, &options);
    ask_twelve(f, lm);
    lm_close(lm);
    assert_true(fake_stat(f, "refused") > 0);
}

/* Waiting for a limit is waiting in the queue: it takes nothing of a call's own time. */
static void waiting_for_a_limit_does_not_eat_the_timeout(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "limited");
    struct lm_message message = { "user", "x", 1 };
    struct lm_request request = { .messages = &message, .message_count = 1, .timeout = 0.7 };
    struct answer a[12] = { 0 };
    options.concurrency = 1;
    struct lm *lm = open_lm(f->loop, &options);
    for (int i = 0; i < 12; i++)
        assert_ok(lm_start(lm, &request, on_answer, NULL, &a[i], NULL, err));
    for (int i = 0; i < 12; i++) {
        assert_ok(loop_run_until(f->loop, &a[i].done, err));
        assert_answered(&a[i], "allowed");
        answer_free(&a[i]);
    }
    lm_close(lm);
}

/* After a refusal with Retry-After, the next call to that model waits as long; others do not. */
static void a_refusal_holds_back_those_behind_it(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "429-1");
    cleanup_answer struct answer a = { 0 }, b = { 0 }, c = { 0 };
    struct lm *lm = open_lm(f->loop, &options);
    ask(f->loop, lm, "x", &a);
    assert_failed(&a, ERROR_MODEL_RATE, NULL);
    start(lm, NULL, "x", 1, 0, &b);
    start(lm, "ok", "x", 1, 0, &c);
    assert_ok(loop_run_until(f->loop, &c.done, err));
    assert_false(b.done);
    assert_ok(loop_run_until(f->loop, &b.done, err));
    lm_close(lm);
    assert_int_equal(b.error.code, ERROR_NONE);
    cleanup_json struct json_object *stats = fake_stats(f);
    struct json_object *all = json_get_typed(stats, "seconds", json_type_object);
    struct json_object *times = json_get_typed(all, "429-1", json_type_array);
    assert_int_equal(json_object_array_length(times), 2);
    assert_true(json_object_get_double(json_object_array_get_idx(times, 1)) -
                    json_object_get_double(json_object_array_get_idx(times, 0)) >=
                1.0);
}

/* Two models of one host share what may be in flight there. */
static void models_of_one_host_share_its_limit(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "slow-30");
    struct answer a[20] = { 0 };
    options.queue = lm_queue_new(f->loop);
    options.concurrency = 3;
    struct lm *one = open_lm(f->loop, &options);
    options.model = "slow-20";
    struct lm *two = open_lm(f->loop, &options);
    lm_queue_free(options.queue);
    for (int i = 0; i < 20; i++)
        start(i % 2 ? one : two, NULL, "x", 1, 0, &a[i]);
    for (int i = 0; i < 20; i++) {
        assert_ok(loop_run_until(f->loop, &a[i].done, err));
        assert_int_equal(a[i].error.code, ERROR_NONE);
        answer_free(&a[i]);
    }
    lm_close(one);
    lm_close(two);
    assert_int_equal(fake_stat(f, "max_in_flight"), 3);
}

struct host {
    struct lm_call *kept[8];
    unsigned count;
};

static void keep_call(void *arg, const struct lm_request *request, struct lm_call *call)
{
    struct host *h = arg;
    h->kept[h->count++] = call;
}

/* A model with a limit of its own holds its calls back, and only those. */
static void a_model_has_a_limit_of_its_own(void **state)
{
    struct host h = { 0 };
    struct lm_options options = {
        .model = "callback", .callback = keep_call, .callback_arg = &h, .model_concurrency = 2
    };
    struct loop *loop = NULL;
    struct answer a[6] = { 0 };
    assert_ok(loop_open(&loop, err));
    struct lm *lm = open_lm(loop, &options);
    for (int i = 0; i < 6; i++)
        start(lm, i < 4 ? "big" : "small", "x", 1, 0, &a[i]);
    for (int turn = 0; turn < 10; turn++)
        loop_turn(loop, 0);
    assert_int_equal(h.count, 4);
    for (unsigned i = 0; i < 6; i++) {
        while (h.count <= i)
            loop_turn(loop, 0);
        lm_answer(h.kept[i], "y", 1, NULL, NULL);
    }
    for (int i = 0; i < 6; i++) {
        assert_answered(&a[i], "y");
        answer_free(&a[i]);
    }
    lm_close(lm);
    loop_close(loop);
}

static void turns(struct loop *loop)
{
    for (int turn = 0; turn < 10; turn++)
        loop_turn(loop, 0);
}

/* Retries count as well; another model has a limit of its own. */
static void no_more_requests_are_sent_than_the_limit_per_minute(void **state)
{
    struct host h = { 0 };
    struct lm_options options = {
        .model = "callback", .callback = keep_call, .callback_arg = &h, .rate = { .requests = 3 }
    };
    struct loop *loop = NULL;
    struct answer a[6] = { 0 };
    struct lm_call *calls[6];
    assert_ok(loop_open(&loop, err));
    struct lm *lm = open_lm(loop, &options);
    for (int i = 0; i < 6; i++)
        calls[i] = start(lm, i < 5 ? "big" : "small", "x", 1, 0, &a[i]);
    turns(loop);
    assert_int_equal(h.count, 4);
    for (unsigned i = 0; i < 4; i++)
        lm_answer(h.kept[i], "y", 1, NULL, NULL);
    turns(loop);
    assert_int_equal(h.count, 4);
    for (int i = 3; i < 5; i++) {
        assert_false(a[i].done);
        lm_cancel(calls[i], NULL);
    }
    for (int i = 0; i < 6; i++)
        answer_free(&a[i]);
    lm_close(lm);
    loop_close(loop);
}

/* Four bytes are a token: 100 and 300 are asked for. The first answer says that less was used. */
static void tokens_are_estimated_before_a_call_and_counted_after_it(void **state)
{
    static const char text[1200] = { 0 };
    struct host h = { 0 };
    struct lm_options options = {
        .model = "callback", .callback = keep_call, .callback_arg = &h, .rate = { .tokens = 350 }
    };
    const struct lm_usage used = { .input_tokens = 20, .output_tokens = 20 };
    struct loop *loop = NULL;
    struct answer a[2] = { 0 };
    assert_ok(loop_open(&loop, err));
    struct lm *lm = open_lm(loop, &options);
    for (int i = 0; i < 2; i++)
        start(lm, NULL, text, i == 0 ? 400 : 1200, 0, &a[i]);
    turns(loop);
    assert_int_equal(h.count, 1);
    lm_answer(h.kept[0], "y", 1, &used, NULL);
    while (h.count < 2)
        loop_turn(loop, 100);
    lm_answer(h.kept[1], "y", 1, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        assert_answered(&a[i], "y");
        answer_free(&a[i]);
    }
    lm_close(lm);
    loop_close(loop);
}

#define server_test(f) cmocka_unit_test_setup_teardown(f, with_server, without_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reset_is_understood_in_all_its_forms),
        cmocka_unit_test(an_empty_bucket_fills_at_its_rate),
        cmocka_unit_test(what_is_under_way_counts),
        cmocka_unit_test(each_kind_of_token_has_its_bucket),
        cmocka_unit_test(a_server_cannot_stop_us_for_long),
        server_test(an_announced_limit_is_respected),
        server_test(waiting_for_a_limit_does_not_eat_the_timeout),
        server_test(a_refusal_holds_back_those_behind_it),
        server_test(models_of_one_host_share_its_limit),
        cmocka_unit_test(a_model_has_a_limit_of_its_own),
        cmocka_unit_test(no_more_requests_are_sent_than_the_limit_per_minute),
        cmocka_unit_test(tokens_are_estimated_before_a_call_and_counted_after_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
