/* env/common/owner_labels.h: the labels by which Droste knows its sandboxes elsewhere, and whether the host of one is gone.
 *
 * Those of another machine are left alone, and so are those of which it is not sure that their process has ended. */
#ifndef DROSTE_ENV_COMMON_OWNER_LABELS_H
#define DROSTE_ENV_COMMON_OWNER_LABELS_H

#include <stdbool.h>

#include "base/buf.h"

#define LABEL_OWNER   "droste.owner"   /* PID START SPACE BOOT, as base/os/owner.h has them */
#define LABEL_MACHINE "droste.machine" /* on which that process is */

/* This process and this machine, as the labels have them. */
void owner_labels(struct buf *owner, struct buf *machine);
/* True for labels of this machine whose process has surely ended. */
bool owner_labels_are_orphan(const char *owner, const char *machine);

#endif
