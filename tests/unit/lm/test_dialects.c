/* The common behaviour of all dialects, and particulars of Anthropic's and Gemini's, over real
 * sockets. */
#include "fixture.h"

#define ANSWER                                                                                     \
    "The answer is \xE2\x9F\xA8"                                                                   \
    "42\xE2\x9F\xA9."

static const struct dialect_case {
    const char *provider, *key_variable;
    /* What the server says of a prompt of 5 bytes and an answer of 19 characters. */
    struct lm_usage usage;
} dialects[] = {
    { "openai", "OPENAI_API_KEY", { 1, 4, false, 0 } },
    { "anthropic", "ANTHROPIC_API_KEY", { 1 + 3, 4, false, 3 } },
    { "gemini", "GEMINI_API_KEY", { 1, 4 + 2, false, 1 } },
};

#define each_dialect(d) (const struct dialect_case *d = dialects; d < dialects + 3; d++)

static struct lm_options options_of(
    const struct fake *f, const struct dialect_case *d, const char *model)
{
    static char name[80];
    snprintf(name, sizeof name, "%s/%s", d->provider, model);
    return options_for(f, name);
}

static void assert_usage(const struct lm_usage *is, const struct lm_usage *expected)
{
    assert_int_equal(is->input_tokens, expected->input_tokens);
    assert_int_equal(is->output_tokens, expected->output_tokens);
    assert_int_equal(is->cached_tokens, expected->cached_tokens);
    assert_int_equal(is->estimated, expected->estimated);
}

/* Whole and streamed: the text, its end in the house's word, and the provider's count of tokens. */
static void every_dialect_gives_text_and_usage(void **state)
{
    struct fake *f = *state;
    for
        each_dialect(d) for (int stream = 0; stream < 2; stream++)
        {
            struct lm_options options = options_of(f, d, "ok");
            cleanup_answer struct answer a = { 0 };
            options.stream = stream;
            ask_once(f->loop, &options, &a);
            assert_answered(&a, ANSWER);
            assert_string_equal(buf_text(&a.deltas), stream ? ANSWER : "");
            assert_string_equal(a.finish, "stop");
            assert_usage(&a.usage, &d->usage);
            assert_int_equal(a.attempts, 1);
        }
}

/* Byte by byte, characters in pieces, CRLF and comments between: the same text, whole characters
 * in each delta. */
static void every_dialect_understands_a_dribbling_stream(void **state)
{
    struct fake *f = *state;
    for
        each_dialect(d)
        {
            struct lm_options options = options_of(f, d, "dribble");
            cleanup_answer struct answer a = { 0 };
            options.stream = true;
            ask_once(f->loop, &options, &a);
            assert_answered(&a, "dribbl\xC3\xA9"
                                "d \xE2\x9F\xA8\xF0\x9F\x99\x82\xE2\x9F\xA9");
            assert_string_equal(buf_text(&a.deltas), buf_text(&a.text));
        }
}

/* A document where a stream was asked for, an empty answer that is one, a late end of the line. */
static void every_dialect_understands_other_shapes(void **state)
{
    struct fake *f = *state;
    for
        each_dialect(d)
        {
            struct lm_options options = options_of(f, d, "json");
            cleanup_answer struct answer a = { 0 }, b = { 0 }, c = { 0 };
            options.stream = true;
            ask_once(f->loop, &options, &a);
            assert_answered(&a, "not streamed");
            options = options_of(f, d, "done-then-cut");
            options.stream = true;
            ask_once(f->loop, &options, &b);
            assert_answered(&b, "all of it");
            options = options_of(f, d, "emptycontent");
            ask_once(f->loop, &options, &c);
            assert_answered(&c, "");
            assert_string_equal(c.finish, "length");
        }
}

/* Where the provider counts nothing, a token per 4 bytes, and it is said. */
static void every_dialect_estimates_what_is_not_counted(void **state)
{
    struct fake *f = *state;
    struct lm_usage expected = { 2, 2, true, 0 };
    for
        each_dialect(d) for (int stream = 0; stream < 2; stream++)
        {
            struct lm_options options = options_of(f, d, "nousage");
            cleanup_answer struct answer a = { 0 };
            options.stream = stream;
            ask_once(f->loop, &options, &a);
            assert_answered(&a, "12345678");
            assert_usage(&a.usage, &expected);
        }
}

