/* serve/run_options.c: the options that a client may set for its run.
 *
 * They are those that a task of a batch may have, without those that name something of this
 * machine. Values that would do so are refused, too: files, programs as models, functions of the
 * program. What the operator has set explicitly is the most that a client may ask for.
 */
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/runs.h"
#include "serve/server.h"
#include "serve/spending.h"

static const droste_option *run_option(const char *name)
{
    /* Saved files would land in a directory of the server. */
    static const char *const kept[] = { "artifacts" };
    for (size_t i = 0; i < array_length(kept); i++)
        if (strcmp(kept[i], name) == 0)
            return NULL;
    for (size_t i = 0; droste_option_at(i); i++) {
        const droste_option *o = droste_option_at(i);
        if (strcmp(o->name, name) == 0)
            return o->task && !o->local && !o->secret ? o : NULL;
    }
    return NULL;
}

/* A provider's model. Other kinds ("replay:FILE", "exec:PROGRAM", "callback") have a colon that no
 * slash precedes, as OpenAI's fine-tuned models do. */
static bool run_model_is_remote(const droste_option *o, const char *value)
{
    bool of_depth = strcmp(o->value, "N=MODEL") == 0;
    const char *equals = of_depth ? strchr(value, '=') : NULL;
    const char *model = equals ? equals + 1 : value;
    if (!of_depth && strcmp(o->value, "MODEL") != 0)
        return true;
    if (strncmp(model, "ft:", 3) == 0)
        return true;
    return model[strcspn(model, ":/")] != ':' && strcmp(model, "callback") != 0;
}

/* NULL: a client may ask for it. */
static const char *run_value_fault(const droste_option *o, const char *value)
{
    if (value[0] == '@')
        return "a value that begins with '@' names a file of the server";
    if (!run_model_is_remote(o, value))
        return "the model must be a provider's: PROVIDER/MODEL, or the name of one of OpenAI's";
    if (strcmp(o->name, "answer-schema") == 0 && value[strspn(value, " \t\r\n")] != '{')
        return "the schema must be an object, not the name of a file";
    if (strcmp(o->name, "select") == 0 && strncmp(value, "callback", 8) == 0)
        return "a function of the server's program cannot choose";
    return NULL;
}

/* ---- limits ---- */

static bool run_number(const droste_option *o, const char *value, double *out)
{
    char *end = NULL;
    if (strcmp(o->value, "SECONDS") == 0)
        return droste_parse_seconds(value, out);
    *out = text_to_double(value, &end);
    return end != value && *end == '\0';
}

/* Options for which 0 stands for no limit. */
static bool run_zero_is_none(const droste_option *o)
{
    static const char *const names[] = { "max-tokens", "sub-max-tokens", "llm-call-timeout",
        "timeout", "execute-timeout", "broker-timeout", "max-cost", "max-input-tokens",
        "max-output-tokens", "max-total-tokens", "max-errors" };
    for (size_t i = 0; i < array_length(names); i++)
        if (strcmp(o->name, names[i]) == 0)
            return true;
    return false;
}

/* What the server's settings limit; false: nothing. */
static bool run_most(droste *d, const droste_option *o, double *most)
{
    static const char *const unlimited[] = { "compaction", "model-window" };
    for (size_t i = 0; i < array_length(unlimited); i++)
        if (strcmp(o->name, unlimited[i]) == 0)
            return false;
    bool found = droste_get_number(d, o->name, most);
    if (!found && strcmp(o->name, "sub-max-tokens") == 0)
        found = droste_get_number(d, "max-tokens", most);
    return found && (*most > 0 || !run_zero_is_none(o));
}

static bool run_check_most(struct request *r, const droste_option *o, const char *value)
{
    double most, asked;
    if (!run_most(r->server->d, o, &most))
        return true;
    if (run_number(o, value, &asked) && asked <= most && (asked > 0 || !run_zero_is_none(o)))
        return true;
    request_refuse(r, 400, "limit", "%s is at most %g on this server", o->name, most);
    return false;
}

/* The life of a sandbox limits the run, too. */
static void run_put_timeout(struct request *r, double asked, struct buf *words)
{
    double most = r->server->options->life_seconds, of_key = r->account->key.limits.life_seconds;
    char text[32];
    if (of_key > 0 && of_key < most)
        most = of_key;
    snprintf(text, sizeof text, "%.3f", asked > 0 && asked < most ? asked : most);
    sandbox_setting(words, "timeout", text);
}

/* Of a key with a limit, a run costs at most what it has held for it. */
static bool run_put_cost(struct request *r, struct json_object *options, struct buf *words)
{
    double most = 0;
    char text[32];
    struct json_object *asked = options ? json_object_object_get(options, "max-cost") : NULL;
    droste_get_number(r->server->d, "max-cost", &most);
    if (asked)
        most = json_object_get_double(asked);
    if (!spending_hold(r, most))
        return false;
    if (r->held_cost > 0) {
        snprintf(text, sizeof text, "%.9f", r->held_cost);
        sandbox_setting(words, "max-cost", text);
    }
    return true;
}

/* ---- values ---- */

/* One value as the text of a setting. False: it is no such value, and was refused. */
static bool run_put_value(
    struct request *r, const droste_option *o, struct json_object *value, struct buf *words)
{
    enum json_type type = json_object_get_type(value);
    bool is_schema = type == json_type_object && strcmp(o->name, "answer-schema") == 0;
    bool is_plain = type == json_type_string || type == json_type_int || type == json_type_double;
    const char *text = type == json_type_boolean ? json_object_get_boolean(value) ? "yes" : "no"
                       : is_schema               ? json_text(value, NULL)
                       : is_plain                ? json_object_get_string(value)
                                                 : NULL;
    if (!text ||
        (type == json_type_string && strlen(text) != (size_t)json_object_get_string_len(value))) {
        request_refuse(r, 400, "argument", "the option %s has no value of this kind", o->name);
        return false;
    }
    const char *fault = run_value_fault(o, text);
    if (fault) {
        request_refuse(r, 400, "argument", "%s: %s", o->name, fault);
        return false;
    }
    if (!run_check_most(r, o, text))
        return false;
    sandbox_setting(words, o->name, text);
    return true;
}

/* Options that take several values have a list of them. */
static bool run_put_option(
    struct request *r, const char *name, struct json_object *value, struct buf *words)
{
    const droste_option *o = run_option(name);
    if (!o) {
        request_refuse(r, 400, "argument", "'%.64s' is no option that a client may set", name);
        return false;
    }
    if (!json_object_is_type(value, json_type_array))
        return run_put_value(r, o, value, words);
    for (size_t i = 0; i < json_length(value); i++)
        if (!run_put_value(r, o, json_object_array_get_idx(value, i), words))
            return false;
    return true;
}

bool run_settings(struct request *r, struct json_object *options, struct buf *words)
{
    const struct key_limits *limits = &r->account->key.limits;
    double timeout = 0;
    droste_get_number(r->server->d, "timeout", &timeout);
    if (options) {
        json_object_object_foreach(options, name, value)
        {
            if (!run_put_option(r, name, value, words))
                return false;
            const char *text = strcmp(name, "timeout") == 0 ? json_object_get_string(value) : NULL;
            if (text)
                droste_parse_seconds(text, &timeout);
        }
    }
    run_put_timeout(r, timeout, words);
    if (!run_put_cost(r, options, words))
        return false;
    if (limits->memory[0])
        sandbox_setting(words, "memory", limits->memory);
    if (limits->cpus[0])
        sandbox_setting(words, "cpus", limits->cpus);
    return true;
}
