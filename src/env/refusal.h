/* env/refusal.h: why no sandbox can be had, in one line that says what to do. */
#ifndef DROSTE_ENV_REFUSAL_H
#define DROSTE_ENV_REFUSAL_H

#include "base/error.h"
#include "jail/jail.h"

/* What isolation "auto" tries, the strongest first. */
enum { REFUSAL_LEVELS = 3 };
extern const enum isolation refusal_levels[REFUSAL_LEVELS];

/* Of a level that was asked for by its name; what stands in `err` is the reason. */
int refusal_of(enum isolation isolation, struct error *err);
/* Of all levels, each with its reason in `why`. */
int refusal_of_all(const struct error why[REFUSAL_LEVELS], struct error *err);

#endif