/* Each kind of bad reply has an error of its own, and is not tried again. */
static void every_dialect_tells_bad_replies_apart(void **state)
{
    static const struct {
        const char *model;
        enum error_code code;
        const char *words;
    } cases[] = {
        { "badjson", ERROR_MODEL_REPLY, "not JSON" },
        { "html", ERROR_MODEL_REPLY, "not JSON" },
        { "badutf8", ERROR_MODEL_REPLY, "not UTF-8" },
        { "nothing", ERROR_MODEL_REPLY, "the answer has no" },
        { "stream-error", ERROR_MODEL_SERVER, "engine overheated" },
        { "stream-bad", ERROR_MODEL_REPLY, "not JSON" },
        { "stream-bad-later", ERROR_MODEL_REPLY, "not JSON" },
        { "stream-end", ERROR_MODEL_CUT, "in the middle" },
        { "notfound", ERROR_MODEL_UNKNOWN, "'notfound': check --model" },
        { "context", ERROR_MODEL, "maximum context length is 8192 tokens" },
        { "redirect", ERROR_MODEL, "301" },
    };
    struct fake *f = *state;
    for
        each_dialect(d) for (size_t i = 0; i < array_length(cases); i++)
        {
            struct lm_options options = options_of(f, d, cases[i].model);
            cleanup_answer struct answer a = { 0 };
            options.retries = 2;
            options.stream = strncmp(cases[i].model, "stream", 6) == 0;
            ask_once(f->loop, &options, &a);
            assert_failed(&a, cases[i].code, cases[i].words);
            assert_int_equal(a.attempts, 1);
        }
    assert_int_equal(fake_stat(f, "requests"), 3 * array_length(cases));
}

/* What may pass is tried again, by its status or by an error in the place of the first word. */
static void every_dialect_tries_again_what_may_pass(void **state)
{
    static const char *const models[] = { "429-1", "500-1", "503-1", "529-1", "stream-overloaded" };
    struct fake *f = *state;
    for
        each_dialect(d) for (size_t i = 0; i < array_length(models); i++)
        {
            struct lm_options options = options_of(f, d, models[i]);
            cleanup_answer struct answer a = { 0 };
            options.retries = 1;
            options.stream = true;
            char text[32];
            snprintf(text, sizeof text, "hello %s", d->provider);
            struct lm *lm = open_lm(f->loop, &options);
            ask(f->loop, lm, text, &a);
            lm_close(lm);
            assert_answered(&a, ANSWER);
            assert_int_equal(a.attempts, 2);
        }
}

/* A refused key: the error names the variable of that provider, and repeats no key. */
static void every_dialect_names_its_key(void **state)
{
    struct fake f;
    fake_start(&f, "--key", "sk-another-key");
    for
        each_dialect(d)
        {
            struct lm_options options = options_of(&f, d, "ok");
            cleanup_answer struct answer a = { 0 }, b = { 0 };
            ask_once(f.loop, &options, &a);
            assert_failed(&a, ERROR_MODEL_AUTH, d->key_variable);
            assert_non_null(strstr(a.error.text, "Incorrect API key provided: ****"));
            options.openai.api_key = options.anthropic.api_key = options.gemini.api_key =
                "sk-another-key";
            ask_once(f.loop, &options, &b);
            assert_answered(&b, ANSWER);
        }
    fake_stop(&f);
}

