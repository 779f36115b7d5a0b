/* env/common/mounts.h: the volume and workspace of a local sandbox: ownership, mounts, and quotas.
 */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "env/common/environment.h"
#include "env/common/quota.h"
#include "jail/jail.h"

/* All zero: neither volume nor workspace. */
struct mounts {
    enum isolation isolation;
    struct volume *volume;       /* NULL: none */
    struct workspace *workspace; /* NULL: none */
    const struct layout *layout;
    struct quota_user quota, workspace_quota;
    struct buf volume_path, workspace_path; /* as named in the plan */
    int mounts[2]; /* idmapped mounts of the volume and the workspace; -1: none */
    void (*full)(void *arg, enum limit limit);
    void *arg;
};

/* Takes references to the volume and workspace of a specification; NULL: none. */
void mounts_hold(struct mounts *p, enum isolation isolation, const struct sandbox_spec *spec);
/* Creates idmapped mounts in which files of the guests' user belong to `user`. False if this
 * isolation level or the file system does not support it. */
bool mounts_map(struct mounts *p, uid_t user);
/* Prepares the directories for this user, and fills in the plan's mounts, which stay valid as long
 * as `p`. From now on, `full` is called with the limit when a quota is exceeded. */
int mounts_enter(struct mounts *p, struct quotas *quotas, uid_t guest,
    void (*full)(void *arg, enum limit limit), void *arg, struct jail_mount *out,
    struct error *err);
bool mounts_any(const struct mounts *p);
/* The path in the guest; NULL: none. */
const char *mounts_volume(const struct mounts *p);
const char *mounts_workspace(const struct mounts *p);
/* Drops the references. The sandbox's processes must have ended. */
void mounts_leave(struct mounts *p);
