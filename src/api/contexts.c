/* api/contexts.c: see contexts.h. */
#include "api/contexts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "api/stored_run.h"
#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/text.h"
#include "broker/tools.h"
#include "session/names.h"

/* ---- the settings ---- */

/* How the settings read and interpret contexts. A readable `interrupt` (may be NULL) ends it. */
static struct context_filter api_filter(const struct settings *s, const int *interrupt)
{
    return (struct context_filter){ (const char *const *)s->include.items, s->include.count,
        (uint64_t)s->context_size, interrupt };
}

int api_context_kind(const struct settings *s, enum value_kind *kind, struct error *err)
{
    return context_kind_parse(s->context_type ? s->context_type : "auto", kind, err);
}

/* ---- PATH or NAME=PATH ---- */

/* Splits NAME=PATH, unless a file has that whole name. The caller frees *name, which may be
 * NULL. */
static int contexts_split(const char *argument, char **name, const char **path, struct error *err)
{
    const char *equals = strchr(argument, '=');
    *name = NULL;
    *path = argument;
    if (!equals || equals == argument || memchr(argument, '/', (size_t)(equals - argument)) ||
        access(argument, F_OK) == 0)
        return 0;
    *name = text_copy(argument, (size_t)(equals - argument));
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

static int contexts_load(const struct settings *s, const struct context_paths *paths, size_t i,
    const int *interrupt, struct contexts *all, struct error *err)
{
    struct context_filter filter = api_filter(s, interrupt);
    struct context *context = NULL;
    cleanup_free char *name = NULL;
    const char *path = paths->list.items[i];
    enum value_kind kind;
    int rc = api_context_kind(s, &kind, err);
    if (rc == 0 && !paths->unnamed)
        rc = contexts_split(path, &name, &path, err);
    if (rc == 0)
        rc = check_new(all, name, path, err);
    if (rc == 0)
        rc = context_load(path, kind, &filter, &context, err);
    if (rc < 0)
        return rc;
    context->name = steal(&name);
    return contexts_add(all, context, err);
}

int api_contexts_read(const struct settings *s, const struct context_paths *paths,
    const int *interrupt, struct contexts *all, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < paths->list.count; i++)
        rc = contexts_load(s, paths, i, interrupt, all, err);
    return rc;
}

int api_contexts_look(
    const struct settings *s, const struct context_paths *paths, struct error *err)
{
    struct context_filter filter = api_filter(s, NULL);
    enum value_kind kind;
    int rc = api_context_kind(s, &kind, err);
    for (size_t i = 0; rc == 0 && i < paths->list.count; i++) {
        cleanup_free char *name = NULL;
        const char *path = paths->list.items[i];
        if (!paths->unnamed)
            rc = contexts_split(path, &name, &path, err);
        if (rc == 0)
            rc = context_look(path, &filter, err);
    }
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
    err = api_error(err);
    cleanup_free char *name = NULL;
    const char *path;
    int rc = contexts_split(context, &name, &path, err);
    if (rc == 0 && !path[0])
        rc = error_set(err, ERROR_ARGUMENT, "a context is PATH or NAME=PATH, not '%.64s'", context);
    if (rc == 0)
        rc = list_add(&d->contexts, context, err);
    return rc < 0 ? rc : 0;
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

/* Restores the contexts of a recorded run. */
struct again {
    const struct stored_run *stored_run;
    const struct settings *settings;
    const int *interrupt;
    size_t taken; /* bytes used of the recorded data */
};

/* Takes a context from the record itself. */
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
        "the context %.100s has changed since run '%.64s' began: restore it, or start a new run",
        path ? path : "in the record", a->stored_run->id);
}

/* Sets the name and the source that the context had when it was recorded. */
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
    bool requested = all->count > 0,
         several = json_object_is_type(stored_run->context, json_type_array);
    size_t count =
        several ? json_object_array_length(stored_run->context) : stored_run->context != NULL;
    int rc = 0;
    if (requested && count != all->count)
        return error_set(err, ERROR_ARGUMENT, "run '%.64s' had %s", stored_run->id,
            count == 0 ? "no context" : "another number of contexts");
    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct json_object *was =
            several ? json_object_array_get_idx(stored_run->context, i) : stored_run->context;
        rc = requested ? 0 : load_again(&again, was, all, err);
        if (rc == 0)
            rc = check_same(&again, all->items[i], was, err);
        if (rc == 0)
            rc = name_again(all->items[i], was, err);
    }
    return rc;
}