/* A stream that stops, one that is cut, one that never begins: each its own error, once. */
static void every_dialect_gives_up_a_dead_stream(void **state)
{
    static const struct {
        const char *model;
        enum error_code code;
        double first_timeout, stall_timeout; /* 0: far away */
    } cases[] = {
        { "stall", ERROR_MODEL_STALL, 0, 0.3 },
        { "hang", ERROR_MODEL_STALL, 0.3, 0 },
        { "stream-cut", ERROR_MODEL_CUT, 0, 0 },
        { "stream-cut-inside", ERROR_MODEL_CUT, 0, 0 },
        { "stream-end-inside", ERROR_MODEL_CUT, 0, 0 },
    };
    struct fake *f = *state;
    for
        each_dialect(d) for (size_t i = 0; i < array_length(cases); i++)
        {
            struct lm_options options = options_of(f, d, cases[i].model);
            cleanup_answer struct answer a = { 0 };
            options.stream = true;
            options.retries = 3;
            options.first_timeout = cases[i].first_timeout;
            options.stall_timeout = cases[i].stall_timeout;
            ask_once(f->loop, &options, &a);
            assert_failed(&a, cases[i].code, NULL);
            assert_int_equal(a.attempts, 1);
            if (i == 0)
                assert_string_equal(buf_text(&a.deltas), "a first word");
        }
}

/* A slow first token within its limit is not a failure, also behind signs of life. All wait at the
 * same time, for longer than a stall may last. */
static void every_dialect_waits_for_a_slow_first_token(void **state)
{
    static const char *const models[] = { "slow-2500", "slow-first-2500" };
    struct fake *f = *state;
    struct lm *lms[3][2];
    struct answer answers[3][2] = { 0 };
    for
        each_dialect(d) for (size_t i = 0; i < array_length(models); i++)
        {
            struct lm_options options = options_of(f, d, models[i]);
            options.stream = true;
            options.stall_timeout = 2;
            lms[d - dialects][i] = open_lm(f->loop, &options);
            start(lms[d - dialects][i], NULL, "hello", 5, 0, &answers[d - dialects][i]);
        }
    for
        each_dialect(d) for (size_t i = 0; i < array_length(models); i++)
        {
            struct answer *a = &answers[d - dialects][i];
            assert_ok(loop_run_until(f->loop, &a->done, err));
            assert_answered(a, ANSWER);
            answer_free(a);
            lm_close(lms[d - dialects][i]);
        }
}

/* A cancelled stream: no `done`, the server sees the connection close, and what is not known of its
 * cost is estimated, whatever the server counted at the beginning. */
static void every_dialect_is_cancelled(void **state)
{
    struct fake *f = *state;
    for
        each_dialect(d)
        {
            struct lm_options options = options_of(f, d, "stall");
            cleanup_answer struct answer a = { 0 };
            struct lm_reply spent = { 0 };
            options.stream = true;
            struct lm *lm = open_lm(f->loop, &options);
            struct lm_call *call = start(lm, NULL, "12345678", 8, 0, &a);
            while (a.deltas.len < strlen("a first word"))
                loop_turn(f->loop, 0);
            lm_cancel(call, &spent);
            while (fake_stat(f, "cancelled") < d - dialects + 1)
                loop_turn(f->loop, 0);
            lm_close(lm);
            assert_int_equal(a.times_done, 0);
            assert_true(spent.usage.estimated);
            assert_int_equal(
                spent.usage.input_tokens, d == &dialects[1] ? 2 + 3 : 2); /* what it said */
            assert_int_equal(spent.usage.output_tokens, 3);
        }
}

/* ---- requests, as they arrive ---- */

static struct json_object *last_request(const struct fake *f)
{
    cleanup_json struct json_object *stats = fake_stats(f);
    return json_object_get(json_get_typed(stats, "last", json_type_object));
}

static const char *text_at(struct json_object *root, const char *pointer)
{
    struct json_object *o = NULL;
    if (json_pointer_get(root, pointer, &o) < 0)
        return NULL;
    return json_object_get_string(o);
}

/* The smallest image that providers accept: one grey pixel. */
#define PNG                                                                                        \
    "\x89\x50\x4e\x47\x0d\x0a\x1a\x0a\x00\x00\x00\x0d\x49\x48\x44\x52\x00\x00\x00\x01"             \
    "\x00\x00\x00\x01\x08\x00\x00\x00\x00\x3a\x7e\x9b\x55\x00\x00\x00\x0a\x49\x44\x41"             \
    "\x54\x78\xda\x63\x60\x00\x00\x00\x02\x00\x01\xe5\x27\xde\xfc\x00\x00\x00\x00\x49"             \
    "\x45\x4e\x44\xae\x42\x60\x82"
