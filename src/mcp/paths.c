/* mcp/paths.c: which files of this machine a client may name: those below the operator's paths and,
 * where the client runs here too, below its roots. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "mcp/session.h"

/* The directory of a file URI (free); NULL: it is none. */
static char *root_path(const char *uri)
{
    static const char scheme[] = "file://";
    if (!uri || strncmp(uri, scheme, sizeof scheme - 1) != 0)
        return NULL;
    const char *from = strchr(uri + sizeof scheme - 1, '/'); /* behind a host, which is this one */
    char *path = from ? text_copy(from, strlen(from)) : NULL, *to = path;
    for (const char *at = path; at && *at; at++) {
        unsigned byte = 0;
        if (*at == '%' && sscanf(at + 1, "%2x", &byte) == 1 && byte > 0) {
            *to++ = (char)byte;
            at += 2;
        } else {
            *to++ = *at;
        }
    }
    if (to)
        *to = '\0';
    char *real = path ? realpath(path, NULL) : NULL;
    free(path);
    return real;
}

static bool path_is_in_roots(const struct mcp_call *c, const char *real)
{
    struct json_object *roots = c->peer->roots;
    for (size_t i = 0; i < json_length(roots); i++) {
        cleanup_free char *root =
            root_path(json_get_string(json_object_array_get_idx(roots, i), "uri", NULL));
        if (root && text_below(real, root))
            return true;
    }
    return json_length(roots) == 0;
}

char *mcp_path(struct mcp_call *c, const char *path)
{
    char **allowed = c->peer->mcp->server->paths;
    cleanup_free char *real = realpath(path, NULL);
    if (!allowed[0]) {
        mcp_tool_fail(c, "no files of this machine are allowed; its operator names paths");
        return NULL;
    }
    /* Nothing is told of paths elsewhere, not even whether they exist. */
    const char *place = real ? real : strstr(path, "..") ? "" : path;
    int sys = errno;
    while (*allowed && !text_below(place, *allowed))
        allowed++;
    if (*allowed && !real)
        mcp_tool_fail(c, "'%s': %s", path, strerror(sys));
    else if (!*allowed)
        mcp_tool_fail(c, "'%s' is not below a path that the operator allows", path);
    else if (!path_is_in_roots(c, real))
        mcp_tool_fail(c, "'%s' is not below a root of the client", path);
    else
        return steal(&real);
    return NULL;
}

static void roots_on_answer(
    void *arg, struct mcp_call *c, struct json_object *result, const char *why)
{
    struct json_object *roots = json_get_typed(result, "roots", json_type_array);
    if (!c)
        return;
    if (!roots) {
        mcp_tool_fail(
            c, "the client does not tell its roots: %s", why ? why : "they are not a list");
        return;
    }
    json_object_put(c->peer->roots);
    c->peer->roots = json_object_get(roots);
    c->begin(c);
}

void mcp_roots_need(struct mcp_call *c, void (*go)(struct mcp_call *c))
{
    bool is_known = c->peer->roots && !c->is_stateless;
    if (!c->peer->mcp->server->roots_bound || is_known || !mcp_call_can(c, "roots")) {
        go(c);
        return;
    }
    c->begin = go;
    mcp_call_ask(c, "roots", "roots/list", json_object_new_object(), roots_on_answer, NULL);
}
