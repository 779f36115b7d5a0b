/* egress/policy.c: parses rules and matches destinations with them. */
#include "egress/policy.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"

enum rule_kind { RULE_ALL, RULE_ENDPOINT, RULE_URL };

struct egress_rule {
    enum rule_kind kind;
    bool below;  /* the names below `host`, not itself */
    bool is_tls; /* of a URL */
    bool asks;   /* an approval is needed */
    struct egress_host host;
    unsigned port; /* 0: any */
    char *method;  /* of a URL; NULL: any */
    char *path;    /* of a URL: a pattern */
};

struct egress_policy {
    unsigned references;
    struct egress_limits limits;
    struct egress_trust *trust;
    struct egress_secret *secrets;
    size_t secret_count;
    struct egress_forms *forms;
    droste_network_fn *ask; /* NULL: the program does not decide */
    void *ask_arg;
    size_t count;
    struct egress_rule rules[];
};

enum { RULES_MAX = 1000, RULE_LENGTH_MAX = 2048 };

struct egress_policy *egress_policy_hold(struct egress_policy *policy)
{
    if (policy)
        policy->references++;
    return policy;
}

static void rule_clear(struct egress_rule *r)
{
    free(r->method);
    free(r->path);
}

void egress_policy_release(struct egress_policy *policy)
{
    if (!policy || --policy->references > 0)
        return;
    for (size_t i = 0; i < policy->count; i++)
        rule_clear(&policy->rules[i]);
    for (size_t i = 0; i < policy->secret_count; i++)
        egress_secret_clear(&policy->secrets[i]);
    free(policy->secrets);
    egress_forms_free(policy->forms);
    egress_trust_free(policy->trust);
    free(policy);
}

const struct egress_limits *egress_policy_limits(const struct egress_policy *policy)
{
    return &policy->limits;
}

/* ---- parsing ---- */

static int rule_refuse(const char *rule, const char *why, struct error *err)
{
    return error_set(err, ERROR_ARGUMENT,
        "allow-net '%.200s': %s; use HOST:PORT, *.HOST:PORT, [METHOD] http[s]://HOST/PATH or all, "
        "with or without 'ask ' before it, or none",
        rule, why);
}

/* HOST:PORT, with "*." before the host or "*" as the port. */
static const char *rule_take_authority(struct egress_rule *r, const char *text, size_t len)
{
    const char *wrong;
    r->below = len > 2 && strncmp(text, "*.", 2) == 0;
    text += r->below ? 2 : 0;
    len -= r->below ? 2 : 0;
    if (len > 2 && strncmp(text + len - 2, ":*", 2) == 0) {
        bool bracketed = text[0] == '[';
        if (bracketed && text[len - 3] != ']')
            return "the address has no end";
        r->port = 0;
        wrong = egress_host_parse(text + bracketed, len - 2 - 2 * (size_t)bracketed, &r->host);
    } else {
        wrong = egress_authority_parse(text, len, &r->host, &r->port);
    }
    if (!wrong && r->below && r->host.is_address)
        return "an address has no names below it";
    if (!wrong && !r->host.is_address && strcmp(r->host.name, "localhost") == 0)
        return "this machine is listed by address, as in 127.0.0.1:8000";
    return wrong;
}

/* "GET http://…": the method ends at the only space. */
static const char *rule_take_url(struct egress_rule *r, const char *text)
{
    const char *space = strchr(text, ' ');
    const char *url = space ? space + 1 : text;
    r->kind = RULE_URL;
    r->is_tls = strncmp(url, "https://", 8) == 0;
    if (!r->is_tls && strncmp(url, "http://", 7) != 0)
        return "it is not a URL of http or https";
    url += r->is_tls ? 8 : 7;
    size_t authority = strcspn(url, "/");
    const char *path = url + authority;
    if (path[strcspn(path, " \t?#")])
        return "the path must not have spaces, a query or a fragment";
    if (space && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != (size_t)(space - text))
        return "the method must be in capital letters";
    r->port = r->is_tls ? 443 : 80;
    r->method = space ? text_copy(text, (size_t)(space - text)) : NULL;
    r->path = strdup(*path ? path : "/**");
    if (!r->path || (space && !r->method))
        return "out of memory";
    return rule_take_authority(r, url, authority);
}