#define PNG_BASE64                                                                                 \
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNgAAAAAgAB5Sfe"                     \
    "/AAAAABJRU5ErkJggg=="

static const struct lm_part parts[] = {
    { LM_PART_TEXT, NULL, "what is \"this\"?", 15 },
    { LM_PART_IMAGE, "image/png", PNG, sizeof PNG - 1 },
    { LM_PART_DOCUMENT, "application/pdf", "%PDF-", 5 },
};
static const struct lm_message conversation[] = {
    { "system", "be brief", 8 },
    { "user", "hi", 2 },
    { "assistant", "hello", 5 },
    { "system", "be kind", 7 },
    { .role = "user", .parts = parts, .part_count = 3 },
};

static int send_conversation(struct fake *f, const struct dialect_case *d, double temperature,
    int64_t max_tokens, struct answer *a, struct error *err)
{
    struct lm_options options = options_of(f, d, "ok");
    struct lm_request request = { .messages = conversation,
        .message_count = array_length(conversation),
        .max_tokens = max_tokens,
        .temperature = temperature };
    struct lm *lm = open_lm(f->loop, &options);
    int rc = lm_start(lm, &request, on_answer, on_delta, a, NULL, err);
    if (rc == 0)
        rc = loop_run_until(f->loop, &a->done, err);
    lm_close(lm);
    return rc;
}

struct expected {
    const char *pointer, *text; /* NULL: nothing is there */
};

static void assert_sent(struct fake *f, const struct dialect_case *d, const struct expected *e)
{
    cleanup_answer struct answer a = { 0 };
    assert_ok(send_conversation(f, d, 0.5, 100, &a, err));
    assert_answered(&a, ANSWER);
    cleanup_json struct json_object *request = last_request(f);
    for (; e->pointer; e++) {
        const char *is = text_at(request, e->pointer);
        if ((is == NULL) != (e->text == NULL) || (is && strcmp(is, e->text) != 0))
            fail_msg("%s: %s is %s, not %s", d->provider, e->pointer, is, e->text);
    }
}

static void openai_gets_parts_in_its_own_form(void **state)
{
    static const struct expected expected[] = {
        { "/path", "/v1/chat/completions" },
        { "/body/model", "ok" },
        { "/body/max_tokens", "100" },
        { "/body/temperature", "0.5" },
        { "/body/messages/0/role", "system" },
        { "/body/messages/1/content", "hi" },
        { "/body/messages/4/content/0/text", "what is \"this\"?" },
        { "/body/messages/4/content/1/image_url/url", "data:image/png;base64," PNG_BASE64 },
        { "/body/messages/4/content/2/file/file_data", "data:application/pdf;base64,JVBERi0=" },
        { NULL, NULL },
    };
    assert_sent(*state, &dialects[0], expected);
}

static void anthropic_gets_system_texts_apart_and_a_limit(void **state)
{
    static const struct expected expected[] = {
        { "/path", "/v1/messages" },
        { "/headers/anthropic-version", "2023-06-01" },
        { "/headers/authorization", NULL },
        { "/body/model", "ok" },
        { "/body/max_tokens", "100" },
        { "/body/temperature", "0.5" },
        { "/body/stream", NULL },
        { "/body/system", "be brief\n\nbe kind" },
        { "/body/messages/0/content", "hi" },
        { "/body/messages/1/role", "assistant" },
        { "/body/messages/2/role", "user" },
        { "/body/messages/2/content/0/text", "what is \"this\"?" },
        { "/body/messages/2/content/1/type", "image" },
        { "/body/messages/2/content/1/source/media_type", "image/png" },
        { "/body/messages/2/content/1/source/data", PNG_BASE64 },
        { "/body/messages/2/content/2/type", "document" },
        { "/body/messages/2/content/2/source/data", "JVBERi0=" },
        { "/body/messages/3", NULL },
        { NULL, NULL },
    };
    struct fake *f = *state;
    cleanup_answer struct answer a = { 0 };
    assert_sent(f, &dialects[1], expected);
    assert_ok(send_conversation(f, &dialects[1], -1, 0, &a, err));
    cleanup_json struct json_object *request = last_request(f);
    assert_string_equal(text_at(request, "/body/max_tokens"), "16384");
    assert_null(text_at(request, "/body/temperature"));
}

