/* base/os/owner.h: which process something belongs to (a run, say), and whether that process is gone.
 *
 * A pid alone is reused. With the time at which the process started (/proc/PID/stat, field 22, in
 * clock ticks since the boot) and the boot's id, it is not. A pid of another pid namespace says
 * nothing here, so the namespace is kept too.
 */
#ifndef DROSTE_BASE_OS_OWNER_H
#define DROSTE_BASE_OS_OWNER_H

#include <stdbool.h>
#include <stdint.h>

struct owner {
    int64_t pid;
    int64_t start; /* 0: not known (no /proc) */
    int64_t space; /* inode of the pid namespace; 0: not known */
    char boot[40]; /* "": not known */
};

/* This process, as far as /proc tells. */
void owner_self(struct owner *self);

/* True only if `other` has surely ended; when in doubt it may still live. */
bool owner_is_gone(const struct owner *other, const struct owner *self);

#endif
