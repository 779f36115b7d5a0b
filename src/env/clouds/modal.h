/* env/clouds/modal.h: the environment `modal`: a bridge (env/remote/bridge.h) that uses Modal's
 * SDK.
 *
 * Modal's wire protocol is private; its SDK is the supported interface. The bridge's source
 * (python/droste/modal_bridge.py) is embedded in this library. The Python that runs it,
 * DROSTE_MODAL_PYTHON or python3, needs only the package `modal`.
 */
#ifndef DROSTE_ENV_CLOUDS_MODAL_H
#define DROSTE_ENV_CLOUDS_MODAL_H

#include "env/common/environment.h"

extern const struct features modal_features;

/* Checks that a token is configured. Whether the package is installed is known only when the bridge
 * runs. */
int modal_configured(struct error *err);

int modal_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err);

#endif
