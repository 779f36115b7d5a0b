/* lm/sampling.c: translates sampling parameters into each dialect's names. */
#include "lm/sampling.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/text.h"

/* Parameters that several dialects have, by their names there; NULL: not available
 * (docs.anthropic.com, "Create a Message"; ai.google.dev, "GenerationConfig"; August 2026). */
static const struct parameter {
    const char *names[3];
    bool is_list; /* Anthropic and Gemini take a list where OpenAI also takes a single text */
} parameters[] = {
    { { "temperature", "temperature", "temperature" }, false },
    { { "top_p", "top_p", "topP" }, false },
    { { "top_k", "top_k", "topK" }, false },
    { { "stop", "stop_sequences", "stopSequences" }, true },
    { { "seed", NULL, "seed" }, false },
    { { "presence_penalty", NULL, "presencePenalty" }, false },
    { { "frequency_penalty", NULL, "frequencyPenalty" }, false },
};

/* Parameters that requests set themselves, or that would change the answer's format. */
static const struct {
    const char *name, *instead;
} refused[] = {
    { "model", "model says it" },
    { "messages", "the run sets them" },
    { "stream", "use the setting stream" },
    { "stream_options", "use the setting stream" },
    { "max_tokens", "use the setting max-tokens" },
    { "max_completion_tokens", "use the setting max-tokens" },
    { "n", "a call has one answer" },
    { "tools", "code calls tools, not the model" },
    { "tool_choice", "code calls tools, not the model" },
    { "functions", "code calls tools, not the model" },
    { "logprobs", "an answer must be text" },
};

static const struct parameter *find_parameter(const char *name)
{
    for (size_t i = 0; i < array_length(parameters); i++)
        if (strcmp(parameters[i].names[SAMPLING_OPENAI], name) == 0)
            return &parameters[i];
    return NULL;
}

static int sampling_check_name(const char *name, struct error *err)
{
    for (size_t i = 0; i < array_length(refused); i++)
        if (strcmp(refused[i].name, name) == 0)
            return error_set(err, ERROR_CONFIG, "sampling: '%s' is not a sampling parameter: %s",
                name, refused[i].instead);
    if (name[0] == '\0' ||
        name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")])
        return error_set(
            err, ERROR_CONFIG, "sampling '%.60s': write NAME=VALUE, as in temperature=0.2", name);
    return 0;
}

/* The provider's name of a parameter; OpenAI's servers accept others, and refuse unknown ones. */
static int own_name(const char *name, enum sampling_names names, const char *title,
    const char **out, struct error *err)
{
    const struct parameter *p = find_parameter(name);
    *out = p ? p->names[names] : names == SAMPLING_OPENAI ? name : NULL;
    if (*out)
        return 0;
    return error_set(
        err, ERROR_CONFIG, "sampling: %s has no parameter '%.60s': remove it", title, name);
}

static bool is_json(const char *text)
{
    return json_check(text, strlen(text), &json_limits_small, NULL) == 0;
}

static void append_value(struct buf *out, const char *value, bool in_list)
{
    bool json = is_json(value), wrapped = in_list && !(json && value[0] == '[');
    if (wrapped)
        buf_putc(out, '[');
    if (json)
        buf_puts(out, value);
    else
        json_append_string(out, value, strlen(value));
    if (wrapped)
        buf_putc(out, ']');
}

static int take_temperature(const char *value, double *out, struct error *err)
{
    char *end;
    *out = text_to_double(value, &end);
    if (value[0] < '0' || value[0] > '9' || *end || !(*out <= 100))
        return error_set(err, ERROR_CONFIG,
            "sampling: temperature=%.40s: write a number of at least 0, as in 0.2", value);
    return 0;
}

static int take_one(struct sampling *s, const char *text, enum sampling_names names,
    const char *title, struct error *err)
{
    const char *equals = strchr(text, '='), *own = NULL;
    cleanup_free char *name = strndup(text, equals ? (size_t)(equals - text) : strlen(text));
    if (!name)
        return error_memory(err);
    int rc = sampling_check_name(equals ? name : "", err);
    if (rc == 0 && !text_is_utf8(equals + 1, strlen(equals + 1), NULL))
        rc = error_set(err, ERROR_CONFIG, "sampling: the value of '%.60s' is not UTF-8", name);
    if (rc == 0 && strcmp(name, "temperature") == 0)
        return take_temperature(equals + 1, &s->temperature, err);
    if (rc == 0)
        rc = own_name(name, names, title, &own, err);
    if (rc < 0)
        return rc;
    const struct parameter *p = find_parameter(name);
    buf_printf(&s->members, ",\"%s\":", own);
    append_value(&s->members, equals + 1, p && p->is_list && names != SAMPLING_OPENAI);
    return 0;
}

/* Of several settings of one parameter the last counts, as of other settings. */
static bool is_set_later(const struct list *options, size_t index)
{
    const char *text = options->items[index];
    size_t len = strcspn(text, "=");
    for (size_t i = index + 1; i < options->count; i++)
        if (strcspn(options->items[i], "=") == len && strncmp(options->items[i], text, len) == 0)
            return true;
    return false;
}

int sampling_parse(const struct list *options, enum sampling_names names, const char *title,
    struct sampling *out, struct error *err)
{
    *out = (struct sampling){ .temperature = -1 };
    for (size_t i = 0; options && i < options->count; i++) {
        int rc = is_set_later(options, i) ? 0 : take_one(out, options->items[i], names, title, err);
        if (rc < 0)
            return rc;
    }
    return buf_failed(&out->members) ? error_memory(err) : 0;
}

void sampling_free(struct sampling *s)
{
    buf_free(&s->members);
}
