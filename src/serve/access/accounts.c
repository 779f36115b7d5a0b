/* serve/access/accounts.c: see accounts.h. */
#include "serve/access/accounts.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/http/relay.h"
#include "serve/sandbox/sandbox.h"
#include "serve/http/socket.h"

/* ---- the file ---- */

static struct account *account_by_hash(struct accounts *a, const char *hash)
{
    for (struct account *one = a->all; one; one = one->next)
        if (strcmp(one->key.hash, hash) == 0)
            return one;
    return NULL;
}

static int account_count(struct accounts *a, struct account *one, struct error *err)
{
    one->index = table_account(a->table, one->key.id);
    if (one->index < 0)
        return error_set(err, ERROR_CONFIG,
            "the server has seen %d keys, which is the most; restart it", TABLE_ACCOUNTS);
    one->row = &a->table->accounts[one->index];
    return 0;
}

static int accounts_take(struct accounts *a, struct keys *keys, struct error *err)
{
    for (size_t i = 0; i < keys->count; i++) {
        if (account_by_hash(a, keys->rows[i].hash))
            continue;
        struct account *added = calloc(1, sizeof *added);
        if (!added)
            return error_memory(err);
        added->key = keys->rows[i];
        if (account_count(a, added, err) < 0) {
            free(added);
            return -ERROR_CONFIG;
        }
        added->next = a->all;
        a->all = added;
    }
    for (struct account *one = a->all; one; one = one->next)
        one->is_revoked = true;
    for (size_t i = 0; i < keys->count; i++) {
        struct account *one = account_by_hash(a, keys->rows[i].hash);
        one->key = keys->rows[i];
        one->is_revoked = false;
    }
    keys_free(&a->keys);
    a->keys = *keys;
    *keys = (struct keys){ 0 };
    return 0;
}

static bool accounts_have_changed(struct accounts *a)
{
    struct stat st;
    if (stat(a->path, &st) < 0)
        return false;
    int64_t mtime = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    if (a->read_inode == st.st_ino && a->read_mtime_ns == mtime)
        return false;
    a->read_inode = st.st_ino;
    a->read_mtime_ns = mtime;
    return true;
}

int accounts_reload(struct accounts *a, bool force, struct error *err)
{
    struct keys keys = { 0 };
    if (!a->path || (!accounts_have_changed(a) && !force))
        return 0;
    int rc = keys_read(a->path, &keys, err);
    if (rc == 0)
        rc = accounts_take(a, &keys, err);
    keys_free(&keys);
    return rc < 0 ? rc : 1;
}

int accounts_open(struct accounts *a, struct table *table, const char *path, struct error *err)
{
    a->table = table;
    a->anyone.key.scopes = SCOPE_ADMIN;
    strcpy(a->anyone.key.id, "local");
    a->path = path;
    int rc = path ? accounts_reload(a, true, err) : account_count(a, &a->anyone, err);
    return rc < 0 ? rc : 0;
}

void accounts_close(struct accounts *a)
{
    struct account *next;
    for (struct account *one = a->all; one; one = next) {
        next = one->next;
        free(one);
    }
    keys_free(&a->keys);
}

/* ---- requests ---- */

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
    if (r->routes && r->routes->takes_token &&
        (key = MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, "token")))
        return key;
    const char *offered = request_header_of(r, "Sec-WebSocket-Protocol");
    return offered && socket_offered(offered, SOCKET_KEY_PREFIX, room, size) ? room : NULL;
}

struct account *account_by_id(struct accounts *a, const char *id)
{
    if (!accounts_need_keys(a))
        return &a->anyone;
    struct account *one = a->all;
    while (one && (one->is_revoked || strcmp(one->key.id, id) != 0))
        one = one->next;
    return one;
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

bool account_owns(const struct account *account, const struct sandbox *sb)
{
    return sb->owner == account || (account->key.scopes & SCOPE_ADMIN);
}
