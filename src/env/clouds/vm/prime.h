/* env/clouds/vm/prime.h: the environment `prime`: Prime Intellect's virtual machines; see
 * docs/environments.md.
 */
#ifndef DROSTE_ENV_CLOUDS_VM_PRIME_H
#define DROSTE_ENV_CLOUDS_VM_PRIME_H

#include "env/common/environment.h"

extern const struct features prime_features;

/* 0 if the account is configured; ERROR_CONFIG says what is missing. */
int prime_configured(struct error *err);
int prime_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err);

#endif
