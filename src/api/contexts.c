/* api/contexts.c: the contexts of a run or session: as they were named, and as a record has them. */
#include "api/contexts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/text.h"
#include "session/names.h"

/* ---- PATH or NAME=PATH ---- */

/* A file of that name is that file, whatever is in its name. *name is the caller's (free), or NULL. */
static int contexts_split(const char *given, char **name, const char **path, struct error *err)
{
    const char *equals = strchr(given, '=');
    *name = NULL;
    *path = given;
    if (!equals || equals == given || memchr(given, '/', (size_t)(equals - given)) ||
        access(given, F_OK) == 0)
        return 0;
    *name = text_copy(given, (size_t)(equals - given));
    *path = equals + 1;
    if (!*name)
        return error_memory(err);
    int rc = guest_name_check(*name, "the context", err);
    if (rc < 0)
        free(steal(name));
    return rc;
}

static int check_new(
    const struct contexts *all, const char *name, const char *path, struct error *err)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct context *c = all->items[i];
        if (name && c->name && strcmp(name, c->name) == 0)
            return error_set(
                err, ERROR_ARGUMENT, "two contexts are called '%.64s'; rename one of them", name);
        if (strcmp(path, "-") == 0 && !c->path)
            return error_set(
                err, ERROR_ARGUMENT, "standard input (-) can be one context only, not two");
    }
    return 0;
}

static int contexts_load(
    struct staging *st, const char *given, const int *interrupt, struct error *err)
{
    struct contexts *all = &st->parts.contexts;
    struct context_filter filter = api_filter(&st->settings, interrupt);
    struct context *context = NULL;
    cleanup_free char *name = NULL;
    const char *path = given;
    enum value_kind kind;
    int rc = api_context_kind(&st->settings, &kind, err);
    if (rc == 0 && !st->unnamed)
        rc = contexts_split(given, &name, &path, err);
    if (rc == 0)
        rc = check_new(all, name, path, err);
    if (rc == 0)
        rc = context_load(path, kind, &filter, &context, err);
    if (rc < 0)
        return rc;
    context->name = steal(&name);
    return contexts_add(all, context, err);
}

int api_contexts_read(struct staging *st, const int *interrupt, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < st->paths.count; i++)
        rc = contexts_load(st, st->paths.items[i], interrupt, err);
    return rc;
}

/* What cannot be read is said at once. */
static int look_at_all(const struct staging *st, struct error *err)
{
    struct context_filter filter = api_filter(&st->settings, NULL);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < st->paths.count; i++) {
        cleanup_free char *name = NULL;
        const char *path = st->paths.items[i];
        if (!st->unnamed)
            rc = contexts_split(path, &name, &path, err);
        if (rc == 0)
            rc = context_look(path, &filter, err);
    }
    return rc;
}

int api_contexts_want(const droste *d, const char *first, const char *const *more,
    struct staging *st, struct error *err)
{
    enum value_kind kind;
    int rc = api_context_kind(&st->settings, &kind, err);
    if (rc == 0 && first)
        rc = list_add(&st->paths, first, err);
    for (; rc == 0 && more && *more; more++)
        rc = list_add(&st->paths, *more, err);
    if (rc == 0)
        rc = list_add_all(&st->paths, &d->contexts, err);
    return rc < 0 ? rc : look_at_all(st, err);
}

/* Takes the staging. */
static int load_staged(
    droste *d, struct staging *st, int rc, struct contexts *out, struct error *err)
{
    struct staged_parts parts = { 0 };
    if (rc < 0 || !staging_is_needed(st)) {
        staging_drop(st);
        return rc;
    }
    rc = staging_run(d, st, &parts, err);
    *out = parts.contexts;
    parts.contexts = (struct contexts){ 0 };
    staged_parts_free(&parts);
    return rc;
}

int api_contexts_load(droste *d, const struct settings *s, struct contexts *out, struct error *err)
{
    struct staging *st = NULL;
    int rc = staging_new(s, &st, err);
    return rc < 0 ? rc : load_staged(d, st, api_contexts_want(d, NULL, NULL, st, err), out, err);
}

int api_context_load(droste *d, const struct settings *s, const char *path, const char *kind,
    struct context **out, struct error *err)
{
    struct contexts one = { 0 };
    struct staging *st = NULL;
    int rc = staging_new(s, &st, err);
    if (rc < 0)
        return rc;
    st->unnamed = true;
    rc = list_add(&st->paths, path, err);
    if (rc == 0 && kind)
        rc = settings_set(&st->settings, "context-type", kind, "the context's kind", err);
    rc = load_staged(d, st, rc, &one, err);
    if (rc == 0)
        *out = steal(&one.items[0]);
    contexts_free(&one);
    return rc;
}

size_t droste_context_count(const droste *d)
{
    return d->contexts.count;
}