static int rule_parse(struct egress_rule *r, const char *rule, struct error *err)
{
    const char *wrong = NULL, *text = rule;
    if (strlen(rule) > RULE_LENGTH_MAX)
        return rule_refuse(rule, "it is too long", err);
    r->asks = strncmp(rule, "ask ", 4) == 0;
    text += r->asks ? 4 : 0;
    if (strcmp(text, "all") == 0)
        r->kind = RULE_ALL;
    else if (strstr(text, "://"))
        wrong = rule_take_url(r, text);
    else {
        r->kind = RULE_ENDPOINT;
        wrong = rule_take_authority(r, text, strlen(text));
    }
    return wrong ? rule_refuse(rule, wrong, err) : 0;
}

int egress_policy_parse(const struct list *rules, const struct egress_limits *limits,
    struct egress_policy **out, struct error *err)
{
    bool nothing = rules->count == 1 && strcmp(rules->items[0], "none") == 0;
    *out = NULL;
    if (rules->count == 0 || nothing)
        return 0;
    if (rules->count > RULES_MAX)
        return error_set(err, ERROR_ARGUMENT, "allow-net: more than %d rules", RULES_MAX);
    struct egress_policy *policy =
        calloc(1, sizeof *policy + rules->count * sizeof policy->rules[0]);
    if (!policy)
        return error_memory(err);
    policy->references = 1;
    policy->limits = *limits;
    for (size_t i = 0; i < rules->count; i++) {
        policy->count++;
        int rc = strcmp(rules->items[i], "none") == 0
                     ? rule_refuse("none", "it stands alone", err)
                     : rule_parse(&policy->rules[i], rules->items[i], err);
        if (rc < 0) {
            egress_policy_release(policy);
            return rc;
        }
    }
    *out = policy;
    return 0;
}

int egress_policy_trust(struct egress_policy *policy, const char *file, struct error *err)
{
    return egress_trust_new(file, &policy->trust, err);
}

/* ---- the program ---- */

void egress_policy_on_request(struct egress_policy *policy, droste_network_fn *fn, void *arg)
{
    policy->ask = fn;
    policy->ask_arg = arg;
}

bool egress_policy_asks(const struct egress_policy *policy)
{
    return policy->ask;
}

void egress_policy_ask(const struct egress_policy *policy, droste_network_request *request)
{
    policy->ask(policy->ask_arg, request);
}

/* ---- matching ---- */

static bool name_is_below(const char *name, const char *of)
{
    size_t len = strlen(name), suffix = strlen(of);
    return len > suffix + 1 && name[len - suffix - 1] == '.' &&
           strcmp(name + len - suffix, of) == 0;
}

static bool rule_names(const struct egress_rule *r, const struct egress_host *host, unsigned port)
{
    if (r->port != 0 && r->port != port)
        return false;
    if (r->host.is_address || host->is_address)
        return r->host.is_address && host->is_address &&
               egress_address_same(&r->host.address, &host->address);
    return r->below ? name_is_below(host->name, r->host.name)
                    : strcmp(r->host.name, host->name) == 0;
}

/* `plainly`: without an approval. */
static bool policy_allows_tunnel(
    const struct egress_policy *policy, const struct egress_host *host, unsigned port, bool plainly)
{
    for (size_t i = 0; i < policy->count; i++) {
        const struct egress_rule *r = &policy->rules[i];
        if (plainly && r->asks)
            continue;
        if (r->kind == RULE_ALL || (r->kind == RULE_ENDPOINT && rule_names(r, host, port)))
            return true;
    }
    return false;
}

bool egress_policy_allows_tunnel(
    const struct egress_policy *policy, const struct egress_host *host, unsigned port)
{
    return policy_allows_tunnel(policy, host, port, false);
}

