/* api/volume_api.c: volumes, without a sandbox. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/options.h"
#include "api/volume_remote.h"
#include "base/cleanup.h"
#include "volume/share.h"

struct droste_volume {
    droste *d;
    char *name;
    struct volume *local; /* NULL: the provider keeps it */
};

int droste_volumes_are_remote(const droste *d)
{
    const struct environment_kind *kind = environment_named(d->settings.env ? d->settings.env : "");
    return kind && kind->keeps_volumes;
}

static int volume_refuse_remote(const droste *d, const char *what, struct error *err)
{
    return error_set(err, ERROR_UNSUPPORTED,
        "volumes of %s do not support %s; use it with volumes of this machine (--env local)",
        d->settings.env, what);
}

/* ---- all of them ---- */

const char *droste_volume_root(droste *d, droste_error *err)
{
    err = api_error(err);
    char *root = NULL;
    int rc = api_volume_root(&d->settings, &root, err);
    if (rc < 0)
        return NULL;
    free(d->volume_root);
    return d->volume_root = root;
}

static int volume_tell_names(struct list *names, droste_name_fn *fn, void *arg)
{
    for (size_t i = 0; i < names->count && fn(arg, names->items[i]) == 0; i++)
        continue;
    list_clear(names);
    return 0;
}

/* The root of this machine's volumes, which the caller frees. ERROR_UNSUPPORTED if the provider
 * keeps them. */
static int volume_local_root(droste *d, const char *what, char **out, struct error *err)
{
    return droste_volumes_are_remote(d) ? volume_refuse_remote(d, what, err)
                                        : api_volume_root(&d->settings, out, err);
}

int droste_volume_names(droste *d, droste_name_fn *fn, void *arg, droste_error *err)
{
    err = api_error(err);
    cleanup_free char *root = NULL;
    struct list names = { 0 };
    int rc = volume_local_root(d, "listing them", &root, err);
    if (rc == 0)
        rc = volume_names(root, &names, err);
    return rc < 0 ? rc : volume_tell_names(&names, fn, arg);
}

int droste_volume_create(droste *d, const char *name, droste_error *err)
{
    err = api_error(err);
    cleanup_free char *root = NULL;
    struct volume_limits limits = api_volume_limits(&d->settings);
    int rc = volume_local_root(d, "create", &root, err);
    if (rc == 0)
        rc = volume_create(root, name, &limits, err);
    return rc;
}

int droste_volume_create_from(
    droste *d, const char *name, const char *share, const char *commit, droste_error *err)
{
    err = api_error(err);
    cleanup_free char *root = NULL;
    int rc = volume_local_root(d, "commits", &root, err);
    if (rc == 0)
        rc = volume_create_from(root, name, share, commit, err);
    return rc;
}

int droste_volume_remove(droste *d, const char *name, droste_error *err)
{
    err = api_error(err);
    cleanup_free char *root = NULL;
    int rc = volume_local_root(d, "rm", &root, err);
    if (rc == 0)
        rc = volume_remove(root, name, err);
    return rc;
}

/* ---- one of them ---- */

static int volume_open_handle(droste_volume *v, int flags, struct error *err)
{
    cleanup_free char *root = NULL;
    if (droste_volumes_are_remote(v->d))
        return flags & DROSTE_VOLUME_ALONE ? volume_refuse_remote(v->d, "using one alone", err) : 0;
    int rc = api_volume_root(&v->d->settings, &root, err);
    enum volume_use use = flags & DROSTE_VOLUME_ALONE ? VOLUME_ALONE : VOLUME_SHARED;
    return rc < 0 ? rc : volume_open(root, v->name, use, &v->local, err);
}

int droste_volume_open(
    droste *d, const char *name, int flags, droste_volume **out, droste_error *err)
{
    err = api_error(err);
    droste_volume *v = calloc(1, sizeof *v);
    if (v)
        *v = (droste_volume){ .d = d, .name = strdup(name) };
    int rc = v && v->name ? volume_open_handle(v, flags, err) : error_memory(err);
    if (rc < 0) {
        droste_volume_close(v);
        return rc;
    }
    *out = v;
    return 0;
}

