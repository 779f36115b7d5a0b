/* env/common/isolation_error.h: why no sandbox can be had, in one line that says what to do. */
#ifndef DROSTE_ENV_COMMON_ISOLATION_ERROR_H
#define DROSTE_ENV_COMMON_ISOLATION_ERROR_H

#include "base/error.h"
#include "jail/jail.h"

/* What isolation "auto" tries, the strongest first. */
enum { ISOLATION_AUTO_LEVELS = 3 };
extern const enum isolation isolation_auto_levels[ISOLATION_AUTO_LEVELS];

/* Of a level that was asked for by its name; what stands in `err` is the reason. */
int isolation_error(enum isolation isolation, struct error *err);
/* Of all levels, each with its reason in `why`. */
int isolation_error_all(const struct error why[ISOLATION_AUTO_LEVELS], struct error *err);

#endif
