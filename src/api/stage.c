/* api/stage.c: see stage.h. */
#include "api/stage.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/api.h"
#include "api/mcp_api.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/job.h"
#include "env/common/environment.h"
#include "env/local/zygote.h"
#include "volume/repository.h"
#include "volume/workspace.h"

/* ---- in the thread ---- */

static int stage_contexts(struct staging *st, struct error *err)
{
    int rc = api_contexts_read(&st->settings, &st->paths, &st->cancel, &st->parts.contexts, err);
    if (rc == 0 && st->again)
        rc = api_contexts_again(
            &st->parts.stored_run, &st->settings, &st->cancel, &st->parts.contexts, err);
    return rc;
}

static int stage_volume(struct staging *st, struct error *err)
{
    cleanup_free char *root = NULL;
    struct volume_limits limits = api_volume_limits(&st->settings);
    struct volume **volume = &st->parts.volume;
    int rc = api_volume_root(&st->settings, &root, err);
    if (rc == 0)
        rc = volume_open_or_create(root, st->settings.volume_name, &limits, volume, err);
    if (rc == 0 && st->layout->directories)
        rc = volume_fill_empty(*volume, st->layout->directories, err);
    return rc;
}

static int fill_workspace(struct staging *st, struct workspace *w, struct error *err)
{
    const struct settings *s = &st->settings;
    struct git_bounds bounds = {
        .deadline_ns = clock_ns() + (uint64_t)(s->repo_timeout * 1e9),
        .interrupt = st->cancel,
        .file_bytes = (uint64_t)s->workspace_size,
    };
    int rc = 0;
    workspace_interrupt_by(w, st->cancel);
    if (s->repo_url)
        rc = workspace_add_repository(w, s->repo_url, s->repo_ref, &bounds, err);
    for (size_t i = 0; rc == 0 && i < s->context_path.count; i++)
        rc = workspace_add_path(w, s->context_path.items[i], err);
    workspace_interrupt_by(w, -1);
    return rc;
}

static int stage_workspace(struct staging *st, struct error *err)
{
    cleanup_free char *root = NULL;
    const struct settings *s = &st->settings;
    struct volume_limits limits = { (uint64_t)s->workspace_size, (uint64_t)s->workspace_files };
    int rc = api_volume_root(s, &root, err);
    if (rc == 0)
        rc = workspace_new(root, &limits, &st->parts.workspace, err);
    return rc < 0 ? rc : fill_workspace(st, st->parts.workspace, err);
}

static int stage_image(struct staging *st, struct error *err)
{
    const struct image_request request = { st->settings.image, st->fetch, st->cancel };
    int rc = image_open(&request, &st->parts.image, err);
    st->parts.image_is_fetched = rc == 0;
    return rc;
}

static bool is_cancelled(const struct staging *st)
{
    struct pollfd cancel = { .fd = st->cancel, .events = POLLIN };
    return poll(&cancel, 1, 0) > 0;
}

static void staging_work(void *arg)
{
    struct staging *st = arg;
    struct error *err = &st->why;
    int rc = stage_contexts(st, err);
    if (rc == 0 && st->wants_volume)
        rc = stage_volume(st, err);
    if (rc == 0 && st->wants_workspace)
        rc = stage_workspace(st, err);
    if (rc == 0 && st->wants_image)
        rc = stage_image(st, err);
    if (rc == 0 && is_cancelled(st))
        rc = error_set(err, ERROR_CANCELLED, "interrupted while the session was staged");
    if (rc < 0) /* in this thread, because removing may block, too */
        staged_parts_free(&st->parts);
    else /* a step may have failed and then succeeded in another way */
        st->why = (struct error){ 0 };
}

/* ---- in the loop's ---- */

void staged_parts_free(struct staged_parts *parts)
{
    contexts_free(&parts->contexts);
    volume_release(parts->volume);
    workspace_release(parts->workspace);
    image_close(parts->image);
    stored_run_free(&parts->stored_run);
    *parts = (struct staged_parts){ 0 };
}

static void staging_free(struct staging *st)
{
    staged_parts_free(&st->parts);
    settings_free(&st->settings);
    list_clear(&st->paths.list);
    close_fd(&st->cancel);
    free(st);
}

int staging_new(const struct settings *s, struct staging **out, struct error *err)
{
    struct staging *st = calloc(1, sizeof *st);
    if (!st)
        return error_memory(err);
    st->cancel = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = st->cancel < 0 ? error_set_errno(err, ERROR_IO, "making an eventfd")
                            : settings_copy(&st->settings, s, err);
    if (rc < 0)
        staging_free(st);
    else
        *out = st;
    return rc;
}

int staging_want_contexts(struct staging *st, const droste *d, const char *first,
    const char *const *more, struct error *err)
{
    struct list *list = &st->paths.list;
    int rc = first ? list_add(list, first, err) : 0;
    for (; rc == 0 && more && *more; more++)
        rc = list_add(list, *more, err);
    if (rc == 0)
        rc = list_add_all(list, &d->contexts, err);
    return rc < 0 ? rc : api_contexts_look(&st->settings, &st->paths, err);
}

int staging_want_session(struct staging *st, const struct session_options *options,
    const struct environment *env, bool has_workspace, struct error *err)
{
    const struct settings *s = &st->settings;
    st->wants_volume = s->volume_name && !(environment_ops_of(env)->traits & TRAIT_VOLUMES);
    st->layout = layout_of(options->spec.layout);
    st->wants_workspace = !has_workspace && (s->repo_url || s->context_path.count > 0);
    if (s->repo_ref && !s->repo_url)
        return error_set(err, ERROR_ARGUMENT,
            "repo-ref is a branch, tag or commit of repo-url, which is not set");
    return st->wants_workspace && s->repo_url ? repository_check(s->repo_url, s->repo_ref, err) : 0;
}

