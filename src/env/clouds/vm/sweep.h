/* env/clouds/vm/sweep.h: deletes the machines at a provider whose hosts on this machine are gone (env/common/owner_labels.h). */
#ifndef DROSTE_ENV_CLOUDS_VM_SWEEP_H
#define DROSTE_ENV_CLOUDS_VM_SWEEP_H

#include "env/clouds/vm/vm.h"

/* One at a time. `done` never comes from within it. */
int vm_sweep_start(struct vms *env, environment_collected_fn *done, void *arg, struct error *err);
/* Without `done`. Fine where none is under way. */
void vm_sweep_cancel(struct vms *env);

#endif
