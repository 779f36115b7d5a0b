/* serve/sandbox/options.c: the options that a client may set for its sandbox.
 *
 * They are in one table: those that only concern the client's own code, and limits, of which the
 * server's own setting, or its default, is the most. What names a file, a program or an account of
 * this machine is not in it. A model is "callback": the client answers its calls (calls.c).
 * Destinations are those that the operator permits (network.c); `allow_net` of the request is short
 * for the option.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "serve/options.h"
#include "serve/sandbox/sandbox.h"
#include "serve/sandbox/volume.h"

enum sandbox_rule {
    RULE_FREE,
    RULE_MOST,     /* at most the server's setting, or the default of that */
    RULE_SET_MOST, /* at most the server's setting, if it was set */
    RULE_YES,      /* a restriction, which a client may add */
    RULE_CALLBACK,
    RULE_CODE,    /* not @FILE */
    RULE_VOLUME,  /* one of the client's */
    RULE_NETWORK, /* what the operator permits */
    RULE_DEVICE,  /* that of the key */
};

static const struct {
    const char *name;
    enum sandbox_rule rule;
} sandbox_options[] = {
    { "model", RULE_CALLBACK },
    { "sub-model", RULE_CALLBACK },
    { "allow-net", RULE_NETWORK },
    { "broker-timeout", RULE_FREE },
    { "checkpoint", RULE_FREE },
    { "cpu-time", RULE_SET_MOST },
    { "device", RULE_DEVICE },
    { "env-var", RULE_FREE },
    { "execute-timeout", RULE_SET_MOST },
    { "file-size", RULE_MOST },
    { "grace", RULE_FREE },
    { "helpers", RULE_FREE },
    { "literal-grep", RULE_FREE },
    { "max-llm-calls", RULE_MOST },
    { "max-tool-calls", RULE_FREE },
    { "memory", RULE_MOST },
    { "open-files", RULE_MOST },
    { "output-limit", RULE_MOST },
    { "processes", RULE_MOST },
    { "restore-name", RULE_FREE },
    { "result-size", RULE_MOST },
    { "results-limit", RULE_MOST },
    { "retries", RULE_MOST },
    { "rules", RULE_YES },
    { "setup-code", RULE_CODE },
    { "setup-each", RULE_FREE },
    { "timeout", RULE_SET_MOST },
    { "tmp-size", RULE_MOST },
    { "tool-timeout", RULE_FREE },
    { "volume-name", RULE_VOLUME },
};

/* -1: a client may not set it. */
static int sandbox_rule_of(const char *name)
{
    for (size_t i = 0; i < array_length(sandbox_options); i++)
        if (strcmp(sandbox_options[i].name, name) == 0)
            return (int)sandbox_options[i].rule;
    return -1;
}

static const droste_option *sandbox_option(const char *name)
{
    return sandbox_rule_of(name) < 0 ? NULL : option_named(name);
}

/* The number that a text stands for, as the library reads it. */
static bool sandbox_number(
    struct server *s, const char *name, const char *text, double *out, droste_error *err)
{
    if (!s->parser && droste_new(&s->parser, err) < 0)
        return false;
    return droste_set(s->parser, name, text, err) == 0 && droste_get_number(s->parser, name, out);
}

/* Calls that the client answers itself cost the server nothing. */
static bool sandbox_answers_itself(const struct request *r)
{
    struct json_object *options = json_get_typed(r->json, "options", json_type_object);
    return strcmp(json_get_string(options, "model", ""), "callback") == 0;
}

static bool sandbox_check_most(
    struct request *r, const droste_option *o, const char *value, bool by_default)
{
    double most = 0, asked = 0;
    droste_error err = { 0 };
    if (!sandbox_number(r->server, o->name, value, &asked, &err)) {
        request_refuse(r, 400, "argument", "%s: %s", o->name, err.text);
        return false;
    }
    bool limited = droste_get_number(r->server->d, o->name, &most);
    if (!limited && by_default)
        limited = sandbox_number(r->server, o->name, o->fallback, &most, &err);
    /* 0 stands for no limit where a limit is not there by default */
    if (!limited || (!by_default && most == 0) || (asked <= most && (asked > 0 || by_default)))
        return true;
    const char *text = droste_get(r->server->d, o->name);
    request_refuse(r, 400, "limit", "%s is at most %s on this server", o->name,
        text && *text ? text : o->fallback);
    return false;
}