void droste_volume_close(droste_volume *v)
{
    if (!v)
        return;
    volume_release(v->local);
    free(v->name);
    free(v);
}

const char *droste_volume_name(const droste_volume *v)
{
    return v->name;
}

const char *droste_volume_path(const droste_volume *v)
{
    return v->local ? volume_path(v->local) : NULL;
}

int droste_volume_measure(const droste_volume *v, droste_volume_usage *out, droste_error *err)
{
    err = api_error(err);
    struct volume_usage used = { 0 };
    int rc =
        v->local ? volume_measure(v->local, &used, err) : volume_refuse_remote(v->d, "du", err);
    if (rc < 0)
        return rc;
    const struct volume_limits *limits = volume_limits_of(v->local);
    *out = (droste_volume_usage){ used.size, used.files, limits->size, limits->files };
    return 0;
}

static int volume_parse_limits(
    const char *size, const char *files, struct volume_limits *limits, struct error *err)
{
    struct settings words;
    int rc = settings_init(&words, err);
    if (rc == 0 && size)
        rc = settings_set(&words, "volume-size", size, "droste_volume_limit", err);
    if (rc == 0 && files)
        rc = settings_set(&words, "volume-files", files, "droste_volume_limit", err);
    if (rc == 0 && size)
        limits->size = (uint64_t)words.volume_size;
    if (rc == 0 && files)
        limits->files = (uint64_t)words.volume_files;
    settings_free(&words);
    return rc;
}

int droste_volume_limit(droste_volume *v, const char *size, const char *files, droste_error *err)
{
    err = api_error(err);
    struct volume_limits limits = { 0 };
    int rc = v->local ? 0 : volume_refuse_remote(v->d, "limit", err);
    if (rc == 0) {
        limits = *volume_limits_of(v->local);
        rc = volume_parse_limits(size, files, &limits, err);
    }
    if (rc == 0)
        rc = volume_set_limits(v->local, &limits, err);
    return rc;
}

/* ---- its files ---- */

struct volume_listing {
    droste_volume_entry_fn *fn;
    void *arg;
    bool ended; /* the function has ended the listing */
};

static int volume_tell_entry(void *arg, const droste_volume_entry *entry, struct error *err)
{
    struct volume_listing *listing = arg;
    listing->ended = listing->fn(listing->arg, entry) != 0;
    return listing->ended ? error_set(err, ERROR_CANCELLED, "listing a volume was ended") : 0;
}

int droste_volume_list(droste_volume *v, const char *path, unsigned depth, size_t most,
    droste_volume_entry_fn *fn, void *arg, droste_error *err)
{
    err = api_error(err);
    struct volume_listing listing = { fn, arg, false };
    path = environment_volume_path(path);
    bool more = false;
    int rc = v->local
                 ? volume_list(v->local, path, depth, most, volume_tell_entry, &listing, &more, err)
                 : volume_remote_list(
                       v->d, v->name, path, depth, most, volume_tell_entry, &listing, &more, err);
    if (listing.ended)
        return 0;
    return rc < 0 ? rc : more;
}

/* The volume that contains a path: itself, or a local copy of that part of a provider's. */
static int volume_with_path(
    const droste_volume *v, const char *path, struct volume **out, struct error *err)
{
    cleanup_free char *root = NULL;
    struct volume_limits limits = api_volume_limits(&v->d->settings);
    if (v->local) {
        *out = volume_hold(v->local);
        return 0;
    }
    int rc = api_volume_root(&v->d->settings, &root, err);
    if (rc == 0)
        rc = volume_make_ephemeral(root, &limits, out, err);
    return rc < 0 ? rc : volume_remote_fetch(v->d, v->name, path, *out, err);
}

/* Reports the count or the error. */
static int volume_counted(int rc, const droste_volume_count *from, droste_volume_count *to)
{
    if (rc == 0 && to)
        *to = *from;
    return rc;
}

int droste_volume_get(droste_volume *v, const char *path, const char *to,
    droste_volume_count *count, droste_error *err)
{
    err = api_error(err);
    droste_volume_count copied = { 0 };
    struct volume *from = NULL;
    path = environment_volume_path(path);
    int rc = volume_with_path(v, path, &from, err);
    if (rc == 0)
        rc = volume_get(from, path, to, &copied, err);
    volume_release(from);
    return volume_counted(rc, &copied, count);
}