int droste_context_reads_input(const droste *d)
{
    bool found = false;
    for (size_t i = 0; !found && i < d->contexts.count; i++) {
        cleanup_free char *name = NULL;
        const char *path;
        found =
            contexts_split(d->contexts.items[i], &name, &path, NULL) == 0 && strcmp(path, "-") == 0;
    }
    return found;
}

int droste_context_add(droste *d, const char *context, droste_error *err)
{
    struct error why = { 0 };
    cleanup_free char *name = NULL;
    const char *path;
    int rc = contexts_split(context, &name, &path, &why);
    if (rc == 0 && !path[0])
        rc =
            error_set(&why, ERROR_ARGUMENT, "a context is PATH or NAME=PATH, not '%.64s'", context);
    if (rc == 0)
        rc = list_add(&d->contexts, context, &why);
    return rc < 0 ? api_fail(err, &why, rc) : 0;
}

void droste_context_clear(droste *d)
{
    list_clear(&d->contexts);
}

int api_contexts_check(const struct contexts *all, const struct tools *tools, struct error *err)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i]->name && tools_have(tools, all->items[i]->name))
            return context_hides_tool(all->items[i]->name, err);
    return 0;
}

/* ---- as the record has them ---- */

/* Goes through what is kept. */
struct again {
    const struct stored_run *stored_run;
    const struct settings *settings;
    const int *interrupt;
    size_t taken; /* bytes of the kept ones */
};

/* From the record itself. */
static int take_kept(
    struct again *a, struct json_object *was, struct context **out, struct error *err)
{
    size_t len = (size_t)json_get_int(was, "bytes", 0);
    const struct buf *data = &a->stored_run->context_data;
    enum value_kind kind;
    if (len > data->len - a->taken)
        return error_set(err, ERROR_NOT_FOUND,
            "the context of run '%.64s' was read from %.40s and is too large for the record to "
            "keep: the run cannot be resumed",
            a->stored_run->id, json_get_string(was, "source", "a pipe"));
    int rc = api_context_kind(a->settings, &kind, err);
    if (rc == 0)
        rc = context_from_memory(buf_text(data) + a->taken, len, kind, out, err);
    a->taken += len;
    return rc;
}

static int load_again(
    struct again *a, struct json_object *was, struct contexts *all, struct error *err)
{
    struct context_filter filter = api_filter(a->settings, a->interrupt);
    struct context *context = NULL;
    const char *path = json_get_string(was, "path", NULL);
    enum value_kind kind;
    int rc = api_context_kind(a->settings, &kind, err);
    if (rc == 0)
        rc = path ? context_load(path, kind, &filter, &context, err)
                  : take_kept(a, was, &context, err);
    return rc < 0 ? rc : contexts_add(all, context, err);
}

static int check_same(
    const struct again *a, const struct context *c, struct json_object *was, struct error *err)
{
    char hash[HASH_TEXT_SIZE] = "";
    cleanup_buf struct buf unused = { 0 };
    const char *path = json_get_string(was, "path", NULL);
    int rc = context_keep(c, hash, &unused, err);
    if (rc < 0 || strcmp(hash, json_get_string(was, "sha256", "")) == 0)
        return rc;
    return error_set(err, ERROR_ARGUMENT,
        "the context %.100s is not what it was when run '%.64s' began: put it back, or ask anew",
        path ? path : "in the record", a->stored_run->id);
}

/* Its name and where it came from are those of then. */
static int name_again(struct context *c, struct json_object *was, struct error *err)
{
    const char *name = json_get_string(was, "name", NULL);
    const char *source = json_get_string(was, "source", NULL);
    const char *path = json_get_string(was, "path", "");
    free(c->source);
    free(c->name);
    c->source = strdup(source ? source : path);
    c->name = name ? strdup(name) : NULL;
    return c->source && (!name || c->name) ? 0 : error_memory(err);
}

int api_contexts_again(const struct stored_run *stored_run, const struct settings *s,
    const int *interrupt, struct contexts *all, struct error *err)
{
    struct again again = { stored_run, s, interrupt, 0 };
    bool given = all->count > 0,
         several = json_object_is_type(stored_run->context, json_type_array);
    size_t count =
        several ? json_object_array_length(stored_run->context) : stored_run->context != NULL;
    int rc = 0;
    if (given && count != all->count)
        return error_set(err, ERROR_ARGUMENT, "run '%.64s' had %s", stored_run->id,
            count == 0 ? "no context" : "another number of contexts");
    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct json_object *was =
            several ? json_object_array_get_idx(stored_run->context, i) : stored_run->context;
        rc = given ? 0 : load_again(&again, was, all, err);
        if (rc == 0)
            rc = check_same(&again, all->items[i], was, err);
        if (rc == 0)
            rc = name_again(all->items[i], was, err);
    }
    return rc;
}
