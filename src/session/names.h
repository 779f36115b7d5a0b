/* session/names.h: names in the guest that are Droste's own. */
#ifndef DROSTE_SESSION_NAMES_H
#define DROSTE_SESSION_NAMES_H

#include <stdbool.h>

#include "base/error.h"

/* True for a name that the guest has of us, and for beginnings that are kept for such. */
bool guest_name_is_ours(const char *name);
/* ERROR_ARGUMENT unless a user may give this name to something in the guest: a name that Python can
 * have, and none of ours. `what` is for the error. */
int guest_name_check(const char *name, const char *what, struct error *err);

#endif
