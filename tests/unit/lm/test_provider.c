/* From a model's name to its provider, server and key. */
#include "fixture.h"

#define KEY "sk-of-its-own-0123"

/* What lm_open says of a name, without a base URL unless one is given. */
static void opens(
    struct loop *loop, const struct lm_options *options, const char *name, const char *where)
{
    cleanup_buf struct buf line = { 0 };
    struct lm *lm = open_lm(loop, options);
    lm_describe(lm, &line);
    assert_string_equal(lm_name(lm), name);
    assert_string_equal(buf_text(&line), where);
    lm_close(lm);
}

static void refuses(struct loop *loop, const struct lm_options *options, const char *words)
{
    struct lm *lm = NULL;
    struct error err = { 0 };
    assert_int_equal(lm_open(loop, options, &lm, &err), -ERROR_CONFIG);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    assert_null(strstr(err.text, KEY));
}

static void each_provider_has_its_server_and_its_key(void **state)
{
    static const struct {
        const char *model, *name, *server;
    } cases[] = {
        { "gpt-5-mini", "openai/gpt-5-mini", "https://api.openai.com/v1" },
        { "openai/gpt-5-mini", "openai/gpt-5-mini", "https://api.openai.com/v1" },
        { "anthropic/claude-x", "anthropic/claude-x", "https://api.anthropic.com" },
        { "gemini/gemini-x", "gemini/gemini-x", "https://generativelanguage.googleapis.com" },
        { "google/gemini-x", "gemini/gemini-x", "https://generativelanguage.googleapis.com" },
        { "azure/mine", "azure/mine", "https://mine.openai.azure.com" },
        { "openrouter/qwen/x:free", "openrouter/qwen/x:free", "https://openrouter.ai/api/v1" },
        { "portkey/@openai/x", "portkey/@openai/x", "https://api.portkey.ai/v1" },
        { "vllm/qwen/x", "vllm/qwen/x", "http://127.0.0.1:8000/v1" },
    };
    struct fake *f = *state;
    struct lm_account own = { NULL, KEY };
    for (size_t i = 0; i < array_length(cases); i++) {
        struct lm_options options = { .model = cases[i].model,
            .openai = own,
            .anthropic = own,
            .gemini = own,
            .azure = { "https://mine.openai.azure.com", KEY },
            .openrouter = own,
            .portkey = own,
            .vllm = own };
        char where[100];
        snprintf(where, sizeof where, "%s, a key is set", cases[i].server);
        opens(f->loop, &options, cases[i].name, where);
    }
}

/* The error names the variable; keys and servers of others do not help. */
static void a_missing_key_is_named(void **state)
{
    static const struct {
        const char *model, *words;
    } cases[] = {
        { "gpt-5-mini", "OPENAI_API_KEY" },
        { "anthropic/claude-x", "ANTHROPIC_API_KEY" },
        { "gemini/gemini-x", "GEMINI_API_KEY" },
        { "openrouter/qwen/x", "OPENROUTER_API_KEY" },
        { "portkey/@openai/x", "PORTKEY_API_KEY" },
        { "azure/mine", "AZURE_OPENAI_ENDPOINT" },
    };
    struct fake *f = *state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct lm_options options = { .model = cases[i].model, .vllm = { NULL, KEY } };
        refuses(f->loop, &options, cases[i].words);
        options.openai.base_url = f->url;
        options.openai.api_key = i > 0 ? KEY : NULL;
        if (i > 0)
            refuses(f->loop, &options, cases[i].words);
    }
    struct lm_options options = { .model = "azure/mine", .azure = { "https://x.azure.com", NULL } };
    refuses(f->loop, &options, "AZURE_OPENAI_API_KEY");
}

/* The list for people has each provider with its key, and with its server where it has none of its
 * own. */
static void the_needs_of_each_are_listed(void **state)
{
    cleanup_buf struct buf list = { 0 };
    lm_list_needs(&list);
    assert_string_equal(buf_text(&list),
        "openai OPENAI_API_KEY, anthropic ANTHROPIC_API_KEY, gemini GEMINI_API_KEY, "
        "azure AZURE_OPENAI_API_KEY and AZURE_OPENAI_ENDPOINT, openrouter OPENROUTER_API_KEY, "
        "portkey PORTKEY_API_KEY, "
        "vllm VLLM_BASE_URL");
}

/* A word that is not a provider's, without a server that could know it. */
static void an_unknown_provider_is_refused_with_the_list(void **state)
{
    struct fake *f = *state;
    struct lm_options options = { .model = "mistral/large", .openai = { NULL, KEY } };
    refuses(f->loop, &options,
        "'mistral' is not a provider: begin the name of a model with openai, anthropic, gemini, "
        "azure, openrouter, portkey, vllm, or set base-url");
    options.openai.base_url = f->url;
    struct lm *lm = open_lm(f->loop, &options);
    assert_string_equal(lm_name(lm), "openai/mistral/large");
    lm_close(lm);
}

