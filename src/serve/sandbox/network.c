/* serve/sandbox/network.c: destinations that a client opens for its sandbox.
 *
 * The server's setting allow-net is for all sandboxes. A client may ask for more rules of it, each
 * covered by one that the operator has given to the client's key (keys create --net) or to all
 * clients (serve --client-net). They are checked when a sandbox is created, and hold for its life.
 * What a rule allows, and that an address which is not public must be listed itself, is decided by
 * the library as for any rule.
 */
#include <string.h>

#include "serve/sandbox/sandbox.h"
#include "serve/options.h"

bool network_is_permitted(const struct request *r, const char *rule)
{
    const char *const *of_all = r->server->options->client_net;
    const struct key *key = &r->account->key;
    droste_error err;
    for (const char *at = NULL; (at = key_net_next(key, at));)
        if (droste_network_covers(at, rule, &err) == 1)
            return true;
    for (size_t i = 0; of_all && of_all[i]; i++)
        if (droste_network_covers(of_all[i], rule, &err) == 1)
            return true;
    return false;
}

bool network_put(struct request *r, const char *member, const char *rule, struct buf *words)
{
    droste_error err;
    if (strcmp(rule, "none") == 0) {
        sandbox_setting(words, "allow-net", "");
        sandbox_setting(words, "secret", ""); /* the server's are bound to its destinations */
        return true;
    }
    if (droste_network_covers(rule, rule, &err) < 0) {
        request_refuse(r, 400, "argument", "%s", err.text);
        return false;
    }
    if (!network_is_permitted(r, rule)) {
        request_refuse(r, 403, "permission",
            "%s '%.200s': the operator does not permit this destination; the key's --net or the "
            "server's --client-net would",
            member, rule);
        return false;
    }
    sandbox_setting(words, "allow-net", rule);
    return true;
}
