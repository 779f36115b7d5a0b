/* mcp/subscribe.c: notifications that clients have asked for: resources that change, and lists.
 *
 * Up to 2025-11-25 they belong to the connection. In 2026-07-28 they are the answer of
 * subscriptions/listen, which lasts until the client closes it or the server ends.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "mcp/call.h"

enum { SUBSCRIPTIONS_MAX = 1000 };

static struct mcp_subscription **subscription_find(struct mcp_peer *peer, const char *uri)
{
    struct mcp_subscription **at = &peer->subscriptions;
    while (*at && strcmp((*at)->uri, uri) != 0)
        at = &(*at)->next;
    return at;
}

static void subscription_remove(struct mcp_peer *peer, struct mcp_subscription **at)
{
    struct mcp_subscription *one = *at;
    *at = one->next;
    peer->subscription_count--;
    free(one->uri);
    free(one);
}

void mcp_subscriptions_free(struct mcp_peer *peer)
{
    while (peer->subscriptions)
        subscription_remove(peer, &peer->subscriptions);
}

void mcp_resources_subscribe(struct mcp_call *c)
{
    struct mcp_peer *peer = c->peer;
    const char *uri = json_get_string(c->params, "uri", NULL);
    if (!uri) {
        mcp_call_fail(c, RPC_PARAMS, "resources/subscribe needs `uri`");
        return;
    }
    if (!*subscription_find(peer, uri)) {
        struct mcp_subscription *one =
            peer->subscription_count < SUBSCRIPTIONS_MAX ? calloc(1, sizeof *one) : NULL;
        if (!one || !(one->uri = strdup(uri))) {
            free(one);
            mcp_call_fail(
                c, RPC_INTERNAL, "there are %d subscriptions, the most", SUBSCRIPTIONS_MAX);
            return;
        }
        one->next = peer->subscriptions;
        peer->subscriptions = one;
        peer->subscription_count++;
    }
    mcp_call_answer(c, json_object_new_object());
}

void mcp_resources_unsubscribe(struct mcp_call *c)
{
    const char *uri = json_get_string(c->params, "uri", NULL);
    if (!uri) {
        mcp_call_fail(c, RPC_PARAMS, "resources/unsubscribe needs `uri`");
        return;
    }
    struct mcp_subscription **at = subscription_find(c->peer, uri);
    if (*at)
        subscription_remove(c->peer, at);
    mcp_call_answer(c, json_object_new_object());
}

/* ---- streams ---- */

/* Adds the id of the subscription, that of its request. */
static bool listen_tag(const struct mcp_call *c, struct json_object *params)
{
    struct json_object *meta = json_object_new_object();
    if (meta && json_put(meta, META "subscriptionId", json_object_get(c->id)))
        return json_put(params, "_meta", meta);
    json_object_put(meta);
    return false;
}

static void listen_note(
    struct mcp_call *c, const char *method, const char *key, struct json_object *value)
{
    struct json_object *params = json_object_new_object();
    bool ok = params && listen_tag(c, params);
    if (ok && value)
        ok = json_put(params, key, steal(&value));
    json_object_put(value);
    if (ok)
        mcp_call_note(c, rpc_call(NULL, method, params));
    else
        json_object_put(params);
}

/* What of the filter this server has: which lists change, and resources. */
static struct json_object *listen_accept(const struct mcp_call *c, struct json_object *asked)
{
    static const char *const lists[] = { "resourcesListChanged", "toolsListChanged",
        "promptsListChanged" };
    const struct mcp_extension *more = c->peer->mcp->server->extension;
    size_t count = more && more->lists_change ? array_length(lists) : 1;
    struct json_object *o = json_object_new_object();
    struct json_object *uris = json_get_typed(asked, "resourceSubscriptions", json_type_array);
    bool ok = o && json_length(uris) <= SUBSCRIPTIONS_MAX;
    for (size_t i = 0; ok && i < count; i++)
        if (json_get_bool(asked, lists[i], false))
            ok = json_put(o, lists[i], json_object_new_boolean(true));
    if (ok && uris)
        ok = json_put(o, "resourceSubscriptions", json_object_get(uris));
    if (ok)
        return o;
    json_object_put(o);
    return NULL;
}

static void listen_free(void *state)
{
    json_object_put(state);
}

void mcp_subscriptions_listen(struct mcp_call *c)
{
    struct json_object *asked = json_get_typed(c->params, "notifications", json_type_object);
    if (!asked) {
        mcp_call_fail(c, RPC_PARAMS, "subscriptions/listen needs `notifications`, an object");
        return;
    }
    c->filter = listen_accept(c, asked);
    if (!c->filter) {
        mcp_call_fail(c, RPC_PARAMS, "more than %d resources", SUBSCRIPTIONS_MAX);
        return;
    }
    c->state = c->filter;
    c->free_state = listen_free;
    listen_note(
        c, "notifications/subscriptions/acknowledged", "notifications", json_object_get(c->filter));
}

void mcp_end_subscriptions(struct mcp_peer *peer)
{
    struct mcp_call *next;
    for (struct mcp_call *c = peer->calls; c; c = next) {
        next = c->next;
        if (!c->filter)
            continue;
        struct json_object *result = json_object_new_object();
        if (result)
            listen_tag(c, result);
        mcp_call_answer(c, result);
    }
}

/* ---- notifying ---- */

static void peer_note(struct mcp_peer *peer, struct json_object *o)
{
    size_t len = 0;
    const char *text = o ? json_text(o, &len) : NULL;
    const struct mcp_message message = { .json = text, .len = len };
    if (text)
        peer->send(peer->arg, &message);
    json_object_put(o);
}

static struct json_object *uri_params(const char *uri)
{
    struct json_object *o = json_object_new_object();
    if (o && json_put_text(o, "uri", uri))
        return o;
    json_object_put(o);
    return NULL;
}

static bool filter_has_uri(struct json_object *filter, const char *uri)
{
    struct json_object *uris = json_get_typed(filter, "resourceSubscriptions", json_type_array);
    for (size_t i = 0; i < json_length(uris); i++) {
        struct json_object *one = json_object_array_get_idx(uris, i);
        if (json_object_is_type(one, json_type_string) &&
            strcmp(json_object_get_string(one), uri) == 0)
            return true;
    }
    return false;
}

void mcp_notify_updated(struct mcp *mcp, const char *uri)
{
    static const char method[] = "notifications/resources/updated";
    for (struct mcp_peer *peer = mcp->peers; peer; peer = peer->next) {
        if (*subscription_find(peer, uri)) {
            struct json_object *params = uri_params(uri);
            peer_note(peer, params ? rpc_call(NULL, method, params) : NULL);
        }
        for (struct mcp_call *c = peer->calls; c; c = c->next)
            if (c->filter && filter_has_uri(c->filter, uri))
                listen_note(c, method, "uri", json_object_new_string(uri));
    }
}

void mcp_notify_list(struct mcp *mcp, const char *which)
{
    char method[64], key[32];
    snprintf(method, sizeof method, "notifications/%s/list_changed", which);
    snprintf(key, sizeof key, "%sListChanged", which);
    for (struct mcp_peer *peer = mcp->peers; peer; peer = peer->next) {
        if (peer->version[0])
            peer_note(peer, rpc_call(NULL, method, NULL));
        for (struct mcp_call *c = peer->calls; c; c = c->next)
            if (c->filter && json_get_bool(c->filter, key, false))
                listen_note(c, method, NULL, NULL);
    }
}
