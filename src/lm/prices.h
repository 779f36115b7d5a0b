/* lm/prices.h: what a call costs, from a table by the model's name.
 *
 * The user's table (docs/configuration.md) is asked first; the small one that is built in knows some
 * providers' own servers, as of its date. A model that is in neither has no price, which is not the
 * same as being free.
 */
#ifndef DROSTE_LM_PRICES_H
#define DROSTE_LM_PRICES_H

#include "lm/lm.h"

struct prices;

/* `path` NULL or "": the built-in table alone. Errors: ERROR_NOT_FOUND, ERROR_IO, ERROR_CONFIG with
 * the line. */
int prices_open(const char *path, struct prices **out, struct error *err);
/* NULL is fine. */
void prices_close(struct prices *prices);

/* Dollars for this usage of "PROVIDER/MODEL"; negative: nobody knows. `built_in`: its server is the
 * provider's own, so that the provider's prices hold. */
double prices_cost(
    const struct prices *prices, const char *model, bool built_in, const struct lm_usage *usage);

#endif
