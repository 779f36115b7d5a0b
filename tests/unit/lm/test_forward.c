/* Requests in OpenAI's form that are passed on: to a server that speaks it, with its key. */
#include "fixture.h"

#include "lm/forward.h"

struct passed {
    struct buf events; /* each with a line feed behind it */
    struct buf body;
    unsigned begun, ended;
    bool done;
    struct forward_end end; /* `body` is gone */
};

static void passed_begin(void *arg)
{
    ((struct passed *)arg)->begun++;
}

static void passed_event(void *arg, const char *data, size_t len)
{
    struct passed *p = arg;
    buf_append(&p->events, data, len);
    buf_puts(&p->events, "\n");
}

static void passed_end(void *arg, const struct forward_end *end)
{
    struct passed *p = arg;
    p->end = *end;
    p->ended++;
    p->done = true;
    buf_append(&p->body, end->body ? end->body : "", end->body ? end->len : 0);
}

static const struct forward_handler handler = { passed_begin, passed_event, passed_end };

static void passed_free(struct passed *p)
{
    buf_free(&p->events);
    buf_free(&p->body);
}
#define cleanup_passed __attribute__((cleanup(passed_free)))

static struct forwarder *open_forwarder(const struct fake *f, const char *model)
{
    struct lm_options options = options_for(f, model);
    struct forwarder *forwarder = NULL;
    assert_ok(forwarder_open(f->loop, &options, &forwarder, err));
    return forwarder;
}

/* Passes the request on and waits for its end. */
static void pass(const struct fake *f, const char *model, const char *body, struct passed *p)
{
    struct forwarder *forwarder = open_forwarder(f, model);
    struct forward *request = NULL;
    assert_ok(forward_start(forwarder, body, strlen(body), NULL, &handler, p, &request, err));
    assert_ok(loop_run_until(f->loop, &p->done, err));
    assert_int_equal(p->ended, 1);
    forwarder_close(forwarder);
}

#define MESSAGES "\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]"

/* Only the model's name is replaced by the provider's. */
static void an_answer_in_one_piece_is_passed_on_whole(void **state)
{
    cleanup_passed struct passed p = { 0 };
    pass(*state, "ok", "{\"model\": \"any\", \"seed\": 7, " MESSAGES "}", &p);
    assert_int_equal(p.end.error.code, ERROR_NONE);
    assert_int_equal(p.end.status, 200);
    assert_int_equal(p.begun, 0);
    assert_non_null(strstr(buf_text(&p.body), "\"choices\""));
    assert_false(p.end.usage.estimated);
    assert_true(p.end.usage.output_tokens > 0);
    cleanup_json struct json_object *stats = fake_stats(*state);
    struct json_object *models = json_get_typed(stats, "models", json_type_object);
    assert_int_equal(json_get_int(models, "ok", 0), 1);
    assert_int_equal(json_get_int(models, "any", 0), 0);
}

/* The usage is asked for, and its event is left out, unless the client asks for it too. */
static void a_stream_has_the_usage_that_its_client_asks_for(void **state)
{
    cleanup_passed struct passed silent = { 0 }, asking = { 0 };
    pass(*state, "ok", "{\"stream\": true, " MESSAGES "}", &silent);
    pass(*state, "ok",
        "{\"stream\": true, \"stream_options\": {\"include_usage\": true}, " MESSAGES "}", &asking);
    assert_int_equal(silent.begun, 1);
    assert_int_equal(silent.end.error.code, ERROR_NONE);
    assert_null(strstr(buf_text(&silent.events), "prompt_tokens"));
    assert_non_null(strstr(buf_text(&asking.events), "prompt_tokens"));
    assert_non_null(strstr(buf_text(&silent.events), "[DONE]"));
    assert_false(silent.end.usage.estimated);
    assert_int_equal(silent.end.usage.output_tokens, asking.end.usage.output_tokens);
}

static void the_key_is_masked_in_an_answer(void **state)
{
    cleanup_passed struct passed p = { 0 };
    pass(*state, "leak", "{" MESSAGES "}", &p);
    assert_null(strstr(buf_text(&p.body), TEST_KEY));
}

/* The status and the text are the client's to judge; nothing is retried, and nothing was paid. */
static void a_refusal_is_passed_on(void **state)
{
    cleanup_passed struct passed p = { 0 };
    pass(*state, "429-9", "{" MESSAGES "}", &p);
    assert_int_equal(p.end.error.code, ERROR_NONE);
    assert_int_equal(p.end.status, 429);
    assert_int_equal(p.end.usage.input_tokens, 0);
    assert_int_equal(fake_stat(*state, "requests"), 1);
}

static void a_stream_that_breaks_off_is_an_error(void **state)
{
    cleanup_passed struct passed p = { 0 };
    pass(*state, "stream-cut", "{\"stream\": true, " MESSAGES "}", &p);
    assert_int_not_equal(p.end.error.code, ERROR_NONE);
    assert_true(p.end.usage.estimated);
}

static void what_is_no_object_is_not_sent(void **state)
{
    static const char *const bodies[] = { "", "[]", "null", "{\"model\": ", "{} {}" };
    struct forwarder *forwarder = open_forwarder(*state, "ok");
    for (size_t i = 0; i < array_length(bodies); i++) {
        struct forward *request = NULL;
        assert_fails(ERROR_ARGUMENT, forward_start(forwarder, bodies[i], strlen(bodies[i]), NULL,
                                         &handler, NULL, &request, err));
        assert_null(request);
    }
    forwarder_close(forwarder);
    assert_int_equal(fake_stat(*state, "requests"), 0);
}

static void a_model_of_another_protocol_is_refused(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "anthropic/ok");
    struct forwarder *forwarder = NULL;
    assert_fails(ERROR_UNSUPPORTED, forwarder_open(f->loop, &options, &forwarder, err));
    assert_null(forwarder);
}

/* A cancelled request has no end, and counts as what was sent. */
static void a_request_can_be_cancelled(void **state)
{
    static const char body[] = "{" MESSAGES "}";
    struct fake *f = *state;
    cleanup_passed struct passed p = { 0 };
    struct forwarder *forwarder = open_forwarder(f, "hang");
    struct forward *request = NULL;
    struct lm_usage usage;
    double cost;
    assert_ok(forward_start(forwarder, body, strlen(body), NULL, &handler, &p, &request, err));
    while (fake_stat(f, "requests") == 0)
        loop_turn(f->loop, 10);
    forward_cancel(request, &usage, &cost);
    assert_int_equal(p.ended, 0);
    assert_true(usage.estimated);
    assert_true(usage.input_tokens > 0);
    forwarder_close(forwarder);
}

#define forward_test(name) cmocka_unit_test_setup_teardown(name, with_server, without_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        forward_test(an_answer_in_one_piece_is_passed_on_whole),
        forward_test(a_stream_has_the_usage_that_its_client_asks_for),
        forward_test(the_key_is_masked_in_an_answer),
        forward_test(a_refusal_is_passed_on),
        forward_test(a_stream_that_breaks_off_is_an_error),
        forward_test(what_is_no_object_is_not_sent),
        forward_test(a_model_of_another_protocol_is_refused),
        forward_test(a_request_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
