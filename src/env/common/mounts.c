/* env/common/mounts.c: prepares a local sandbox's volume and workspace. */
#include "env/common/mounts.h"

#include <unistd.h>

#include "base/cleanup.h"
#include "env/common/idmap.h"
#include "volume/volume.h"
#include "volume/workspace.h"

void mounts_hold(struct mounts *p, enum isolation isolation, const struct sandbox_spec *spec)
{
    p->isolation = isolation;
    p->layout = spec ? spec->layout : NULL;
    p->volume = spec ? volume_hold(spec->volume) : NULL;
    p->workspace = spec ? workspace_hold(spec->workspace) : NULL;
    p->mounts[0] = p->mounts[1] = -1;
}

bool mounts_map(struct mounts *p, uid_t user)
{
    const struct volume *of[] = { p->volume, p->workspace ? workspace_volume(p->workspace) : NULL };
    bool mapped = isolation_has_own_root(p->isolation);
    for (size_t i = 0; mapped && i < array_length(of); i++) {
        p->mounts[i] = of[i] ? idmap_mount(volume_data(of[i]), JAIL_NOBODY, user) : -1;
        mapped = !of[i] || p->mounts[i] >= 0;
    }
    for (size_t i = 0; !mapped && i < array_length(of); i++)
        close_fd(&p->mounts[i]);
    return mapped;
}

bool mounts_any(const struct mounts *p)
{
    return p->volume || p->workspace;
}

static void volume_full(void *arg, enum limit limit)
{
    struct mounts *p = arg;
    p->full(p->arg, limit);
}

static void workspace_full(void *arg, enum limit limit)
{
    struct mounts *p = arg;
    p->full(p->arg, limit == LIMIT_VOLUME_SIZE ? LIMIT_WORKSPACE_SIZE : LIMIT_WORKSPACE_FILES);
}

/* Without a root of its own, a guest reaches a host path only if file permissions allow it. */
static int check_path(
    const struct mounts *p, const struct volume *v, uid_t guest, struct error *err)
{
    cleanup_free char *barrier = volume_barrier(v, guest);
    if (!barrier || guest == geteuid())
        return 0;
    return error_set(err, ERROR_ENVIRONMENT,
        "at isolation '%s' the guest runs as the user nobody, which may not enter %.60s, a "
        "directory above the volume or workspace; choose a --volume-root that all users can "
        "reach, or run as an ordinary user",
        isolation_name(p->isolation), barrier);
}

static int mounts_enter_one(const struct mounts *p, struct volume *v, uid_t guest, struct buf *path,
    struct jail_volume *out, struct error *err)
{
    bool own_root = isolation_has_own_root(p->isolation);
    int rc = own_root ? 0 : check_path(p, v, guest, err);
    if (rc == 0 && geteuid() == 0)
        rc = volume_give(v, guest, err);
    if (rc < 0)
        return rc;
    buf_printf(path, own_root ? "%s/data" : "%s", own_root ? volume_name(v) : volume_path(v));
    if (buf_failed(path))
        return error_memory(err);
    *out = (struct jail_volume){
        .path = buf_text(path),
        .device = volume_device(v),
        .inode = volume_inode(v),
    };
    return 0;
}

int mounts_enter(struct mounts *p, struct quotas *quotas, uid_t guest,
    void (*full)(void *arg, enum limit limit), void *arg, struct jail_mount *out, struct error *err)
{
    struct volume *v = p->volume, *w = p->workspace ? workspace_volume(p->workspace) : NULL;
    p->full = full;
    p->arg = arg;
    p->quota.over = volume_full;
    p->workspace_quota.over = workspace_full;
    p->quota.arg = p->workspace_quota.arg = p;
    out->layout = p->layout;
    int rc = v ? mounts_enter_one(p, v, guest, &p->volume_path, &out->volume, err) : 0;
    if (rc == 0 && v)
        rc = quotas_join(quotas, v, &p->quota, err);
    if (rc == 0 && w)
        rc = mounts_enter_one(p, w, guest, &p->workspace_path, &out->workspace, err);
    if (rc == 0 && w)
        rc = quotas_join(quotas, w, &p->workspace_quota, err);
    out->volume.mapped = p->mounts[0] >= 0;
    out->workspace.mapped = p->mounts[1] >= 0;
    return rc;
}

const char *mounts_volume(const struct mounts *p)
{
    if (!p->volume)
        return NULL;
    return isolation_has_own_root(p->isolation) ? layout_of(p->layout)->volume[0]
                                                : volume_path(p->volume);
}

const char *mounts_workspace(const struct mounts *p)
{
    if (!p->workspace)
        return NULL;
    return isolation_has_own_root(p->isolation) ? layout_of(p->layout)->workspace[0]
                                                : volume_path(workspace_volume(p->workspace));
}

void mounts_leave(struct mounts *p)
{
    quotas_leave(&p->quota);
    quotas_leave(&p->workspace_quota);
    close_fd(&p->mounts[0]);
    close_fd(&p->mounts[1]);
    volume_release(steal(&p->volume));
    workspace_release(steal(&p->workspace));
    buf_free(&p->volume_path);
    buf_free(&p->workspace_path);
}
