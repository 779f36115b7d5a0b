/* env/places.h: the volume and the workspace of a local sandbox: given to its user, named in its plan, measured. */
#ifndef DROSTE_ENV_PLACES_H
#define DROSTE_ENV_PLACES_H

#include <sys/types.h>

#include "base/buf.h"
#include "env/environment.h"
#include "env/quota.h"
#include "jail/jail.h"

/* All zero: it has neither. */
struct places {
    enum isolation isolation;
    struct volume *volume;       /* NULL: none */
    struct workspace *workspace; /* NULL: none */
    enum layout layout;
    struct quota_user quota, workspace_quota;
    struct buf volume_path, workspace_path; /* as the plan has them */
    void (*full)(void *arg, enum limit limit);
    void *arg;
};

/* Those that a spec has; NULL: none. */
void places_hold(struct places *p, enum isolation isolation, const struct sandbox_spec *spec);
/* Makes them ready for this user, and fills in what the plan says of them; what is filled in lasts as long as
 * the places. From now on `full` is called with the limit of a place that is over it. */
int places_enter(struct places *p, struct quotas *quotas, uid_t guest,
    void (*full)(void *arg, enum limit limit), void *arg, struct jail_place *out,
    struct error *err);
bool places_any(const struct places *p);
/* Where the guest sees them; NULL: it has none. */
const char *places_volume(const struct places *p);
const char *places_workspace(const struct places *p);
/* Nobody writes to them any more. */
void places_leave(struct places *p);

#endif
