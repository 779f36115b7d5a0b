/* env/common/mounts.h: the volume and the workspace of a local sandbox: given to its user, named in its plan, measured. */
#ifndef DROSTE_ENV_COMMON_MOUNTS_H
#define DROSTE_ENV_COMMON_MOUNTS_H

#include <sys/types.h>

#include "base/buf.h"
#include "env/common/environment.h"
#include "env/common/quota.h"
#include "jail/jail.h"

/* All zero: it has neither. */
struct mounts {
    enum isolation isolation;
    struct volume *volume;       /* NULL: none */
    struct workspace *workspace; /* NULL: none */
    enum layout layout;
    struct quota_user quota, workspace_quota;
    struct buf volume_path, workspace_path; /* as the plan has them */
    int mounts[2]; /* of the volume and the workspace, for the sandbox's user; -1: none */
    void (*full)(void *arg, enum limit limit);
    void *arg;
};

/* Those that a spec has; NULL: none. */
void mounts_hold(struct mounts *p, enum isolation isolation, const struct sandbox_spec *spec);
/* Mounts them so that what the guests' user has in them is this user's in the sandbox. False where
 * that cannot be had: not at this isolation, not in this file system. */
bool mounts_map(struct mounts *p, uid_t user);
/* Makes them ready for this user on disk, and fills in what the plan says of them; what is filled
 * in lasts as long as the places. From now on `full` is called with the limit of a place that is
 * over it. */
int mounts_enter(struct mounts *p, struct quotas *quotas, uid_t guest,
    void (*full)(void *arg, enum limit limit), void *arg, struct jail_mount *out,
    struct error *err);
bool mounts_any(const struct mounts *p);
/* Where the guest sees them; NULL: it has none. */
const char *mounts_volume(const struct mounts *p);
const char *mounts_workspace(const struct mounts *p);
/* Nobody writes to them any more. */
void mounts_leave(struct mounts *p);

#endif
