/* The common parts of all clients: queueing, cancelling, closing, and callback models. */
#include "fixture.h"

#include "base/clock.h"

/* A thousand calls, 64 at a time: none lost, none doubled, on connections that are used again. */
static void a_thousand_calls_share_64_connections(void **state)
{
    enum { CALLS = 1000 };
    struct fake *f = *state;
    struct lm_options options = options_for(f, "echo");
    struct answer *answers = calloc(CALLS, sizeof *answers);
    options.concurrency = 64;
    struct lm *lm = open_lm(f->loop, &options);
    for (int i = 0; i < CALLS; i++) {
        char text[32];
        int n = snprintf(text, sizeof text, "call %d", i);
        start(lm, i % 2 ? "slow-20" : NULL, text, (size_t)n, 0, &answers[i]);
    }
    for (int i = 0; i < CALLS; i++)
        assert_ok(loop_run_until(f->loop, &answers[i].done, err));
    for (int i = 0; i < CALLS; i++) {
        char text[48];
        snprintf(text, sizeof text, "%zu:call %d", (size_t)snprintf(NULL, 0, "call %d", i), i);
        assert_answered(&answers[i], i % 2 ? "The answer is \xE2\x9F\xA8"
                                             "42\xE2\x9F\xA9."
                                           : text);
        assert_int_equal(answers[i].times_done, 1);
        answer_free(&answers[i]);
    }
    lm_close(lm);
    free(answers);
    cleanup_json struct json_object *stats = fake_stats(f);
    struct json_object *keys = json_get_typed(stats, "idempotency", json_type_object);
    assert_int_equal(json_get_int(stats, "requests", 0), CALLS);
    assert_int_equal(json_object_object_length(keys), CALLS);
    assert_in_range(json_get_int(stats, "max_in_flight", 0), 2, 64);
    assert_in_range(json_get_int(stats, "connections", 0), 2, 64);
}

/* A cancelled call never ends by `done`; the server sees its connection close; others go on. */
static void a_call_in_flight_is_cancelled(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "hang");
    cleanup_answer struct answer a = { 0 }, b = { 0 }, c = { 0 };
    struct lm_reply sent = { 0 }, none = { .usage = { 9, 9, true }, .attempts = 9, .cost = 9 };
    options.concurrency = 1;
    struct lm *lm = open_lm(f->loop, &options);
    struct lm_call *first = start(lm, NULL, "12345678", 8, 0, &a);
    struct lm_call *second = start(lm, NULL, "x", 1, 0, &b);
    while (fake_stat(f, "requests") == 0)
        loop_turn(f->loop, 0);
    lm_cancel(second, &none);
    lm_cancel(first, &sent);
    start(lm, "ok", "x", 1, 0, &c);
    assert_ok(loop_run_until(f->loop, &c.done, err));
    lm_close(lm);
    assert_int_equal(c.error.code, ERROR_NONE);
    assert_int_equal(a.times_done + b.times_done, 0);
    assert_true(sent.usage.estimated);
    assert_int_equal(sent.usage.input_tokens, 2);
    assert_int_equal(sent.attempts, 1);
    assert_int_equal(none.usage.input_tokens, 0);
    assert_int_equal(none.attempts, 0);
    assert_true(none.cost == 0);
    assert_int_equal(fake_stat(f, "requests"), 2);
    assert_int_equal(fake_stat(f, "cancelled"), 1);
}

struct in_delta {
    struct lm *lm;
    struct lm_call *call;
    bool close, seen;
    struct answer answer;
};

static void cancel_in_delta(void *arg, const char *text, size_t len)
{
    struct in_delta *d = arg;
    d->seen = true;
    if (d->close)
        lm_close(d->lm);
    else
        lm_cancel(d->call, NULL);
}

static void on_answer_in_delta(void *arg, const struct lm_reply *reply)
{
    on_answer(&((struct in_delta *)arg)->answer, reply);
}

