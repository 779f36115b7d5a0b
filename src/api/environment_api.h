/* api/environment_api.h: the environment of a `droste`. */
#pragma once

#include "base/error.h"
#include "droste.h"

struct environment;
struct settings;

/* Opens the environment that the settings name; it belongs to the `droste`, which has one at a
 * time. ERROR_ARGUMENT if sessions or runs use another one. */
int api_environment(
    droste *d, const struct settings *s, struct environment **out, struct error *err);
