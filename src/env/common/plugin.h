/* env/common/plugin.h: environments in shared objects of the user's (include/droste_environment.h). */
#ifndef DROSTE_ENV_COMMON_PLUGIN_H
#define DROSTE_ENV_COMMON_PLUGIN_H

#include "env/common/environment.h"

/* ERROR_NOT_FOUND, ERROR_CONFIG where it cannot be loaded or is no environment. */
int plugin_open(struct loop *loop, const char *path, const struct environment_options *options,
    struct environment **out, struct error *err);

#endif