/* From inside a delta a call may be cancelled and the lm be closed: nothing comes after. */
static void a_delta_may_cancel_and_close(void **state)
{
    static const char *const models[] = { "ok",
        "json" }; /* a delta in the middle, and at the end */
    struct fake *f = *state;
    for (int i = 0; i < 4; i++) {
        struct lm_options options = options_for(f, models[i % 2]);
        struct lm_message message = { "user", "x", 1 };
        struct lm_request request = { .messages = &message, .message_count = 1 };
        struct in_delta d = { .close = i >= 2 };
        options.stream = true;
        d.lm = open_lm(f->loop, &options);
        assert_ok(lm_start(d.lm, &request, on_answer_in_delta, cancel_in_delta, &d, &d.call, err));
        assert_ok(loop_run_until(f->loop, &d.seen, err));
        for (int turn = 0; turn < 20; turn++)
            loop_turn(f->loop, 0);
        assert_int_equal(d.answer.times_done, 0);
        if (!d.close)
            lm_close(d.lm);
    }
}

struct chain {
    struct lm *lm;
    int left;
    bool closed;
};

static void next_or_close(void *arg, const struct lm_reply *reply)
{
    struct chain *c = arg;
    struct lm_message message = { "user", "x", 1 };
    struct lm_request request = { .messages = &message, .message_count = 1 };
    assert_int_equal(reply->error.code, ERROR_NONE);
    if (--c->left > 0) {
        assert_ok(lm_start(c->lm, &request, next_or_close, NULL, c, NULL, err));
        return;
    }
    lm_close(c->lm);
    c->closed = true;
}

/* From inside `done` the next call may be started and the lm be closed. */
static void done_may_start_and_close(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "ok");
    struct lm_message message = { "user", "x", 1 };
    struct lm_request request = { .messages = &message, .message_count = 1 };
    struct chain c = { open_lm(f->loop, &options), 5, false };
    assert_ok(lm_start(c.lm, &request, next_or_close, NULL, &c, NULL, err));
    assert_ok(loop_run_until(f->loop, &c.closed, err));
    assert_int_equal(fake_stat(f, "requests"), 5);
    assert_int_equal(fake_stat(f, "connections"), 1);
}

/* Closing cancels what is in flight and what waits: no `done`, nothing left behind. */
static void closing_cancels_everything(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "hang");
    struct answer answers[20] = { 0 };
    options.concurrency = 8;
    struct lm *lm = open_lm(f->loop, &options);
    for (size_t i = 0; i < array_length(answers); i++)
        start(lm, NULL, "x", 1, 0, &answers[i]);
    while (fake_stat(f, "requests") < 8)
        loop_turn(f->loop, 0);
    lm_close(lm);
    for (int turn = 0; turn < 20; turn++)
        loop_turn(f->loop, 0);
    for (size_t i = 0; i < array_length(answers); i++)
        assert_int_equal(answers[i].times_done, 0);
    assert_int_equal(fake_stat(f, "requests"), 8);
}

/* A callback model that answers at once or keeps the calls. */
struct host {
    bool at_once;
    struct lm_call *kept[4];
    unsigned count;
};

static void host_asked(void *arg, const struct lm_request *request, struct lm_call *call)
{
    struct host *h = arg;
    if (h->at_once)
        lm_answer(call, request->messages[0].text, request->messages[0].len, NULL, NULL);
    else
        h->kept[h->count++] = call;
}

static struct lm *open_host(struct loop *loop, struct host *h)
{
    struct lm_options options = { .model = "callback", .callback = host_asked, .callback_arg = h };
    return open_lm(loop, &options);
}

/* Answers from inside the callback, with an estimated usage. */
static void a_callback_may_answer_at_once(void **state)
{
    struct host h = { .at_once = true };
    struct loop *loop = NULL;
    cleanup_answer struct answer a = { 0 };
    assert_ok(loop_open(&loop, err));
    struct lm *lm = open_host(loop, &h);
    assert_string_equal(lm_name(lm), "callback");
    ask(loop, lm, "12345678", &a);
    lm_close(lm);
    loop_close(loop);
    assert_answered(&a, "12345678");
    assert_true(a.usage.estimated);
    assert_int_equal(a.usage.output_tokens, 2);
}

