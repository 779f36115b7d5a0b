/* api/custom_api.h: environments of the embedding program (env/common/custom.h). */
#pragma once

#include "base/error.h"
#include "droste.h"

struct environment;

/* Opens the environment of this name; *out is NULL if the program has added none. */
int api_custom_open(droste *d, const char *name, struct environment **out, struct error *err);
void api_customs_free(droste *d);
