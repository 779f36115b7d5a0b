/* api/models.h: the models that settings name, by the depth of calls. */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "broker/budget.h"
#include "droste.h"

struct list;
struct lm;
struct lm_options;
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
/* The options of one model; they refer to the settings. */
int api_model_options(droste *d, const struct settings *s, const char *model,
    const struct list *sampling, struct lm_options *out, struct error *err);
/* All settings that these come from, as one text (free). */
char *api_model_key(
    const droste *d, const struct settings *s, const char *model, const struct list *sampling);
/* Closes the models that have no user. */
void api_end_models(droste *d);
