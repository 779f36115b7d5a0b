/* session/names.h: names in the guest that are not free: Droste's own, and Python's. */
#ifndef DROSTE_SESSION_NAMES_H
#define DROSTE_SESSION_NAMES_H

#include <stdbool.h>

#include "base/error.h"

/* True for a name that the guest has of us, and for beginnings that are kept for such. */
bool guest_name_is_ours(const char *name);
/* True for Python's built-ins and keywords. */
bool guest_name_is_python(const char *name);
/* ERROR_ARGUMENT unless a user may give this name to something in the guest: a name that Python can
 * have, none of its own, and none of ours. `what` is for the error. */
int guest_name_check(const char *name, const char *what, struct error *err);

#endif
