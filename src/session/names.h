/* session/names.h: names that users cannot bind in the guest: Droste's and Python's. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* True for names that the guest defines, and for prefixes reserved for it. */
bool guest_name_is_ours(const char *name);
/* True for Python's built-ins and keywords. */
bool guest_name_is_python(const char *name);
/* ERROR_ARGUMENT unless users may bind this name in the guest: a valid Python identifier that is
 * neither a built-in or keyword nor one of Droste's names. `what` is for the message. */
int guest_name_check(const char *name, const char *what, struct error *err);
