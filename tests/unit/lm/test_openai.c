/* Answers and refusals of an OpenAI-compatible server, over real sockets. */
#include "fixture.h"

/* A whole answer: its text, its end and the provider's own count of tokens. */
static void a_call_is_answered_with_text_and_usage(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "openai/ok");
    cleanup_answer struct answer a = { 0 };
    struct lm *lm = open_lm(f->loop, &options);
    assert_string_equal(lm_name(lm), "openai/ok");
    ask(f->loop, lm, "hello", &a);
    lm_close(lm);
    assert_answered(&a, "The answer is \xE2\x9F\xA8"
                        "42\xE2\x9F\xA9.");
    assert_string_equal(a.finish, "stop");
    assert_int_equal(a.usage.input_tokens, 1);
    assert_int_equal(a.usage.output_tokens, 4); /* the server counts characters */
    assert_false(a.usage.estimated);
    assert_int_equal(a.attempts, 1);
    assert_int_equal(a.deltas.len, 0);
}

/* A stream: the pieces are the text, and the usage comes at its end. */
static void a_streamed_answer_arrives_in_pieces(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "ok");
    cleanup_answer struct answer a = { 0 };
    options.stream = true;
    ask_once(f->loop, &options, &a);
    assert_answered(&a, "The answer is \xE2\x9F\xA8"
                        "42\xE2\x9F\xA9.");
    assert_string_equal(buf_text(&a.deltas), buf_text(&a.text));
    assert_string_equal(a.finish, "stop");
    assert_int_equal(a.usage.output_tokens, 4);
    assert_false(a.usage.estimated);
}

/* Byte by byte, with CRLF and comments between: the same stream. */
static void a_dribbling_stream_is_understood(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "dribble");
    cleanup_answer struct answer a = { 0 };
    options.stream = true;
    ask_once(f->loop, &options, &a);
    assert_answered(&a, "dribbl\xC3\xA9"
                        "d \xE2\x9F\xA8\xF0\x9F\x99\x82\xE2\x9F\xA9");
    assert_string_equal(buf_text(&a.deltas), buf_text(&a.text));
    assert_true(a.usage.estimated);
}

/* A server that does not stream though it was asked to, and one that answers in parts. */
static void other_shapes_of_answers_are_understood(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "json");
    cleanup_answer struct answer a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
    options.stream = true;
    ask_once(f->loop, &options, &a);
    assert_answered(&a, "not streamed");
    assert_string_equal(buf_text(&a.deltas), "not streamed");
    options.model = "done-then-cut";
    ask_once(f->loop, &options, &b);
    assert_answered(&b, "all of it");
    options.stream = false;
    options.model = "parts";
    ask_once(f->loop, &options, &c);
    assert_answered(&c, "in parts");
    options.model = "emptycontent";
    ask_once(f->loop, &options, &d);
    assert_answered(&d, "");
    assert_string_equal(d.finish, "length");
}

/* Where the provider counts nothing, a token per 4 bytes, and it is said. */
static void usage_is_estimated_if_it_is_missing(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "nousage");
    cleanup_answer struct answer a = { 0 };
    ask_once(f->loop, &options, &a);
    assert_answered(&a, "12345678");
    assert_true(a.usage.estimated);
    assert_int_equal(a.usage.input_tokens, 2);
    assert_int_equal(a.usage.output_tokens, 2);
}

/* Each kind of bad reply has an error of its own, is not tried again, and names the server. */
static void bad_replies_are_distinguished(void **state)
{
    static const struct {
        const char *model;
        enum error_code code;
        const char *words;
    } cases[] = {
        { "badjson", ERROR_MODEL_REPLY, "not JSON" },
        { "html", ERROR_MODEL_REPLY, "not JSON" },
        { "badutf8", ERROR_MODEL_REPLY, "not UTF-8" },
        { "nochoices", ERROR_MODEL_REPLY, "no choices" },
        { "emptychoices", ERROR_MODEL_REPLY, "choices is empty" },
        { "nullcontent", ERROR_MODEL_REPLY, "finish_reason 'tool_calls'" },
        { "refusal", ERROR_MODEL_REPLY, "refused to answer: I will not. Really." },
        { "stream-error", ERROR_MODEL_SERVER, "engine overheated" },
        { "stream-bad", ERROR_MODEL_REPLY, "not JSON" },
        { "stream-end", ERROR_MODEL_CUT, "in the middle" },
        { "notfound", ERROR_MODEL_UNKNOWN, "'notfound': check --model" },
        { "context", ERROR_MODEL, "maximum context length is 8192 tokens" },
        { "quota", ERROR_MODEL_RATE, "has used up its quota" },
        { "redirect", ERROR_MODEL, "301" },
    };
    struct fake *f = *state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct lm_options options = options_for(f, cases[i].model);
        cleanup_answer struct answer a = { 0 };
        options.retries = 2;
        options.stream = strncmp(cases[i].model, "stream", 6) == 0;
        ask_once(f->loop, &options, &a);
        assert_failed(&a, cases[i].code, cases[i].words);
        assert_int_equal(a.attempts, 1);
        if (strcmp(cases[i].model, "refusal") != 0)
            assert_non_null(strstr(a.error.text, "127.0.0.1:"));
    }
    assert_int_equal(fake_stat(f, "requests"), array_length(cases));
}

