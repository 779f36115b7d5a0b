/* api/workspace_api.c: workspaces that are staged before their session is opened. */
#include <stdlib.h>

#include "api/api.h"
#include "api/session_api.h"
#include "api/stage.h"
#include "base/cleanup.h"
#include "volume/workspace.h"

struct droste_workspace {
    struct workspace *staged;
};

static int workspace_stage(droste *d, struct workspace **out, struct error *err)
{
    struct staging *st = NULL;
    struct staged_parts parts = { 0 };
    api_forget_interrupt(d);
    int rc = staging_new(&d->settings, &st, err);
    if (rc < 0)
        return rc;
    st->wants_workspace = true;
    rc = staging_run(d, st, &parts, err);
    *out = steal(&parts.workspace);
    staged_parts_free(&parts);
    return rc;
}

int droste_workspace_stage(droste *d, droste_workspace **out, droste_error *err)
{
    err = api_error(err);
    *out = NULL;
    if (!d->settings.repo_url && d->settings.context_path.count == 0)
        return 0;
    droste_workspace *w = calloc(1, sizeof *w);
    int rc = w ? workspace_stage(d, &w->staged, err) : error_memory(err);
    if (rc < 0)
        droste_workspace_free(steal(&w));
    *out = w;
    return rc;
}

const char *droste_workspace_commit(const droste_workspace *w)
{
    const struct staged *staged = workspace_staged(w->staged);
    return staged->commit[0] ? staged->commit : NULL;
}

const char *droste_workspace_repo(const droste_workspace *w)
{
    return workspace_staged(w->staged)->repo;
}

void droste_workspace_free(droste_workspace *w)
{
    if (w)
        workspace_release(w->staged);
    free(w);
}

int droste_session_open_in(
    droste *d, const droste_workspace *w, droste_session **out, droste_error *err)
{
    return api_session_open_staged(d, w ? workspace_hold(w->staged) : NULL, out, err);
}
