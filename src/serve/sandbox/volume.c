/* serve/sandbox/volume.c: see volume.h. */
#include "serve/sandbox/volume.h"

#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/http/nodes.h"
#include "serve/http/relay.h"
#include "serve/queue/queue.h"
#include "serve/sandbox/owners.h"
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
    if (!droste_volume_root(s->d, &err)) {
        request_fail(r, &err);
        return NULL;
    }
    char *own = sandbox_volume_root_of(s, r->account->key.id);
    if (!own)
        request_refuse_memory(r);
    return own;
}

char *sandbox_volume_root_of(struct server *s, const char *key)
{
    const char *root = droste_volume_root(s->d, NULL);
    return !root                              ? NULL
           : accounts_need_keys(&s->accounts) ? text_printf("%s.keys/%s", root, key)
                                              : strdup(root);
}

int sandbox_volume_droste(const char *root, droste **out, droste_error *err)
{
    int rc = droste_new(out, err);
    return rc == 0 ? droste_set(*out, "volume-root", root, err) : rc;
}

bool sandbox_volume_exists(const char *root, const char *name)
{
    cleanup_free char *path = text_printf("%s/%s", root, name);
    return path && text_is_name(name) && access(path, F_OK) == 0;
}

/* False: another node has it, or this one may not use it now, for which the request was refused. */
static bool sandbox_volume_is_own(struct request *r, const char *name)
{
    struct server *s = r->server;
    const struct owner *o = s->owners ? owners_find(s, queue_key_of(r), name) : NULL;
    bool is_starting = !o && owners_store(s) && !owners_are_known(s);
    if (o ? owner_is_own(s, o) : !is_starting)
        return true;
    bool is_cut_off = is_starting || strcmp(owner_node(o), s->options->node) == 0;
    if (!is_cut_off && !owners_take(s, o))
        return false;
    request_refuse(r, 503, is_cut_off ? "node_cut_off" : "node_lost",
        is_cut_off ? "this node has not heard from NATS whether it may use the volume '%s'"
                   : "the node of the volume '%s' is lost; its last commit is being opened",
        name);
    request_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    return false;
}

bool sandbox_volume_find(struct request *r, const char *root, const char *name)
{
    if (sandbox_volume_is_own(r, name) && sandbox_volume_exists(root, name))
        return true;
    if (r->reply)
        return false;
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
