/* base/os/owner.h: identifies the process that owns something, such as a run, and tells whether it
 * has ended.
 *
 * Pids are reused. Together with the process's start time (/proc/PID/stat, field 22, in clock ticks
 * since the boot) and the boot's id, they are unique. A pid is meaningful only in its pid
 * namespace, so that is stored too.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct owner {
    int64_t pid;
    int64_t start; /* 0: not known (no /proc) */
    int64_t space; /* inode of the pid namespace; 0: not known */
    char boot[40]; /* "": not known */
};

/* Describes this process, as far as /proc permits. */
void owner_self(struct owner *self);

/* True only if `other` has certainly ended. */
bool owner_is_gone(const struct owner *other, const struct owner *self);
