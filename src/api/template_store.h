/* api/template_store.h: executes the recipe of a stored template. */
#ifndef DROSTE_API_TEMPLATE_STORE_H
#define DROSTE_API_TEMPLATE_STORE_H

#include "api/recipe.h"

/* Executes it in a session of its own, and waits for that. `s` are the settings of the sessions
 * that start from it. */
int api_template_make(droste *d, const char *name, const struct recipe *r, const struct settings *s,
    droste_template **out, struct error *err);

#endif
