/* lm/kind.h: models that are not a provider's, by the scheme of their names. */
#pragma once

#include "lm/client.h"

struct lm_kind {
    const char *scheme; /* before the colon */
    const struct lm_client_ops *ops;
    bool alone; /* it may be the complete name */
};

/* NULL: the name is that of a provider's model. */
const struct lm_kind *kind_find(const char *model);
/* Refuses "replya:FILE" and "openai:MODEL", which OpenAI would be asked for. A server of the
 * user's own may have models with such names. */
int kind_check_scheme(const struct lm_options *options, struct error *err);