/* "*" stands for a part without a slash, "**" for any. `work` bounds the attempts. */
static bool path_matches(const char *pattern, const char *path, size_t len, unsigned *work)
{
    while (*pattern) {
        if (*work == 0)
            return false;
        --*work;
        if (*pattern != '*') {
            if (len == 0 || *pattern != *path)
                return false;
            pattern++, path++, len--;
            continue;
        }
        bool any = pattern[1] == '*';
        pattern += any ? 2 : 1;
        for (size_t i = 0;; i++) {
            if (path_matches(pattern, path + i, len - i, work))
                return true;
            if (i == len || (!any && path[i] == '/'))
                return false;
        }
    }
    return len == 0;
}

/* Servers disagree about what these mean, so that a path with them could be another one. */
static bool path_is_plain(const char *path, size_t len)
{
    static const char *const odd[] = { "%2e", "%2E", "%2f", "%2F", "%5c", "%5C", "%25", "%00" };
    for (size_t i = 0; i < len; i++) {
        bool begins = path[i] == '/';
        if (path[i] == '\\' || path[i] == ';' || (begins && i + 1 < len && path[i + 1] == '/'))
            return false;
        if (begins && i + 1 < len && path[i + 1] == '.') {
            size_t dots = strspn(path + i + 1, ".");
            if (dots <= 2 && (i + 1 + dots == len || path[i + 1 + dots] == '/'))
                return false;
        }
        for (size_t k = 0; path[i] == '%' && k < array_length(odd); k++)
            if (i + 3 <= len && strncmp(path + i, odd[k], 3) == 0)
                return false;
    }
    return true;
}

static bool policy_allows_request(const struct egress_policy *policy, bool is_tls,
    const struct egress_host *host, unsigned port, const char *method, const char *path,
    bool plainly)
{
    enum { WORK_MAX = 100000 };
    size_t len = strcspn(path, "?");
    unsigned work = WORK_MAX;
    if (policy_allows_tunnel(policy, host, port, plainly))
        return true;
    for (size_t i = 0; i < policy->count; i++) {
        const struct egress_rule *r = &policy->rules[i];
        if (plainly && r->asks)
            continue;
        if (r->kind == RULE_URL && r->is_tls == is_tls && rule_names(r, host, port) &&
            (!r->method || strcmp(r->method, method) == 0) && path_is_plain(path, len) &&
            path_matches(r->path, path, len, &work))
            return true;
    }
    return false;
}

bool egress_policy_allows_request(const struct egress_policy *policy, bool is_tls,
    const struct egress_host *host, unsigned port, const char *method, const char *path)
{
    return policy_allows_request(policy, is_tls, host, port, method, path, false);
}

bool egress_policy_needs_approval(const struct egress_policy *policy, bool is_tunnel, bool is_tls,
    const struct egress_host *host, unsigned port, const char *method, const char *path,
    bool *whole)
{
    *whole = is_tunnel || policy_allows_tunnel(policy, host, port, false);
    return is_tunnel ? !policy_allows_tunnel(policy, host, port, true)
                     : !policy_allows_request(policy, is_tls, host, port, method, path, true);
}

bool egress_policy_lists(
    const struct egress_policy *policy, const struct egress_address *address, unsigned port)
{
    for (size_t i = 0; i < policy->count; i++) {
        const struct egress_rule *r = &policy->rules[i];
        if (r->kind != RULE_ALL && r->host.is_address &&
            (port == 0 || r->port == 0 || r->port == port) &&
            egress_address_same(&r->host.address, address))
            return true;
    }
    return false;
}

/* ---- rules within rules ---- */

/* All hosts of `a` are hosts of `r`. */
static bool rule_covers_hosts(const struct egress_rule *r, const struct egress_rule *a)
{
    if (r->host.is_address || a->host.is_address)
        return r->host.is_address && a->host.is_address &&
               egress_address_same(&r->host.address, &a->host.address);
    bool same = strcmp(r->host.name, a->host.name) == 0;
    if (!r->below)
        return same && !a->below;
    return (same && a->below) || name_is_below(a->host.name, r->host.name);
}

/* A rule that lists an address opens it also if it is private. */
static bool rule_is_public(const struct egress_rule *r)
{
    return r->kind == RULE_ALL || !r->host.is_address ||
           (!egress_address_refusal(&r->host.address) && !egress_address_is_own(&r->host.address));
}