/* Each provider's key goes to its own server: what one does not have is not lent by another. */
static void a_key_goes_to_its_own_server_only(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "vllm/leak");
    cleanup_answer struct answer a = { 0 }, b = { 0 }, c = { 0 };
    options.vllm = (struct lm_account){ f->url, NULL };
    ask_once(f->loop, &options, &a);
    assert_answered(&a, "your key is , is it not? s");
    options.vllm.api_key = KEY;
    ask_once(f->loop, &options, &b);
    assert_answered(&b, "your key is ******************, is it not? s");
    /* With base-url's server in its place, base-url's key belongs to it. */
    options.vllm = (struct lm_account){ NULL, KEY };
    ask_once(f->loop, &options, &c);
    assert_answered(&c, "your key is ********************, is it not? s");
}

static void assert_path(const struct fake *f, const char *path)
{
    cleanup_json struct json_object *stats = fake_stats(f);
    struct json_object *last = json_get_typed(stats, "last", json_type_object);
    assert_string_equal(json_get_string(last, "path", ""), path);
}

/* The newer interface has the deployment in the body, the older one in the path. */
static void azure_is_asked_in_both_of_its_forms(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "azure/ok");
    cleanup_answer struct answer a = { 0 }, b = { 0 };
    ask_once(f->loop, &options, &a);
    assert_int_equal(a.error.code, ERROR_NONE);
    assert_path(f, "/openai/v1/chat/completions");
    options.azure_version = "2024-10-21";
    ask_once(f->loop, &options, &b);
    assert_int_equal(b.error.code, ERROR_NONE);
    assert_path(f, "/openai/deployments/ok/chat/completions?api-version=2024-10-21");
    options.azure_version = "2024 &x=";
    refuses(f->loop, &options, "not a version of Azure's");
}

/* A query in the base URL stays where it belongs. */
static void a_query_of_the_base_url_is_kept(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "gemini/ok");
    cleanup_answer struct answer a = { 0 };
    char url[100];
    snprintf(url, sizeof url, "%s/?team=a#part", f->root);
    options.gemini.base_url = url;
    options.stream = true;
    ask_once(f->loop, &options, &a);
    assert_int_equal(a.error.code, ERROR_NONE);
    assert_path(f, "/v1beta/models/ok:streamGenerateContent?alt=sse&team=a");
}

/* A call may name another model of the same provider; another provider's is not to be had. */
static void a_call_names_models_of_its_provider(void **state)
{
    struct fake *f = *state;
    struct lm_options options = options_for(f, "anthropic/ok");
    struct lm_message message = { "user", "12345678", 8 };
    struct lm_request request = {
        .model = "openai/ok", .messages = &message, .message_count = 1, .temperature = -1
    };
    cleanup_answer struct answer a = { 0 }, b = { 0 };
    struct lm *lm = open_lm(f->loop, &options);
    assert_fails(ERROR_ARGUMENT, lm_start(lm, &request, on_answer, NULL, &a, NULL, err));
    start(lm, "anthropic/nousage", "12345678", 8, 0, &a);
    assert_ok(loop_run_until(f->loop, &a.done, err));
    start(lm, "nousage", "12345678", 8, 0, &b);
    assert_ok(loop_run_until(f->loop, &b.done, err));
    lm_close(lm);
    assert_answered(&a, "12345678");
    assert_answered(&b, "12345678");
}

/* OpenRouter's models bear other providers' names, and who knows what a server of one's own has. */
static void some_servers_have_models_of_all_vendors(void **state)
{
    static const char *const models[] = { "openrouter/x", "vllm/x", "x" };
    struct fake *f = *state;
    for (size_t i = 0; i < array_length(models); i++) {
        struct lm_options options = options_for(f, models[i]);
        cleanup_answer struct answer a = { 0 };
        options.vllm.base_url = f->url;
        struct lm *lm = open_lm(f->loop, &options);
        start(lm, "anthropic/unknown", "x", 1, 0, &a);
        assert_ok(loop_run_until(f->loop, &a.done, err));
        lm_close(lm);
        assert_failed(&a, ERROR_MODEL_UNKNOWN, "'anthropic/unknown'");
    }
}

#define server_test(f) cmocka_unit_test_setup_teardown(f, with_server, without_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        server_test(each_provider_has_its_server_and_its_key),
        server_test(a_missing_key_is_named),
        cmocka_unit_test(the_needs_of_each_are_listed),
        server_test(an_unknown_provider_is_refused_with_the_list),
        server_test(a_key_goes_to_its_own_server_only),
        server_test(azure_is_asked_in_both_of_its_forms),
        server_test(a_query_of_the_base_url_is_kept),
        server_test(a_call_names_models_of_its_provider),
        server_test(some_servers_have_models_of_all_vendors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