/* A router's failure in a whole answer, with status 200, is a server's error: it may pass. */
static void an_error_with_status_200_is_tried_again(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "error200");
    cleanup_answer struct answer a = { 0 };
    options.retries = 1;
    ask_once(f->loop, &options, &a);
    assert_failed(&a, ERROR_MODEL_SERVER, "no provider available");
    assert_int_equal(a.attempts, 2);
}

/* Ten megabytes arrive whole: the server says how many characters it saw. */
static void a_prompt_of_ten_megabytes_arrives_whole(void **state)
{
    enum { SIZE = 10 << 20 };
    struct fake *f = *state;
    struct lm_options options = options_for(f, "echo");
    cleanup_answer struct answer a = { 0 };
    cleanup_free char *text = malloc(SIZE + 1);
    struct lm *lm = open_lm(f->loop, &options);
    for (size_t i = 0; i < SIZE; i++)
        text[i] = "abc\n\"\\xyz"[i % 9];
    text[SIZE] = '\0';
    ask(f->loop, lm, text, &a);
    lm_close(lm);
    assert_answered(&a, "10485760:abc\n\"\\xyzabc\n\"\\xyzabc\n\"\\xyzabc\n\"");
}

/* Five megabytes of answer, whole and streamed. */
static void a_large_answer_arrives_whole(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "big-5000000");
    for (int stream = 0; stream < 2; stream++) {
        cleanup_answer struct answer a = { 0 };
        options.stream = stream;
        ask_once(f->loop, &options, &a);
        assert_int_equal(a.error.code, ERROR_NONE);
        assert_int_equal(a.text.len, 5000000);
        assert_int_equal(strspn(a.text.data, "x"), 5000000);
        assert_int_equal(a.deltas.len, stream ? 5000000 : 0);
    }
}

/* A server cannot make us keep more than 64 MiB. */
static void an_answer_without_end_is_refused(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "big-70000000");
    cleanup_answer struct answer a = { 0 };
    ask_once(f->loop, &options, &a);
    assert_failed(&a, ERROR_MODEL_REPLY, "larger than 67108864 bytes");
}

/* The refusal names the variable to set; the key that the server repeats is not in it. */
static void a_wrong_key_is_an_auth_error_without_the_key(void **state)
{
    struct fake f;
    fake_start(&f, "--key", "sk-another-key");
    struct lm_options options = options_for(&f, "ok");
    cleanup_answer struct answer a = { 0 }, b = { 0 };
    options.retries = 2;
    ask_once(f.loop, &options, &a);
    options.openai.api_key = "sk-another-key";
    ask_once(f.loop, &options, &b);
    fake_stop(&f);
    assert_failed(&a, ERROR_MODEL_AUTH, "OPENAI_API_KEY");
    assert_non_null(strstr(a.error.text, "Incorrect API key provided: ****"));
    assert_int_equal(a.attempts, 1);
    assert_int_equal(b.error.code, ERROR_NONE);
}

/* A server that puts the key into its answer does not bring it to the guest. */
static void an_echoed_key_is_masked_in_answers(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "leak");
    for (int stream = 0; stream < 2; stream++) {
        cleanup_answer struct answer a = { 0 };
        options.stream = stream;
        ask_once(f->loop, &options, &a);
        assert_answered(&a, "your key is ********************, is it not? s");
        if (stream)
            assert_string_equal(buf_text(&a.deltas), buf_text(&a.text));
    }
}