static void gemini_gets_the_model_in_the_url_and_roles_of_its_own(void **state)
{
    static const struct expected expected[] = {
        { "/path", "/v1beta/models/ok:generateContent" },
        { "/headers/authorization", NULL },
        { "/body/model", NULL },
        { "/body/generationConfig/maxOutputTokens", "100" },
        { "/body/generationConfig/temperature", "0.5" },
        { "/body/systemInstruction/parts/0/text", "be brief\n\nbe kind" },
        { "/body/contents/0/parts/0/text", "hi" },
        { "/body/contents/1/role", "model" },
        { "/body/contents/2/role", "user" },
        { "/body/contents/2/parts/0/text", "what is \"this\"?" },
        { "/body/contents/2/parts/1/inlineData/mimeType", "image/png" },
        { "/body/contents/2/parts/1/inlineData/data", PNG_BASE64 },
        { "/body/contents/2/parts/2/inlineData/mimeType", "application/pdf" },
        { NULL, NULL },
    };
    struct fake *f = *state;
    cleanup_answer struct answer a = { 0 }, b = { 0 };
    assert_sent(f, &dialects[2], expected);
    struct lm_options options = options_of(f, &dialects[2], "ok");
    options.stream = true;
    ask_once(f->loop, &options, &a);
    cleanup_json struct json_object *request = last_request(f);
    assert_string_equal(
        text_at(request, "/path"), "/v1beta/models/ok:streamGenerateContent?alt=sse");
    assert_string_equal(text_at(request, "/body/generationConfig"), "{ }");
}

/* A guest may name a model; what it names stays one segment of the path. */
static void a_models_name_cannot_lead_elsewhere(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_of(f, &dialects[2], "ok");
    cleanup_answer struct answer a = { 0 };
    struct lm *lm = open_lm(f->loop, &options);
    start(lm, "../../v1/x?key=1#", "x", 1, 0, &a);
    assert_ok(loop_run_until(f->loop, &a.done, err));
    cleanup_json struct json_object *request = last_request(f);
    assert_string_equal(
        text_at(request, "/path"), "/v1beta/models/..%2F..%2Fv1%2Fx%3Fkey%3D1%23:generateContent");
    struct lm_message message = { "user", "x", 1 };
    struct lm_request wrong = { .model = "..", .messages = &message, .message_count = 1 };
    assert_fails(ERROR_ARGUMENT, lm_start(lm, &wrong, on_answer, NULL, &a, NULL, err));
    lm_close(lm);
}

/* Parts that make no sense, or that a dialect cannot carry, are refused before anything is sent. */
static void wrong_parts_are_refused(void **state)
{
    static const struct {
        const char *provider, *role;
        struct lm_part part;
        enum error_code code;
    } cases[] = {
        { "openai", "user", { LM_PART_TEXT, NULL, "\xff", 1 }, ERROR_ARGUMENT },
        { "openai", "user", { LM_PART_IMAGE, NULL, "x", 1 }, ERROR_ARGUMENT },
        { "openai", "user", { LM_PART_IMAGE, "image/\"", "x", 1 }, ERROR_ARGUMENT },
        { "openai", "user", { LM_PART_IMAGE, "text/plain", "x", 1 }, ERROR_ARGUMENT },
        { "openai", "user", { LM_PART_IMAGE, "image/png", "", 0 }, ERROR_ARGUMENT },
        { "openai", "system", { LM_PART_IMAGE, "image/png", "x", 1 }, ERROR_ARGUMENT },
        { "openai", "user", { LM_PART_DOCUMENT, "text/plain", "x", 1 }, ERROR_UNSUPPORTED },
        { "anthropic", "user", { LM_PART_DOCUMENT, "audio/wav", "x", 1 }, ERROR_UNSUPPORTED },
        { "anthropic", "user", { LM_PART_DOCUMENT, "text/plain", "x", 1 }, ERROR_NONE },
        { "gemini", "user", { LM_PART_DOCUMENT, "audio/wav", "x", 1 }, ERROR_NONE },
        { "openai", "user", { LM_PART_IMAGE_URL, NULL, "https://a.b/", 12 }, ERROR_NONE },
        { "anthropic", "user", { LM_PART_IMAGE_URL, NULL, "https://a.b/", 12 }, ERROR_NONE },
        { "gemini", "user", { LM_PART_IMAGE_URL, NULL, "https://a.b/", 12 }, ERROR_UNSUPPORTED },
        { "openai", "user", { LM_PART_IMAGE_URL, NULL, "\xff", 1 }, ERROR_ARGUMENT },
        { "openai", "system", { LM_PART_IMAGE_URL, NULL, "https://a.b/", 12 }, ERROR_ARGUMENT },
    };
    struct fake *f = *state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct dialect_case d = { .provider = cases[i].provider };
        struct lm_options options = options_of(f, &d, "ok");
        struct lm_message message = {
            .role = cases[i].role, .parts = &cases[i].part, .part_count = 1
        };
        struct lm_request request = { .messages = &message, .message_count = 1 };
        cleanup_answer struct answer a = { 0 };
        struct error err = { 0 };
        struct lm *lm = open_lm(f->loop, &options);
        assert_int_equal(
            lm_start(lm, &request, on_answer, NULL, &a, NULL, &err), -(int)cases[i].code);
        lm_close(lm);
    }
    assert_int_equal(fake_stat(f, "requests"), 0);
}