/* No client has more calls in its hands than agreed, whatever ends meanwhile. */
static void calls_over_the_limit_wait(void **state)
{
    struct host h = { 0 };
    struct lm_options options = {
        .model = "callback", .callback = host_asked, .callback_arg = &h, .concurrency = 2
    };
    struct loop *loop = NULL;
    struct answer a[4] = { 0 };
    assert_ok(loop_open(&loop, err));
    struct lm *lm = open_lm(loop, &options);
    for (int i = 0; i < 4; i++)
        start(lm, NULL, "x", 1, 0, &a[i]);
    for (unsigned answered = 0; answered < 4; answered++) {
        for (int turn = 0; turn < 10; turn++)
            loop_turn(loop, 0);
        assert_int_equal(h.count, answered < 2 ? answered + 2 : 4);
        lm_answer(h.kept[answered], "y", 1, NULL, NULL);
    }
    for (int i = 0; i < 4; i++) {
        assert_answered(&a[i], "y");
        answer_free(&a[i]);
    }
    lm_close(lm);
    loop_close(loop);
}

/* Time in the queue is not taken from a call's own: the second waits longer than its timeout. */
static void queueing_does_not_eat_the_timeout(void **state)
{
    struct host h = { 0 };
    struct loop *loop = NULL;
    cleanup_answer struct answer a = { 0 }, b = { 0 };
    struct lm_message message = { "user", "x", 1 };
    struct lm_request request = { .messages = &message, .message_count = 1, .timeout = 0.5 };
    struct lm_options options = {
        .model = "callback", .callback = host_asked, .callback_arg = &h, .concurrency = 1
    };
    assert_ok(loop_open(&loop, err));
    struct lm *lm = open_lm(loop, &options);
    start(lm, NULL, "x", 1, 0, &a);
    assert_ok(lm_start(lm, &request, on_answer, NULL, &b, NULL, err));
    uint64_t begun = clock_ns();
    while (clock_seconds_since(begun) < request.timeout * 1.1)
        loop_turn(loop, 10);
    assert_int_equal(h.count, 1);
    assert_false(b.done);
    for (unsigned i = 0; i < 2; i++) {
        while (h.count <= i)
            loop_turn(loop, 0);
        lm_answer(h.kept[i], "y", 1, NULL, NULL);
    }
    assert_ok(loop_run_until(loop, &b.done, err));
    lm_close(lm);
    loop_close(loop);
    assert_int_equal(a.error.code, ERROR_NONE);
    assert_int_equal(b.error.code, ERROR_NONE);
}

/* Answers later, out of order: with a usage, with an error, and with bytes that are not text. */
static void a_callback_may_answer_later(void **state)
{
    struct host h = { 0 };
    struct loop *loop = NULL;
    struct answer a[3] = { 0 };
    struct lm_usage usage = { 5, 7, false };
    struct error error = { .code = ERROR_MODEL_RATE, .text = "not now" };
    assert_ok(loop_open(&loop, err));
    struct lm *lm = open_host(loop, &h);
    for (int i = 0; i < 3; i++)
        start(lm, NULL, "x", 1, 0, &a[i]);
    while (h.count < 3)
        loop_turn(loop, 0);
    lm_answer(h.kept[2], "\xff", 1, NULL, NULL);
    lm_answer(h.kept[1], NULL, 0, NULL, &error);
    lm_answer(h.kept[0], "late", 4, &usage, NULL);
    assert_answered(&a[0], "late");
    assert_int_equal(a[0].usage.output_tokens, 7);
    assert_failed(&a[1], ERROR_MODEL_RATE, "not now");
    assert_failed(&a[2], ERROR_MODEL_REPLY, "not UTF-8");
    for (int i = 0; i < 3; i++)
        answer_free(&a[i]);
    lm_close(lm);
    loop_close(loop);
}

