/* lm/provider.c: the table of providers, and which server and key a model uses.
 *
 * A provider's key and base URL are a pair: a key is never sent to a server that was not configured
 * together with it.
 */
#include "lm/provider.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/suggest.h"

#define ACCOUNT(name) offsetof(struct lm_options, name)
#define CHAT          "/chat/completions"
#define GENERATE      "/v1beta/models/{}:generateContent"
#define STREAM        "/v1beta/models/{}:streamGenerateContent?alt=sse"
#define BEARER        "Authorization: Bearer "

static const struct provider providers[] = {
    { "openai", NULL, "OpenAI", &dialect_openai, "https://api.openai.com/v1", CHAT, NULL,
        "OPENAI_BASE_URL", "OPENAI_API_KEY", BEARER, true, true, false, ACCOUNT(openai) },
    { "anthropic", NULL, "Anthropic", &dialect_anthropic, "https://api.anthropic.com",
        "/v1/messages", NULL, "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "x-api-key: ", true, false,
        false, ACCOUNT(anthropic) },
    { "gemini", "google", "Gemini", &dialect_gemini, "https://generativelanguage.googleapis.com",
        GENERATE, STREAM, "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY", "x-goog-api-key: ", true,
        false, false, ACCOUNT(gemini) },
    { "azure", NULL, "Azure OpenAI", &dialect_openai, NULL, "/openai/v1" CHAT, NULL,
        "AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY", "api-key: ", true, true, false,
        ACCOUNT(azure) },
    { "openrouter", NULL, "OpenRouter", &dialect_openai, "https://openrouter.ai/api/v1", CHAT, NULL,
        "OPENROUTER_BASE_URL", "OPENROUTER_API_KEY", BEARER, true, false, true,
        ACCOUNT(openrouter) },
    /* Models of the catalog are "@PROVIDER/MODEL" (portkey.ai/docs, "Headers"). */
    { "portkey", NULL, "Portkey", &dialect_openai, "https://api.portkey.ai/v1", CHAT, NULL,
        "PORTKEY_BASE_URL", "PORTKEY_API_KEY", "x-portkey-api-key: ", true, false, true,
        ACCOUNT(portkey) },
    { "vllm", NULL, "vLLM", &dialect_openai, "http://127.0.0.1:8000/v1", CHAT, NULL,
        "VLLM_BASE_URL", "VLLM_API_KEY", BEARER, false, false, true, ACCOUNT(vllm) },
};

static bool begins_with_word(const char *model, const char *word)
{
    size_t n = word ? strlen(word) : 0;
    return n > 0 && strncmp(model, word, n) == 0 && model[n] == '/';
}

const struct provider *provider_named(const char *model)
{
    for (size_t i = 0; i < array_length(providers); i++)
        if (begins_with_word(model, providers[i].name) ||
            begins_with_word(model, providers[i].alias))
            return &providers[i];
    return NULL;
}

const char *provider_name_at(size_t i)
{
    return i < array_length(providers) ? providers[i].name : NULL;
}

static bool is_nonempty(const char *text)
{
    return text && text[0];
}

static int refuse_provider(const char *model, const char *slash, struct error *err)
{
    char names[120] = "";
    struct suggestion s = { .typed = model, .len = (size_t)(slash - model) };
    for (size_t i = 0; i < array_length(providers); i++) {
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", providers[i].name);
        suggestion_consider(&s, providers[i].name);
    }
    int word = slash - model < 32 ? (int)(slash - model) : 32;
    const char *best = suggestion_best(&s);
    return error_set(err, ERROR_CONFIG,
        "'%.*s' is not a provider%s%s%s: begin the name of a model with %s, or set base-url to "
        "your server",
        word, model, best ? " (did you mean " : "", best ? best : "", best ? "?)" : "", names);
}

int provider_find(const struct lm_options *options, const char *model, const struct provider **out,
    const char **rest, struct error *err)
{
    const char *slash = strchr(model, '/');
    *out = provider_named(model);
    *rest = *out ? slash + 1 : model;
    if (*out)
        return 0;
    if (slash && !is_nonempty(options->openai.base_url))
        return refuse_provider(model, slash, err);
    *out = &providers[0];
    return 0;
}

bool provider_has_vendors(const struct provider *p, const struct lm_options *options)
{
    return p->has_vendors ||
           (p->account == ACCOUNT(openai) && is_nonempty(options->openai.base_url));
}

void lm_list_needs(struct buf *out)
{
    for (size_t i = 0; i < array_length(providers); i++) {
        const struct provider *p = &providers[i];
        buf_printf(out, "%s%s %s", i ? ", " : "", p->name,
            p->needs_key ? p->key_variable : p->url_variable);
        if (!p->url)
            buf_printf(out, " and %s", p->url_variable);
    }
}

struct lm_account provider_account(const struct provider *p, const struct lm_options *options)
{
    const struct lm_account *own = (const void *)((const char *)options + p->account);
    /* vLLM servers can also be configured through `base-url`. */
    if (p->account == ACCOUNT(vllm) && !is_nonempty(own->base_url) &&
        is_nonempty(options->openai.base_url))
        own = &options->openai;
    return (struct lm_account){ is_nonempty(own->base_url) ? own->base_url : "",
        is_nonempty(own->api_key) ? own->api_key : "" };
}
