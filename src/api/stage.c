/* api/stage.c: what the settings want to be in a session's workspace. */
#include "api/api.h"

#include "base/clock.h"
#include "base/cleanup.h"
#include "volume/workspace.h"

static int stage_fill(droste *d, const struct settings *s, struct workspace *w, struct error *err)
{
    struct git_bounds bounds = {
        .deadline_ns = clock_ns() + (uint64_t)(s->repo_timeout * 1e9),
        .interrupt = d->interrupt_fd,
        .file_bytes = (uint64_t)s->workspace_size,
    };
    int rc = 0;
    if (s->repo_url)
        rc = workspace_add_repository(w, s->repo_url, s->repo_ref, &bounds, err);
    for (size_t i = 0; rc == 0 && i < s->context_path.count; i++)
        rc = workspace_add_path(w, s->context_path.items[i], err);
    return rc;
}

static int stage_make(
    droste *d, const struct settings *s, struct workspace **out, struct error *err)
{
    cleanup_free char *root = NULL;
    struct volume_limits limits = { (uint64_t)s->workspace_size, (uint64_t)s->workspace_files };
    int rc = s->repo_url ? repository_check(s->repo_url, s->repo_ref, err) : 0;
    if (rc == 0)
        rc = api_volume_root(s, &root, err);
    if (rc == 0)
        rc = workspace_new(root, &limits, out, err);
    if (rc == 0)
        rc = stage_fill(d, s, *out, err);
    if (rc < 0)
        workspace_release(steal(out));
    return rc;
}

int api_stage(droste *d, const struct settings *s, struct workspace **workspace,
    struct session_options *options, struct error *err)
{
    int rc = 0;
    if (s->repo_ref && !s->repo_url)
        return error_set(err, ERROR_ARGUMENT,
            "repo-ref is a branch, tag or commit of repo-url, which is not set");
    if (!*workspace && (s->repo_url || s->context_path.count > 0))
        rc = stage_make(d, s, workspace, err);
    if (rc < 0 || !*workspace)
        return rc;
    options->spec.workspace = *workspace;
    options->spec.limits.workspace_size = (uint64_t)s->workspace_size;
    options->spec.limits.workspace_files = (uint64_t)s->workspace_files;
    return 0;
}
