/* volume/workspace.c: stages copies into an ephemeral volume, whose quota applies. */
#include "volume/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/os/file.h"
#include "base/text.h"
#include "volume/checkout.h"

struct workspace {
    unsigned holders;
    struct volume *volume;
    struct staged staged;
};

int workspace_new(
    const char *root, const struct volume_limits *limits, struct workspace **out, struct error *err)
{
    struct workspace *w = calloc(1, sizeof *w);
    if (!w)
        return error_memory(err);
    w->holders = 1;
    int rc = volume_make_ephemeral(root, limits, &w->volume, err);
    if (rc < 0)
        workspace_release(w);
    else
        *out = w;
    return rc < 0 ? error_wrap(err, "making a workspace") : 0;
}

void workspace_interrupt_by(struct workspace *w, int fd)
{
    volume_interrupt_by(w->volume, fd);
}

struct workspace *workspace_hold(struct workspace *w)
{
    if (w)
        w->holders++;
    return w;
}

void workspace_release(struct workspace *w)
{
    if (!w || --w->holders > 0)
        return;
    volume_release(w->volume);
    free(w->staged.repo);
    free(w->staged.url);
    free(w->staged.ref);
    list_clear(&w->staged.paths);
    free(w);
}

struct volume *workspace_volume(const struct workspace *w)
{
    return w->volume;
}

const struct staged *workspace_staged(const struct workspace *w)
{
    return &w->staged;
}

static void add_count(struct workspace *w, const droste_volume_count *count)
{
    w->staged.count.files += count->files;
    w->staged.count.bytes += count->bytes;
    w->staged.count.left_out += count->left_out;
}

int workspace_add_repository(struct workspace *w, const char *url, const char *ref,
    const struct git_bounds *bounds, struct error *err)
{
    struct staged *s = &w->staged;
    struct repository r;
    droste_volume_count count;
    char name[65];
    int rc = repository_open(url, ref, bounds, &r, err);
    if (rc < 0)
        return rc;
    repository_name(url, name);
    rc = checkout(w->volume, name, &r, bounds, &count, err);
    memcpy(s->commit, r.commit, sizeof s->commit);
    repository_close(&r);
    if (rc < 0)
        return error_wrap(err, "staging %.60s", name);
    s->repo = strdup(name);
    s->url = strdup(url);
    s->ref = ref ? strdup(ref) : NULL;
    add_count(w, &count);
    return s->repo && s->url && (s->ref || !ref) ? 0 : error_memory(err);
}

/* The last component of the resolved path, so that "." has a name, too. */
static int last_name(const char *path, char **out, struct error *err)
{
    cleanup_free char *whole = realpath(path, NULL);
    const char *slash = whole ? strrchr(whole, '/') : NULL;
    if (!whole)
        return error_set_errno(
            err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "the context-path %.150s", path);
    if (!slash[1])
        return error_set(err, ERROR_ARGUMENT,
            "the context-path / would copy all of this machine; "
            "name a directory");
    *out = strdup(slash + 1);
    return *out ? 0 : error_memory(err);
}

int workspace_add_path(struct workspace *w, const char *path, struct error *err)
{
    droste_volume_count count;
    cleanup_free char *name = NULL;
    cleanup_buf struct buf to = { 0 };
    int rc = last_name(path, &name, err);
    if (rc < 0)
        return rc;
    buf_printf(&to, "context/%s", name);
    if (buf_failed(&to))
        return error_memory(err);
    bool taken = list_has(&w->staged.paths, buf_text(&to));
    if (taken || !text_is_utf8(name, strlen(name), NULL))
        return error_set(err, ERROR_ARGUMENT, "the context-path %.120s: %s; rename it", path,
            taken ? "another one has the same last name" : "its name is not UTF-8");
    cleanup_fd int fd = file_open(path, O_RDONLY, FILE_OR_DIRECTORY, "the context-path", err);
    if (fd < 0)
        return fd;
    rc = volume_put(w->volume, fd, buf_text(&to), &count, err);
    if (rc < 0)
        return error_wrap(err, "staging the context-path %.80s", path);
    add_count(w, &count);
    return list_add(&w->staged.paths, buf_text(&to), err);
}

void workspace_put_repo(const struct workspace *w, struct buf *json)
{
    const struct staged *s = w ? &w->staged : NULL;
    if (!s || !s->repo) {
        field_null(json, "repo");
        return;
    }
    field_open(json, "repo", '{');
    field_string(json, "url", s->url);
    field_string(json, "ref", s->ref);
    field_string(json, "commit", s->commit);
    field_close(json, '}');
}
