/* mcp/complete.c: completion of arguments: paths that may be loaded, and runs. */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "mcp/run.h"

/* The most that the protocol allows in an answer. */
enum { COMPLETIONS_MAX = 100 };

struct completions {
    struct json_object *values;
    size_t total;
};

static void completions_add(struct completions *all, const char *value, const char *typed)
{
    if (strncmp(value, typed, strlen(typed)) != 0 || !text_is_utf8(value, strlen(value), NULL))
        return;
    if (all->total++ < COMPLETIONS_MAX)
        json_object_array_add(all->values, json_object_new_string(value));
}

/* The entries of the directory of what was typed, if that is below an allowed path. */
static void complete_below(
    struct completions *all, const struct mcp_server *server, const char *typed)
{
    const char *slash = strrchr(typed, '/');
    if (!slash)
        return;
    cleanup_free char *directory = text_copy(typed, slash == typed ? 1 : (size_t)(slash - typed));
    cleanup_free char *real = directory ? realpath(directory, NULL) : NULL;
    bool is_allowed = false;
    for (char **path = server->paths; real && *path && !is_allowed; path++)
        is_allowed = text_below(real, *path) != NULL;
    DIR *d = is_allowed ? opendir(real) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.' && slash[1] != '.')
            continue;
        cleanup_free char *path = text_printf(
            "%.*s%s%s", (int)(slash - typed + 1), typed, e->d_name, e->d_type == DT_DIR ? "/" : "");
        if (path)
            completions_add(all, path, typed);
    }
    if (d)
        closedir(d);
}

static void complete_path(struct completions *all, const struct mcp_call *c, const char *typed)
{
    const struct mcp_server *server = c->peer->mcp->server;
    for (char **path = server->paths; *path; path++)
        completions_add(all, *path, typed);
    complete_below(all, server, typed);
}

static void complete_run(struct completions *all, const struct mcp_call *c, const char *typed)
{
    for (const struct mcp_run *run = c->peer->mcp->runs; run; run = run->next)
        if (run->id[0])
            completions_add(all, run->id, typed);
}

static const struct {
    const char *ref, *key, *name; /* of what is completed; a NULL name: any */
    const char *argument;
    void (*complete)(struct completions *all, const struct mcp_call *c, const char *typed);
} completers[] = {
    { "ref/prompt", "name", NULL, "path", complete_path },
    { "ref/resource", "uri", RUN_URI "{run}", "run", complete_run },
};

void mcp_complete(struct mcp_call *c)
{
    struct json_object *ref = json_get_typed(c->params, "ref", json_type_object);
    struct json_object *argument = json_get_typed(c->params, "argument", json_type_object);
    const char *type = json_get_string(ref, "type", NULL);
    const char *name = json_get_string(argument, "name", NULL);
    const char *typed = json_get_string(argument, "value", NULL);
    if (!type || !name || !typed) {
        mcp_call_fail(c, RPC_PARAMS, "completion/complete needs `ref` and `argument`");
        return;
    }
    struct completions all = { .values = json_object_new_array() };
    for (size_t i = 0; all.values && i < array_length(completers); i++)
        if (strcmp(completers[i].ref, type) == 0 && strcmp(completers[i].argument, name) == 0 &&
            (!completers[i].name ||
                strcmp(completers[i].name, json_get_string(ref, completers[i].key, "")) == 0))
            completers[i].complete(&all, c, typed);
    struct json_object *o = json_object_new_object(), *result = json_object_new_object();
    bool ok = o && result && all.values && json_put(o, "values", steal(&all.values)) &&
              json_put(o, "total", json_object_new_int64((int64_t)all.total)) &&
              json_put(o, "hasMore", json_object_new_boolean(all.total > COMPLETIONS_MAX));
    if (ok)
        ok = json_put(result, "completion", steal(&o));
    json_object_put(all.values);
    json_object_put(o);
    if (!ok) {
        json_object_put(result);
        result = NULL;
    }
    mcp_call_answer(c, result);
}
