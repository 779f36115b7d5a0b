/* api/template_store.h: executes the recipe of a stored template. */
#pragma once

#include "api/recipe.h"

/* Executes it in a session of its own, and waits for that. `s` are the settings of the sessions
 * that start from it. */
int api_template_make(droste *d, const char *name, const struct recipe *r, const struct settings *s,
    droste_template **out, struct error *err);