/* ---- what only one of them says ---- */

/* An answer that is withheld says why, blocked prompts included; a call of a tool is not text. */
static void withheld_answers_say_why(void **state)
{
    static const struct {
        const char *model, *words;
        bool stream;
    } cases[] = {
        { "anthropic/stopped", "content_filter", false },
        { "anthropic/tool", "tool_calls", false },
        { "gemini/stopped", "content_filter", false },
        { "gemini/blocked", "the prompt was blocked (PROHIBITED_CONTENT)", false },
        { "gemini/blocked", "the prompt was blocked (PROHIBITED_CONTENT)", true },
    };
    struct fake *f = *state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct lm_options options = options_for(f, cases[i].model);
        cleanup_answer struct answer a = { 0 };
        options.stream = cases[i].stream;
        ask_once(f->loop, &options, &a);
        assert_failed(&a, ERROR_MODEL_REPLY, cases[i].words);
    }
}

/* Both keep the system apart, so that there must be something else. */
static void a_conversation_of_the_system_alone_is_refused(void **state)
{
    struct fake *f = *state;
    struct lm_message message = { "system", "x", 1 };
    struct lm_request request = { .messages = &message, .message_count = 1 };
    for (size_t i = 1; i < array_length(dialects); i++) {
        struct lm_options options = options_of(f, &dialects[i], "ok");
        cleanup_answer struct answer a = { 0 };
        struct lm *lm = open_lm(f->loop, &options);
        assert_fails(ERROR_ARGUMENT, lm_start(lm, &request, on_answer, NULL, &a, NULL, err));
        lm_close(lm);
    }
}

#define server_test(f) cmocka_unit_test_setup_teardown(f, with_server, without_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        server_test(every_dialect_gives_text_and_usage),
        server_test(every_dialect_understands_a_dribbling_stream),
        server_test(every_dialect_understands_other_shapes),
        server_test(every_dialect_estimates_what_is_not_counted),
        server_test(every_dialect_tells_bad_replies_apart),
        server_test(every_dialect_tries_again_what_may_pass),
        cmocka_unit_test(every_dialect_names_its_key),
        server_test(every_dialect_gives_up_a_dead_stream),
        server_test(every_dialect_waits_for_a_slow_first_token),
        server_test(every_dialect_is_cancelled),
        server_test(openai_gets_parts_in_its_own_form),
        server_test(anthropic_gets_system_texts_apart_and_a_limit),
        server_test(gemini_gets_the_model_in_the_url_and_roles_of_its_own),
        server_test(a_models_name_cannot_lead_elsewhere),
        server_test(wrong_parts_are_refused),
        server_test(withheld_answers_say_why),
        server_test(a_conversation_of_the_system_alone_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
