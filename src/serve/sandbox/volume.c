/* serve/sandbox/volume.c: see volume.h. */
#include "serve/sandbox/volume.h"

#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/http/nodes.h"
#include "serve/http/relay.h"
#include "serve/sandbox/sandbox.h"
#include "serve/options.h"

char *sandbox_volume_root(struct request *r)
{
    struct server *s = r->server;
    droste_error err;
    if (droste_volumes_are_remote(s->d)) {
        request_refuse(r, 501, "unsupported",
            "the sandboxes of this server are a provider's, which keeps the volumes");
        return NULL;
    }
    const char *root = droste_volume_root(s->d, &err);
    if (!root) {
        request_fail(r, &err);
        return NULL;
    }
    char *own = accounts_need_keys(&s->accounts)
                    ? text_printf("%s.keys/%s", root, r->account->key.id)
                    : strdup(root);
    if (!own)
        request_refuse_memory(r);
    return own;
}

bool sandbox_volume_exists(const char *root, const char *name)
{
    cleanup_free char *path = text_printf("%s/%s", root, name);
    return path && text_is_name(name) && access(path, F_OK) == 0;
}

bool sandbox_volume_find(struct request *r, const char *root, const char *name)
{
    if (sandbox_volume_exists(root, name))
        return true;
    if (!text_is_name(name) || !relay_on_node(r))
        nodes_refuse_absent(r, "volume", name, "makes");
    return false;
}

bool sandbox_put_volume(struct request *r, const char *name, struct buf *words)
{
    cleanup_free char *root = sandbox_volume_root(r);
    if (!root)
        return false;
    if (!sandbox_volume_find(r, root, name))
        return false;
    sandbox_setting(words, "volume-name", name);
    sandbox_setting(words, "volume-root", root);
    return true;
}
