/* env/local.h: sandboxes on this machine, cloned from a zygote. */
#ifndef DROSTE_ENV_LOCAL_H
#define DROSTE_ENV_LOCAL_H

#include "env/environment.h"

int local_open(struct loop *loop, struct environment **out, struct error *err);

#endif