void staging_want_image(struct staging *st, const droste *d, const struct session_options *options,
    const struct environment *env)
{
    const struct settings *s = &st->settings;
    if (!s->image || s->rootfs || !(environment_ops_of(env)->traits & TRAIT_IMAGES))
        return; /* both are refused by name */
    st->parts.image_is_fetched = list_has(&d->images, st->settings.image);
    st->wants_image = !st->parts.image_is_fetched;
    st->fetch = zygote_fetch_of(options->spec.container->pull);
}

void staging_want_mcp(struct staging *st, droste *d)
{
    st->d = d;
    st->wants_mcp = !api_mcp_is_ready(d, &st->settings);
}

static bool staging_has_work(const struct staging *st)
{
    return st->paths.list.count > 0 || st->again || st->wants_volume || st->wants_workspace ||
           st->wants_image;
}

bool staging_is_needed(const struct staging *st)
{
    return staging_has_work(st) || st->wants_mcp;
}

static void staging_end(struct staging *st)
{
    if (st->done)
        st->done(st->arg, &st->parts, st->why.code == ERROR_NONE ? NULL : &st->why);
    staging_free(st);
}

static void staging_mcp_done(void *arg, const struct error *why)
{
    struct staging *st = arg;
    st->mcp = NULL;
    if (why)
        st->why = *why;
    staging_end(st);
}

/* The work in the thread is done. */
static void staging_done(void *arg)
{
    struct staging *st = arg;
    st->works = false;
    if (!st->done || !st->wants_mcp || st->why.code != ERROR_NONE ||
        api_mcp_wait(st->d, &st->settings, staging_mcp_done, st, &st->mcp, &st->why) < 0)
        staging_end(st);
}

int staging_start(
    struct loop *loop, struct staging **mine, staging_done_fn *done, void *arg, struct error *err)
{
    struct staging *st = *mine;
    st->done = done;
    st->arg = arg;
    st->started = true;
    st->works = staging_has_work(st);
    int rc = st->works ? job_start(loop, staging_work, staging_done, st, err)
                       : api_mcp_wait(st->d, &st->settings, staging_mcp_done, st, &st->mcp, err);
    if (rc == 0)
        return 0;
    *mine = NULL;
    staging_free(st);
    return rc;
}

void staging_cancel(struct staging *st)
{
    uint64_t one = 1;
    (void)!write(st->cancel, &one, sizeof one);
    if (st->mcp)
        api_mcp_wait_cancel(st->mcp);
}

void staging_drop(struct staging *st)
{
    if (!st)
        return;
    st->done = NULL;
    api_mcp_wait_free(steal(&st->mcp));
    if (st->started && st->works)
        staging_cancel(st);
    else
        staging_free(st);
}

struct staging_wait {
    bool done;
    struct staged_parts parts;
    struct error why;
};

static void staging_waited(void *arg, struct staged_parts *parts, const struct error *why)
{
    struct staging_wait *wait = arg;
    wait->parts = *parts;
    *parts = (struct staged_parts){ 0 };
    if (why)
        wait->why = *why;
    wait->done = true;
}

int staging_run(droste *d, struct staging *st, struct staged_parts *out, struct error *err)
{
    struct staging_wait wait = { 0 };
    if (d->waits) {
        staging_drop(st);
        return api_enter(d, err);
    }
    int rc = staging_start(d->loop, &st, staging_waited, &wait, err);
    if (rc < 0)
        return rc;
    d->staging = st;
    rc = api_wait(d, &wait.done, err);
    d->staging = NULL;
    if (rc < 0) {
        staging_drop(st);
        return rc;
    }
    *out = wait.parts;
    if (wait.why.code != ERROR_NONE)
        *err = wait.why;
    return -(int)wait.why.code;
}

void staged_parts_use(droste *d, struct staged_parts *staged, const struct settings *s,
    struct session_parts *parts, struct session_options *options)
{
    if (staged->volume) {
        parts->volume = steal(&staged->volume);
        options->spec.volume = parts->volume;
        options->spec.limits.volume_size = volume_limits_of(parts->volume)->size;
        options->spec.limits.volume_files = volume_limits_of(parts->volume)->files;
    }
    if (staged->workspace)
        parts->workspace = steal(&staged->workspace);
    if (staged->image) {
        parts->image = steal(&staged->image);
        (void)!list_add(&d->images, s->image, NULL); /* or it is opened again */
    }
    if (staged->image_is_fetched && parts->container.pull == PULL_ALWAYS)
        parts->container.pull = PULL_MISSING;
    if (!parts->workspace)
        return;
    options->spec.workspace = parts->workspace;
    options->spec.limits.workspace_size = (uint64_t)s->workspace_size;
    options->spec.limits.workspace_files = (uint64_t)s->workspace_files;
}

/* ---- contexts alone ---- */

/* Takes the staging. `rc` is the result of the request. */
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
    return rc < 0 ? rc
                  : load_staged(d, st, staging_want_contexts(st, d, NULL, NULL, err), out, err);
}

int api_context_load(droste *d, const struct settings *s, const char *path, const char *kind,
    struct context **out, struct error *err)
{
    struct contexts one = { 0 };
    struct staging *st = NULL;
    int rc = staging_new(s, &st, err);
    if (rc < 0)
        return rc;
    st->paths.unnamed = true;
    rc = list_add(&st->paths.list, path, err);
    if (rc == 0 && kind)
        rc = settings_set(&st->settings, "context-type", kind, "the context's kind", err);
    rc = load_staged(d, st, rc, &one, err);
    if (rc == 0)
        *out = steal(&one.items[0]);
    contexts_free(&one);
    return rc;
}
