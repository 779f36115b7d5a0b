/* api/models.h: the models that settings name, by the depth of calls. */
#ifndef DROSTE_API_MODELS_H
#define DROSTE_API_MODELS_H

#include <stdbool.h>

#include "base/error.h"
#include "broker/budget.h"
#include "droste.h"

struct lm;
struct settings;
struct shared_lm;

struct models {
    struct lm *at[BUDGET_DEPTH_MAX + 2]; /* the last one answers calls of the deepest runs */
    struct shared_lm *opened[BUDGET_DEPTH_MAX + 2];
    size_t opened_count;
};

/* Opens the models. If none is configured, this fails if `need`, or else returns no models. */
int api_models(
    droste *d, const struct settings *s, bool need, struct models *models, struct error *err);
void api_models_close(struct models *models);
/* Closes the models that have no user. */
void api_end_models(droste *d);

#endif
