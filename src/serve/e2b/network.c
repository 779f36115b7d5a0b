/* serve/e2b/network.c: what E2B's clients say of a sandbox's network, as rules of allow-net.
 *
 *   allow_internet_access = true    all, if the operator permits that to the client
 *   …= false, network.denyOut       none of the server's destinations either
 *   network.allowOut                these and no others; each must be permitted
 *
 * An entry of allowOut has no port on E2B's machines: a name opens what the operator permits of its
 * ports 443 and 80, an address all ports. Here it may have one, "HOST:PORT". Ranges of addresses,
 * and denials within "all", cannot be expressed and are refused. A sandbox's rules hold for its
 * life, so that an update can only say again what holds.
 */
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/e2b/e2b.h"

static const char network_everything[] = "0.0.0.0/0";

static bool network_has(struct json_object *list, const char *text)
{
    for (size_t i = 0; i < json_length(list); i++)
        if (strcmp(json_object_get_string(json_object_array_get_idx(list, i)), text) == 0)
            return true;
    return false;
}

static bool network_refuse(
    struct request *r, const char *member, const char *entry, const char *why)
{
    request_refuse(r, 400, "unsupported", "network.%s: '%.200s': %s", member, entry, why);
    return false;
}

/* A rule for one entry of allowOut: the host between what belongs to it. */
static bool network_put_host(
    struct request *r, const char *before, const char *host, const char *behind, struct buf *words)
{
    cleanup_buf struct buf rule = { 0 };
    buf_printf(&rule, "%s%s%s", before, host, behind);
    if (!buf_failed(&rule))
        return network_put(r, "network.allowOut", buf_text(&rule), words);
    request_refuse_memory(r);
    return false;
}

static bool network_permits(const struct request *r, const char *name, const char *port)
{
    cleanup_free char *rule = text_printf("%s%s", name, port);
    return rule && network_is_permitted(r, rule);
}

static bool network_put_entry(struct request *r, const char *entry, struct buf *words)
{
    const char *colon = strchr(entry, ':');
    if (strcmp(entry, network_everything) == 0)
        return network_put(r, "network.allowOut", "all", words);
    if (strpbrk(entry, "/ "))
        return network_refuse(
            r, "allowOut", entry, "only names and single addresses can be allowed");
    if (colon && entry[0] != '[' && strchr(colon + 1, ':'))
        return network_put_host(r, "[", entry, "]:*", words);
    if (colon)
        return network_put_host(r, "", entry, "", words);
    if (strspn(entry, "0123456789.") == strlen(entry))
        return network_put_host(r, "", entry, ":*", words);
    bool plain = network_permits(r, entry, ":80"), tls = network_permits(r, entry, ":443");
    if ((tls || !plain) && !network_put_host(r, "", entry, ":443", words))
        return false;
    return !plain || network_put_host(r, "", entry, ":80", words);
}

const char *e2b_network_refusal(struct json_object *network)
{
    if (json_get_typed(network, "egressProxy", json_type_object))
        return "network.egressProxy: sandboxes here have a proxy of the server";
    if (json_get_typed(network, "rules", json_type_object) &&
        json_object_object_length(json_get_typed(network, "rules", json_type_object)) > 0)
        return "network.rules: requests of sandboxes here are not changed";
    for (const char *p = json_get_string(network, "maskRequestHost", ""); *p; p++)
        if (*p <= ' ' || *p > '~')
            return "network.maskRequestHost: a host has visible ASCII characters only";
    return NULL;
}

bool e2b_network_settings(
    struct request *r, struct json_object *o, struct json_object *network, struct buf *words)
{
    struct json_object *allow = json_get_typed(network, "allowOut", json_type_array);
    struct json_object *deny = json_get_typed(network, "denyOut", json_type_array);
    bool closed =
        !json_get_bool(o, "allow_internet_access", true) || network_has(deny, network_everything);
    bool all = json_get_bool(o, "allow_internet_access", false) && !closed &&
               json_length(allow) == 0 && network_is_permitted(r, "all");
    if (all && json_length(deny) > 0)
        return network_refuse(r, "denyOut",
            json_object_get_string(json_object_array_get_idx(deny, 0)),
            "nothing can be denied within allow_internet_access; list in allowOut what is allowed");
    if (closed || json_length(allow) > 0 || json_length(deny) > 0)
        network_put(r, "network", "none", words);
    for (size_t i = 0; i < json_length(allow); i++) {
        const char *entry = json_object_get_string(json_object_array_get_idx(allow, i));
        if (!network_put_entry(r, entry, words))
            return false;
    }
    return !all || network_put(r, "allow_internet_access", "all", words);
}

/* ---- updates ---- */

static bool network_opens(const struct buf *words)
{
    const char *end = buf_text(words) + words->len;
    for (const char *at = buf_text(words); at < end;) {
        const char *value = at + strlen(at) + 1;
        if (*value)
            return true;
        at = value + 1;
    }
    return false;
}

bool e2b_network_holds(const struct e2b_sandbox *e, const struct buf *asked)
{
    const struct buf *has = &e->destinations;
    droste *d = e->sandbox->server->d;
    if (asked->len == has->len && memcmp(buf_text(asked), buf_text(has), has->len) == 0)
        return true;
    if (network_opens(asked) || network_opens(has))
        return false;
    bool has_servers = has->len == 0 && (droste_get(d, "allow-net") || droste_get(d, "template"));
    return asked->len == 0 || !has_servers;
}
