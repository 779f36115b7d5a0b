/* env/clouds/vm/sweep.h: deletes a provider's machines whose hosts on this machine are dead. */
#pragma once

#include "env/clouds/vm/provider.h"

/* environment_ops.collect; `arg` is the struct vms. */
int vm_collect(void *arg, environment_collected_fn *done, void *done_arg, struct error *err);
