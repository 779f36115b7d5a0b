/* serve/native/run_options.c: see run_options.h.
 *
 * The options are those that a task of a batch may have, without those that name something of this
 * machine. Values that would do so are refused, too: files, programs as models, functions of the
 * program. What the operator has set explicitly is the most that a client may ask for.
 */
#include "serve/native/run_options.h"

#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/options.h"
#include "serve/access/spending.h"
#include "serve/sandbox/sandbox.h"

enum { RUN_TEXT = 240 };

static const droste_option *run_option(const char *name)
{
    /* Saved files would land in a directory of the server. */
    static const char *const kept[] = { "artifacts" };
    for (size_t i = 0; i < array_length(kept); i++)
        if (strcmp(kept[i], name) == 0)
            return NULL;
    const droste_option *o = option_named(name);
    return o && o->task && !o->local && !o->secret ? o : NULL;
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
    if (strcmp(o->name, "client-tools") == 0 && value[strspn(value, " \t\r\n")] != '[')
        return "expected a list of functions";
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
        "timeout", "execute-timeout", "broker-timeout", "max-cost", "ask-cost", "max-input-tokens",
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

/* Why a client may not ask for this: the error's code, with its text. NULL: it may. */
static const char *run_refusal(
    struct server *s, const droste_option *o, const char *value, char text[RUN_TEXT])
{
    const char *fault = run_value_fault(o, value);
    double most, asked;
    if (fault) {
        snprintf(text, RUN_TEXT, "%s: %s", o->name, fault);
        return "argument";
    }
    if (!run_most(s->d, o, &most) ||
        (run_number(o, value, &asked) && asked <= most && (asked > 0 || !run_zero_is_none(o))))
        return NULL;
    const char *set = droste_get(s->d, o->name);
    snprintf(
        text, RUN_TEXT, "%s is at most %.40s on this server", o->name, set ? set : o->fallback);
    return "limit";
}

/* The life of a sandbox limits the run, too. */
static void run_put_timeout(
    struct server *s, const struct account *account, double asked, struct buf *words)
{
    double most = s->options->life_seconds, of_key = account->key.limits.life_seconds;
    char text[32];
    if (of_key > 0 && of_key < most)
        most = of_key;
    snprintf(text, sizeof text, "%.3f", asked > 0 && asked < most ? asked : most);
    sandbox_setting(words, "timeout", text);
}

/* Of a key with a limit, a run costs at most what it has held for it. */
static void run_put_cost(double held, struct buf *words)
{
    char text[32];
    if (held <= 0)
        return;
    snprintf(text, sizeof text, "%.9f", held);
    sandbox_setting(words, "max-cost", text);
}

static bool run_put(struct request *r, const droste_option *o, const char *value, struct buf *words)
{
    char text[RUN_TEXT];
    const char *code = run_refusal(r->server, o, value, text);
    if (code)
        request_refuse(r, 400, code, "%s", text);
    else
        sandbox_setting(words, o->name, value);
    return !code;
}

bool run_options(struct request *r, struct json_object *options, struct buf *words)
{
    static const struct option_rules rules = { run_option, 400, "argument", run_put };
    return options_put(r, &rules, options, words);
}

/* The most that the run may cost, by its options or the server's: *cost; 0: no limit. */
static bool run_settings_but_cost(
    struct request *r, struct json_object *options, struct buf *words, double *out_cost)
{
    struct server *s = r->server;
    struct json_object *asked = NULL;
    double timeout = 0, cost = 0;
    droste_get_number(s->d, "timeout", &timeout);
    droste_get_number(s->d, "max-cost", &cost);
    if (!run_options(r, options, words))
        return false;
    if (options && json_object_object_get_ex(options, "timeout", &asked))
        droste_parse_seconds(json_object_get_string(asked), &timeout);
    if (options && json_object_object_get_ex(options, "max-cost", &asked))
        cost = json_object_get_double(asked);
    run_put_timeout(s, r->account, timeout, words);
    sandbox_put_limits(r, words);
    *out_cost = cost;
    return true;
}

bool run_settings(struct request *r, struct json_object *options, struct buf *words)
{
    double cost;
    if (!run_settings_but_cost(r, options, words, &cost) || !spending_hold(r, cost))
        return false;
    run_put_cost(r->held_cost, words);
    return true;
}

bool run_settings_queued(struct request *r, struct json_object *options, struct buf *words)
{
    double cost, most = r->account->key.limits.cost;
    if (!run_settings_but_cost(r, options, words, &cost))
        return false;
    if (most > 0)
        run_put_cost(cost > 0 ? fmin(cost, most) : most, words);
    return true;
}

/* ---- tasks of batches ---- */

int runs_check_settings(struct server *s, const char *const *settings, droste_error *err)
{
    char text[RUN_TEXT];
    for (size_t i = 0; settings && settings[i]; i += 2) {
        const char *name = settings[i], *value = settings[i + 1], *code = "argument";
        const droste_option *o = run_option(name);
        if (o && !value[0] && !strchr(o->value, '='))
            continue; /* removes what the batch has; "" is not a number */
        if (o)
            code = run_refusal(s, o, value, text);
        else
            snprintf(text, sizeof text, "'%.64s' is not an option that a client may set", name);
        if (!code)
            continue;
        *err = (droste_error){ .code = DROSTE_ERROR_ARGUMENT };
        snprintf(err->text, sizeof err->text, "%s", text);
        return -1;
    }
    return 0;
}

/* The last value. */
static const char *run_value_of(const char *const *settings, const char *name)
{
    const char *value = NULL;
    for (size_t i = 0; settings && settings[i]; i += 2)
        if (strcmp(settings[i], name) == 0)
            value = settings[i + 1];
    return value;
}

bool runs_put_limits(struct server *s, struct account *account, const char *const *settings,
    double *held, struct buf *words)
{
    double timeout = 0, cost = 0;
    const char *asked_timeout = run_value_of(settings, "timeout");
    const char *asked_cost = run_value_of(settings, "max-cost");
    droste_get_number(s->d, "timeout", &timeout);
    droste_get_number(s->d, "max-cost", &cost);
    if (asked_timeout)
        droste_parse_seconds(asked_timeout, &timeout);
    if (asked_cost)
        cost = text_to_double(asked_cost, &(char *){ NULL });
    *held = spending_take(s, account, cost);
    if (*held < 0)
        return false;
    run_put_timeout(s, account, timeout, words);
    run_put_cost(*held, words);
    if (account->key.limits.memory[0])
        sandbox_setting(words, "memory", account->key.limits.memory);
    if (account->key.limits.cpus[0])
        sandbox_setting(words, "cpus", account->key.limits.cpus);
    return true;
}