static void see_parts(void *arg, const struct lm_request *request, struct lm_call *call)
{
    const struct lm_message *m = &request->messages[1];
    bool *right = arg;
    *right = request->message_count == 2 && strcmp(request->messages[0].text, "be kind") == 0 &&
             m->part_count == 2 && m->text[0] == '\0' && strcmp(m->parts[0].data, "what?") == 0 &&
             strcmp(m->parts[1].media_type, "image/png") == 0 && m->parts[1].len == 3 &&
             memcmp(m->parts[1].data, "\x89\0P", 3) == 0;
    lm_answer(call, "seen", 4, NULL, NULL);
}

/* It gets copies of texts, images and documents: the caller's memory may be gone by then. */
static void a_callback_gets_content_parts(void **state)
{
    struct loop *loop = NULL;
    cleanup_answer struct answer a = { 0 };
    char text[] = "what?", type[] = "image/png", image[] = { '\x89', 0, 'P' };
    struct lm_part parts[] = { { LM_PART_TEXT, NULL, text, 5 }, { LM_PART_IMAGE, type, image, 3 } };
    struct lm_message messages[] = { { "system", "be kind", 7 },
        { .role = "user", .parts = parts, .part_count = 2 } };
    struct lm_request request = { .messages = messages, .message_count = 2 };
    bool right = false;
    struct lm_options options = {
        .model = "callback", .callback = see_parts, .callback_arg = &right
    };
    assert_ok(loop_open(&loop, err));
    struct lm *lm = open_lm(loop, &options);
    assert_ok(lm_start(lm, &request, on_answer, NULL, &a, NULL, err));
    memset(text, 0, sizeof text);
    memset(type, 0, sizeof type);
    memset(image, 0, sizeof image);
    assert_ok(loop_run_until(loop, &a.done, err));
    lm_close(lm);
    loop_close(loop);
    assert_answered(&a, "seen");
    assert_true(right);
}

/* The program's handle stays good after a cancel and a deadline; its answer is dropped. */
static void a_late_answer_of_a_callback_is_dropped(void **state)
{
    struct host h = { 0 };
    struct loop *loop = NULL;
    cleanup_answer struct answer a = { 0 }, b = { 0 }, c = { 0 };
    struct lm_message message = { "user", "x", 1 };
    struct lm_request request = { .messages = &message, .message_count = 1, .timeout = 0.05 };
    assert_ok(loop_open(&loop, err));
    struct lm *lm = open_host(loop, &h);
    struct lm_call *cancelled = start(lm, NULL, "x", 1, 0, &a);
    assert_ok(lm_start(lm, &request, on_answer, NULL, &b, NULL, err));
    start(lm, NULL, "x", 1, 0, &c);
    while (h.count < 3)
        loop_turn(loop, 0);
    lm_cancel(cancelled, NULL);
    assert_ok(loop_run_until(loop, &b.done, err));
    assert_failed(&b, ERROR_TIMEOUT, "callback");
    lm_answer(h.kept[0], "late", 4, NULL, NULL);
    lm_answer(h.kept[1], "late", 4, NULL, NULL);
    lm_close(lm); /* the third is never answered */
    loop_close(loop);
    assert_int_equal(a.times_done, 0);
    assert_int_equal(b.times_done, 1);
    assert_int_equal(c.times_done, 0);
}

#define server_test(f) cmocka_unit_test_setup_teardown(f, with_server, without_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        server_test(a_thousand_calls_share_64_connections),
        server_test(a_call_in_flight_is_cancelled),
        server_test(a_delta_may_cancel_and_close),
        server_test(done_may_start_and_close),
        server_test(closing_cancels_everything),
        cmocka_unit_test(a_callback_may_answer_at_once),
        cmocka_unit_test(calls_over_the_limit_wait),
        cmocka_unit_test(queueing_does_not_eat_the_timeout),
        cmocka_unit_test(a_callback_may_answer_later),
        cmocka_unit_test(a_callback_gets_content_parts),
        cmocka_unit_test(a_late_answer_of_a_callback_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
