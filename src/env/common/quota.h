/* env/common/quota.h: quotas of the volumes that this process's sandboxes use.
 *
 * Not every file system can enforce quotas, so the host measures. Ten times a second it reads the
 * free space of the disk, which is cheap; when that has shrunk noticeably, or at long intervals, it
 * measures the volume in small steps. A sandbox can exceed the quota between two measurements
 * (SECURITY.md).
 */
#pragma once

#include <sys/queue.h>

#include "base/loop.h"
#include "jail/jail.h"
#include "volume/volume.h"

struct quotas;
struct quota;

/* The volume exceeds this limit. Called once, from the loop. */
typedef void quota_over_fn(void *arg, enum limit limit);

/* A sandbox's registration; initialise to zero. */
struct quota_user {
    LIST_ENTRY(quota_user) link;
    struct quota *quota; /* NULL: not registered */
    quota_over_fn *over;
    void *arg;
};

int quotas_open(struct loop *loop, struct quotas **out, struct error *err);
/* All users must have left. NULL is fine. */
void quotas_close(struct quotas *quotas);
/* Starts measuring the volume for this user, with `over` and `arg` set by the caller.
 * ERROR_ENVIRONMENT if the volume is visibly over its quota already. */
int quotas_join(
    struct quotas *quotas, struct volume *volume, struct quota_user *user, struct error *err);
/* Does nothing if it has not joined. */
void quotas_leave(struct quota_user *user);
