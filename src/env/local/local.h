/* env/local/local.h: the environment `local`: sandboxes on this machine, cloned from a zygote. */
#ifndef DROSTE_ENV_LOCAL_LOCAL_H
#define DROSTE_ENV_LOCAL_LOCAL_H

#include "env/common/environment.h"

extern const struct features local_features;

int local_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err);

#endif
