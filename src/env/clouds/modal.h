/* env/clouds/modal.h: sandboxes of Modal, over its own SDK: a bridge (env/remote/bridge.h) whose program is python/droste/modal_bridge.py.
 *
 * Modal's wire protocol is its own, and its SDK the way in that it supports. The program's source is carried in this library; the
 * Python that runs it, DROSTE_MODAL_PYTHON or python3, must have the package modal, and nothing else of ours. */
#ifndef DROSTE_ENV_CLOUDS_MODAL_H
#define DROSTE_ENV_CLOUDS_MODAL_H

#include "env/common/environment.h"

extern const struct features modal_features;

/* Whether there may be a token; whether the Python has the package is known when it runs. */
int modal_configured(struct error *err);

int modal_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err);

#endif
