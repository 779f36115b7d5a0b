/* lm/prices.h: the cost of a call, from a table by model name.
 *
 * The user's table (docs/configuration.md) takes precedence; the small built-in one covers some
 * providers' own servers, as of its date. A model in neither has no price, which does not mean that
 * it is free.
 */
#pragma once

#include "lm/call.h"

struct prices;

/* `path` NULL or "": only the built-in table. ERROR_NOT_FOUND, ERROR_IO, ERROR_CONFIG with the
 * line. */
int prices_open(const char *path, struct prices **out, struct error *err);
/* NULL is fine. */
void prices_close(struct prices *prices);

/* Dollars for this usage of "PROVIDER/MODEL"; negative: unknown. `built_in`: the server is the
 * provider's own, whose prices apply. */
double prices_cost(
    const struct prices *prices, const char *model, bool built_in, const struct lm_usage *usage);
