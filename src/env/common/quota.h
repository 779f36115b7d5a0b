/* env/common/quota.h: the quotas of the volumes that sandboxes of this process use.
 *
 * No file system can be relied on to enforce them: the host looks. A cheap look at the free space of the
 * disk, ten times a second, says when it is time to measure the volume, which is done a piece at a time;
 * else it is measured now and then. What sandboxes write between two looks passes: SECURITY.md.
 */
#ifndef DROSTE_ENV_COMMON_QUOTA_H
#define DROSTE_ENV_COMMON_QUOTA_H

#include <sys/queue.h>

#include "base/loop.h"
#include "jail/jail.h"
#include "volume/volume.h"

struct quotas;
struct quota;

/* The volume is over this limit. Once; from the loop. */
typedef void quota_over_fn(void *arg, enum limit limit);

/* A sandbox's part in it; zeroed at first. */
struct quota_user {
    LIST_ENTRY(quota_user) link;
    struct quota *quota; /* NULL: none */
    quota_over_fn *over;
    void *arg;
};

int quotas_open(struct loop *loop, struct quotas **out, struct error *err);
/* All have left. NULL is fine. */
void quotas_close(struct quotas *quotas);
/* From now on the volume is measured for this user, who has set `over` and `arg`. ERROR_ENVIRONMENT where it
 * can be seen at once that it holds more than it may. */
int quotas_join(
    struct quotas *quotas, struct volume *volume, struct quota_user *user, struct error *err);
/* Nothing where it has not joined. */
void quotas_leave(struct quota_user *user);

#endif
