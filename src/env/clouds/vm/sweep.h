/* env/clouds/vm/sweep.h: deletes the machines at a provider whose hosts on this machine are gone. */
#ifndef DROSTE_ENV_CLOUDS_VM_SWEEP_H
#define DROSTE_ENV_CLOUDS_VM_SWEEP_H

#include "env/clouds/vm/vm.h"

/* `arg` is the vms; as environment_ops.collect. */
int vm_collect(void *arg, environment_collected_fn *done, void *done_arg, struct error *err);

#endif