int droste_volume_read(droste_volume *v, const char *path, int out, droste_error *err)
{
    err = api_error(err);
    struct volume *from = NULL;
    path = environment_volume_path(path);
    int rc = volume_with_path(v, path, &from, err);
    if (rc == 0)
        rc = volume_read(from, path, out, err);
    volume_release(from);
    return rc;
}

static int volume_put_remote(const droste_volume *v, int source, const char *path,
    droste_volume_count *count, struct error *err)
{
    cleanup_free char *root = NULL;
    struct volume_limits limits = api_volume_limits(&v->d->settings);
    struct workspace *staged = NULL;
    int rc = api_volume_root(&v->d->settings, &root, err);
    if (rc == 0)
        rc = workspace_new(root, &limits, &staged, err);
    if (rc == 0)
        rc = volume_put(workspace_volume(staged), source, "put", count, err);
    if (rc == 0)
        rc = volume_remote_put(v->d, v->name, staged, path, err);
    workspace_release(staged);
    return rc;
}

int droste_volume_put(
    droste_volume *v, int source, const char *path, droste_volume_count *count, droste_error *err)
{
    err = api_error(err);
    droste_volume_count copied = { 0 };
    path = environment_volume_path(path);
    int rc = v->local ? volume_put(v->local, source, path, &copied, err)
                      : volume_put_remote(v, source, path, &copied, err);
    return volume_counted(rc, &copied, count);
}

int droste_volume_delete(droste_volume *v, const char *path, droste_error *err)
{
    err = api_error(err);
    path = environment_volume_path(path);
    return v->local ? volume_remove_path(v->local, path, err)
                    : volume_refuse_remote(v->d, "rm", err);
}

/* ---- snapshots ---- */

int droste_volume_snapshots(
    const droste_volume *v, droste_name_fn *fn, void *arg, droste_error *err)
{
    err = api_error(err);
    struct list names = { 0 };
    int rc = v->local ? volume_snapshots(v->local, &names, err)
                      : volume_refuse_remote(v->d, "listing snapshots", err);
    return rc < 0 ? rc : volume_tell_names(&names, fn, arg);
}

int droste_volume_snapshot_measure(
    const droste_volume *v, const char *name, droste_volume_usage *out, droste_error *err)
{
    err = api_error(err);
    struct volume_usage used = { 0 };
    int rc = v->local ? volume_snapshot_measure(v->local, name, &used, err)
                      : volume_refuse_remote(v->d, "du", err);
    if (rc < 0)
        return rc;
    *out = (droste_volume_usage){ .size = used.size, .files = used.files };
    return 0;
}

int droste_volume_snapshot(
    droste_volume *v, const char *name, droste_volume_count *count, droste_error *err)
{
    err = api_error(err);
    droste_volume_count copied = { 0 };
    int rc = v->local ? volume_snapshot(v->local, name, &copied, err)
                      : volume_refuse_remote(v->d, "snapshot", err);
    return volume_counted(rc, &copied, count);
}

int droste_volume_commit(droste_volume *v, const char *share, char commit[DROSTE_COMMIT_SIZE],
    droste_volume_count *count, droste_error *err)
{
    err = api_error(err);
    droste_volume_count copied = { 0 };
    int rc = v->local ? volume_commit(v->local, share, commit, &copied, err)
                      : volume_refuse_remote(v->d, "commits", err);
    return volume_counted(rc, &copied, count);
}

int droste_volume_restore(
    droste_volume *v, const char *name, droste_volume_count *count, droste_error *err)
{
    err = api_error(err);
    droste_volume_count copied = { 0 };
    int rc = v->local ? volume_restore(v->local, name, &copied, err)
                      : volume_refuse_remote(v->d, "restore", err);
    return volume_counted(rc, &copied, count);
}

int droste_volume_snapshot_remove(droste_volume *v, const char *name, droste_error *err)
{
    err = api_error(err);
    return v->local ? volume_snapshot_remove(v->local, name, err)
                    : volume_refuse_remote(v->d, "rm --snapshot", err);
}