/* What cannot work is refused at lm_open, with the cure in the words. */
static void wrong_options_are_refused_when_opening(void **state)
{
    static const struct {
        const char *model, *url, *key, *ca_file, *words;
    } cases[] = {
        { NULL, NULL, NULL, NULL, "no model" },
        { "", NULL, NULL, NULL, "no model" },
        { "openai/", NULL, TEST_KEY, NULL, "is not the name of a model" },
        { "x", NULL, NULL, NULL, "OPENAI_API_KEY" },
        { "x", NULL, "", NULL, "OPENAI_API_KEY" },
        { "x", "127.0.0.1:80/v1", TEST_KEY, NULL, "is not a URL like http://" },
        { "x", "ftp://host/v1", TEST_KEY, NULL, "is not a URL like http://" },
        { "x", "http://user:pw@host/v1", TEST_KEY, NULL, "or a password" },
        { "x", "http://host/v1", "two\r\nlines", NULL, "character that keys do not have" },
        { "x", "http://host/v1", TEST_KEY, "/nonexistent/ca.pem", "/nonexistent/ca.pem" },
        { "callback", NULL, NULL, NULL, "needs a function" },
    };
    struct fake *f = *state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct lm_options options = { .model = cases[i].model,
            .openai = { cases[i].url, cases[i].key },
            .ca_file = cases[i].ca_file };
        struct lm *lm = NULL;
        struct error err = { 0 };
        assert_int_equal(lm_open(f->loop, &options, &lm, &err), -ERROR_CONFIG);
        if (!strstr(err.text, cases[i].words))
            fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].words);
    }
    struct lm_options good = options_for(f, "meta-llama/llama-3:free");
    struct lm *lm = open_lm(f->loop, &good);
    assert_string_equal(lm_name(lm), "openai/meta-llama/llama-3:free");
    lm_close(lm);
}

/* Text that is not text, and roles that nobody knows, are the caller's error. */
static void wrong_requests_are_refused_when_starting(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "ok");
    struct lm *lm = open_lm(f->loop, &options);
    struct lm_message messages[] = { { "user", "a\xff", 2 }, { "tool", "a", 1 } };
    struct lm_request request = { .messages = messages, .message_count = 1 };
    cleanup_answer struct answer a = { 0 };
    assert_fails(ERROR_ARGUMENT, lm_start(lm, &request, on_answer, NULL, &a, NULL, err));
    request.messages = messages + 1;
    assert_fails(ERROR_ARGUMENT, lm_start(lm, &request, on_answer, NULL, &a, NULL, err));
    request.message_count = 0;
    assert_fails(ERROR_ARGUMENT, lm_start(lm, &request, on_answer, NULL, &a, NULL, err));
    lm_close(lm);
    assert_int_equal(fake_stat(f, "requests"), 0);
}

/* A run is driven by a list of answers, over real HTTP; what is used up says so. */
static void a_script_answers_in_order(void **state)
{
    char path[] = "/tmp/droste-script-XXXXXX";
    static const char script[] = "[\"first\", {\"content\": \"second\", \"contains\": \"hel\"}]";
    int fd = mkstemp(path);
    assert_int_equal(file_write_all(fd, script, sizeof script - 1), 0);
    close(fd);
    struct fake f;
    fake_start(&f, "--script", path);
    unlink(path);
    struct lm_options options = options_for(&f, "scripted");
    static const char *const expected[] = { "first", "second" };
    for (int i = 0; i < 2; i++) {
        cleanup_answer struct answer a = { 0 };
        ask_once(f.loop, &options, &a);
        assert_answered(&a, expected[i]);
    }
    cleanup_answer struct answer a = { 0 };
    ask_once(f.loop, &options, &a);
    fake_stop(&f);
    assert_failed(&a, ERROR_MODEL, "used up");
}

#define server_test(f) cmocka_unit_test_setup_teardown(f, with_server, without_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        server_test(a_call_is_answered_with_text_and_usage),
        server_test(a_streamed_answer_arrives_in_pieces),
        server_test(a_dribbling_stream_is_understood),
        server_test(other_shapes_of_answers_are_understood),
        server_test(usage_is_estimated_if_it_is_missing),
        server_test(bad_replies_are_distinguished),
        server_test(an_error_with_status_200_is_tried_again),
        server_test(a_prompt_of_ten_megabytes_arrives_whole),
        server_test(a_large_answer_arrives_whole),
        server_test(an_answer_without_end_is_refused),
        cmocka_unit_test(a_wrong_key_is_an_auth_error_without_the_key),
        server_test(an_echoed_key_is_masked_in_answers),
        server_test(wrong_options_are_refused_when_opening),
        server_test(wrong_requests_are_refused_when_starting),
        cmocka_unit_test(a_script_answers_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