static const char *sandbox_fault(enum sandbox_rule rule, const char *value)
{
    if (rule == RULE_CALLBACK && strcmp(value, "callback") != 0)
        return "the model of a sandbox is \"callback\", whose calls the client answers";
    if (rule == RULE_CODE && value[0] == '@')
        return "a value that begins with '@' names a file of the server";
    if (rule == RULE_YES && strcmp(value, "yes") != 0)
        return "a client can only turn it on";
    return NULL;
}

/* The same text, because each choice of devices takes a zygote of its own. */
static bool sandbox_put_device(struct request *r, const char *value, struct buf *words)
{
    const char *own = r->account->key.limits.device;
    if (*own && strcmp(value, own) == 0) {
        sandbox_setting(words, "device", value);
        return true;
    }
    request_refuse(r, 403, "permission",
        "device '%.60s': the operator does not permit it; the key's --limit device=%.60s would",
        value, value);
    return false;
}

static bool sandbox_put_option(
    struct request *r, const droste_option *o, const char *value, struct buf *words)
{
    enum sandbox_rule rule = (enum sandbox_rule)sandbox_rule_of(o->name);
    const char *fault = sandbox_fault(rule, value);
    if (fault) {
        request_refuse(r, 400, "argument", "%s: %s", o->name, fault);
        return false;
    }
    bool is_limit = rule == RULE_MOST || rule == RULE_SET_MOST;
    bool own = strcmp(o->name, "max-llm-calls") == 0 && sandbox_answers_itself(r);
    if (is_limit && !own && !sandbox_check_most(r, o, value, rule == RULE_MOST))
        return false;
    if (rule == RULE_CALLBACK) { /* the calls name the sandbox */
        char name[64];
        snprintf(name, sizeof name, "callback:%llu.%s", (unsigned long long)r->server->model_key,
            o->name);
        sandbox_setting(words, o->name, name);
        return true;
    }
    if (rule == RULE_VOLUME)
        return sandbox_put_volume(r, value, words);
    if (rule == RULE_NETWORK)
        return network_put(r, o->name, value, words);
    if (rule == RULE_DEVICE)
        return sandbox_put_device(r, value, words);
    sandbox_setting(words, o->name, value);
    return true;
}

/* Whether the client asks for no more memory than its key allows. */
static bool sandbox_memory_fits(struct request *r, const char *limit)
{
    struct json_object *options = json_get_typed(r->json, "options", json_type_object);
    struct json_object *value = NULL;
    double asked = 0, most = 0;
    droste_error err;
    return options && json_object_object_get_ex(options, "memory", &value) &&
           sandbox_number(r->server, "memory", json_object_get_string(value), &asked, &err) &&
           sandbox_number(r->server, "memory", limit, &most, &err) && asked <= most;
}

void sandbox_put_limits(struct request *r, struct buf *words)
{
    const struct key_limits *limits = &r->account->key.limits;
    if (limits->memory[0] && !sandbox_memory_fits(r, limits->memory))
        sandbox_setting(words, "memory", limits->memory);
    if (limits->cpus[0])
        sandbox_setting(words, "cpus", limits->cpus);
}

bool sandbox_settings(struct request *r, struct buf *words)
{
    static const struct option_rules rules = { sandbox_option, 501, "unsupported",
        sandbox_put_option };
    struct json_object *net = json_get_typed(r->json, "allow_net", json_type_array);
    r->server->model_key++;
    for (size_t i = 0; i < json_length(net); i++) {
        const char *rule = json_object_get_string(json_object_array_get_idx(net, i));
        if (!network_put(r, "allow_net", rule, words))
            return false;
    }
    return options_put(r, &rules, json_get_typed(r->json, "options", json_type_object), words);
}
