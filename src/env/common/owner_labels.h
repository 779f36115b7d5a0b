/* env/common/owner_labels.h: labels that identify the host process of a remote sandbox.
 *
 * They tell whether that process is dead. Sandboxes of other machines, and those whose host may
 * still be running, are left alone.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/list.h"

#define LABEL_OWNER   "droste.owner"   /* PID START SPACE BOOT, in the format of base/os/owner.h */
#define LABEL_MACHINE "droste.machine" /* the machine of that process */

/* The labels of this process and this machine. */
void owner_labels(struct buf *owner, struct buf *machine);
/* Adds the user's labels (NAME=VALUE; NULL: none) to an open JSON object, and these two, which take
 * precedence. */
void owner_labels_write(struct buf *out, const struct list *own);
/* True if the labels name this machine and a process that is certainly dead. */
bool owner_labels_are_orphan(const char *owner, const char *machine);
