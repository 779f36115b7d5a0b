/* env/clouds/vm/e2b.h: the environment `e2b`; see docs/environments.md. */
#ifndef DROSTE_ENV_CLOUDS_VM_E2B_H
#define DROSTE_ENV_CLOUDS_VM_E2B_H

#include "env/common/environment.h"

extern const struct features e2b_features;

/* 0 if the account is configured; ERROR_CONFIG says what is missing. */
int e2b_configured(struct error *err);
int e2b_open(struct loop *loop, const struct environment_options *options, struct environment **out,
    struct error *err);

#endif