static bool rule_covers(const struct egress_rule *r, const struct egress_rule *a)
{
    if (r->asks && !a->asks)
        return false;
    if (r->kind == RULE_ALL)
        return rule_is_public(a);
    if (a->kind == RULE_ALL || (r->port != 0 && r->port != a->port) || !rule_covers_hosts(r, a))
        return false;
    if (r->kind == RULE_ENDPOINT)
        return true;
    return a->kind == RULE_URL && r->is_tls == a->is_tls &&
           (!r->method || (a->method && strcmp(r->method, a->method) == 0)) &&
           (strcmp(r->path, "/**") == 0 || strcmp(r->path, a->path) == 0);
}

int egress_rule_covers(const char *rule, const char *asked, bool *out, struct error *err)
{
    struct egress_rule r = { 0 }, a = { 0 };
    int rc = rule_parse(&r, rule, err);
    if (rc == 0)
        rc = rule_parse(&a, asked, err);
    *out = rc == 0 && rule_covers(&r, &a);
    rule_clear(&r);
    rule_clear(&a);
    return rc;
}

/* ---- secrets, and where TLS ends ---- */

static bool policy_has_url(
    const struct egress_policy *policy, const struct egress_host *host, unsigned port)
{
    for (size_t i = 0; i < policy->count; i++) {
        const struct egress_rule *r = &policy->rules[i];
        if (r->kind == RULE_URL && r->is_tls && (!host || rule_names(r, host, port)))
            return true;
    }
    return false;
}

bool egress_policy_guards(
    const struct egress_policy *policy, bool is_tls, const struct egress_host *host, unsigned port)
{
    for (size_t i = 0; i < policy->secret_count; i++)
        if (egress_secret_is_bound(&policy->secrets[i], is_tls, host, port))
            return true;
    return false;
}

bool egress_policy_ends_tls(
    const struct egress_policy *policy, const struct egress_host *host, unsigned port)
{
    return egress_policy_guards(policy, true, host, port) ||
           (policy_has_url(policy, host, port) && !egress_policy_allows_tunnel(policy, host, port));
}

bool egress_policy_ends_any(const struct egress_policy *policy)
{
    bool any = policy_has_url(policy, NULL, 0);
    for (size_t i = 0; i < policy->secret_count; i++)
        any = any || policy->secrets[i].is_tls;
    return any;
}

static bool policy_names(const struct egress_policy *policy, const struct egress_secret *secret)
{
    if (egress_policy_allows_tunnel(policy, &secret->host, secret->port))
        return true;
    for (size_t i = 0; i < policy->count; i++) {
        const struct egress_rule *r = &policy->rules[i];
        if (r->kind == RULE_URL && r->is_tls == secret->is_tls &&
            rule_names(r, &secret->host, secret->port))
            return true;
    }
    return false;
}

int egress_policy_add_secret(
    struct egress_policy *policy, struct egress_secret *secret, struct error *err)
{
    struct egress_secret taken = *secret;
    *secret = (struct egress_secret){ 0 };
    int rc = 0;
    if (!policy->secrets)
        policy->secrets = calloc(SECRETS_MAX, sizeof *policy->secrets);
    if (!policy->secrets)
        rc = error_memory(err);
    else if (policy->secret_count == SECRETS_MAX)
        rc = error_set(err, ERROR_ARGUMENT, "more than %d secrets", SECRETS_MAX);
    else if (!policy_names(policy, &taken))
        rc = error_set(err, ERROR_ARGUMENT,
            "secret %s: no rule allows %.128s:%u; add --allow-net %.128s:%u", taken.name,
            taken.host.name, taken.port, taken.host.name, taken.port);
    else
        rc = egress_forms_add(&policy->forms, &taken, err);
    if (rc < 0)
        egress_secret_clear(&taken);
    else
        policy->secrets[policy->secret_count++] = taken;
    return rc;
}

size_t egress_policy_secret_count(const struct egress_policy *policy)
{
    return policy->secret_count;
}

const struct egress_secret *egress_policy_secret(const struct egress_policy *policy, size_t i)
{
    return &policy->secrets[i];
}

const struct egress_forms *egress_policy_forms(const struct egress_policy *policy)
{
    return policy->forms;
}

struct egress_trust *egress_policy_trusted(const struct egress_policy *policy)
{
    return policy->trust;
}
