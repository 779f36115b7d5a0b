/* serve/access/identify.c: see identify.h. */
#include "serve/access/identify.h"

#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/http/upstream.h"
#include "serve/http/request.h"
#include "serve/http/socket.h"
#include "serve/server.h"

/* The key behind one of these words; NULL: there is none. */
static const char *account_key_behind(const char *field)
{
    static const char *const words[] = { "Bearer ", "token " };
    for (size_t i = 0; i < array_length(words); i++)
        if (strncasecmp(field, words[i], strlen(words[i])) == 0)
            return field + strlen(words[i]);
    return NULL;
}

/* The key that a request carries; NULL: none. Pages cannot set fields of a WebSocket's request but
 * the list of subprotocols; Jupyter's clients put a token into the query, which no log has. */
static const char *account_key_of(struct request *r, char *room, size_t size)
{
    const char *key = request_header_of(r, "X-API-Key");
    const char *bearer = request_header_of(r, MHD_HTTP_HEADER_AUTHORIZATION);
    if (key)
        return key;
    if (bearer)
        return account_key_behind(bearer);
    if (r->routes && r->routes->takes_token && (key = request_parameter(r, "token")))
        return key;
    const char *offered = request_header_of(r, "Sec-WebSocket-Protocol");
    return offered && socket_offered(offered, SOCKET_KEY_PREFIX, room, size) ? room : NULL;
}

/* Another worker has checked the key; this one may not have read it yet. */
static bool account_identify_relayed(struct request *r)
{
    struct accounts *a = &r->server->accounts;
    const char *id = request_header_of(r, RELAY_ACCOUNT);
    r->account = account_by_id(a, id);
    if (!r->account && accounts_reload(a, true, NULL) == 1)
        r->account = account_by_id(a, id);
    if (!r->account)
        request_refuse(r, 401, "unauthorized", "the key was revoked");
    return r->account != NULL;
}

bool account_identify(struct request *r)
{
    struct accounts *a = &r->server->accounts;
    if (r->client->is_relay && request_header_of(r, RELAY_ACCOUNT))
        return account_identify_relayed(r);
    if (!accounts_need_keys(a)) {
        r->account = &a->anyone;
        return true;
    }
    char room[128];
    const char *text = account_key_of(r, room, sizeof room);
    const struct key *key = text ? keys_find(&a->keys, text, clock_wall_ms()) : NULL;
    r->account = key ? account_by_hash(a, key->hash) : NULL;
    if (r->account)
        return true;
    table_count(r->server->figures, COUNT_REFUSED_KEY, 1);
    request_refuse(r, 401, "unauthorized", "%s",
        text ? "the key is not valid; it may have been revoked, or have expired"
             : "send a key, as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'");
    request_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    return false;
}

bool account_check_scope(struct request *r)
{
    unsigned needed = route_scopes(r->route);
    if (r->account->key.scopes & (needed | SCOPE_ADMIN))
        return true;
    table_count(r->server->figures, COUNT_REFUSED_SCOPE, 1);
    request_refuse(r, 403, "scope", "this key has no scope that allows it");
    return false;
}
