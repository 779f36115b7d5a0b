/* env/common/isolation_error.h: explains in one line why isolation is unavailable, and what to do.
 */
#pragma once

#include "base/error.h"
#include "jail/jail.h"

/* The levels that isolation "auto" tries, strongest first. */
enum { ISOLATION_AUTO_LEVELS = 3 };
extern const enum isolation isolation_auto_levels[ISOLATION_AUTO_LEVELS];

/* For a level that was requested by name; `err` holds the reason and receives the explanation. */
int isolation_error(enum isolation isolation, struct error *err);
/* For "auto": no level works, each for its reason in `why`. */
int isolation_error_all(const struct error why[ISOLATION_AUTO_LEVELS], struct error *err);
