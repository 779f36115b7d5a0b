/* env/common/scratch_dir.h: the temporary directory of a zygote whose sandboxes stand among the host's files.
 *
 * Each of its sandboxes has a directory in it. All is removed with the last that holds it: the zygote
 * or a sandbox. If the host is killed, the zygote removes it (guest/python/core/boot.py, tidy_up); if it is killed before there
 * is one, the next host that makes a nest does.
 */
#ifndef DROSTE_ENV_COMMON_SCRATCH_DIR_H
#define DROSTE_ENV_COMMON_SCRATCH_DIR_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct scratch_dir;

/* In TMPDIR, or /tmp; held by the caller. `nobody`: it belongs to JAIL_NOBODY, not to root, and others can
 * pass it. */
int scratch_dir_new(bool nobody, struct scratch_dir **out, struct error *err);
struct scratch_dir *scratch_dir_hold(struct scratch_dir *scratch_dir);
/* NULL is fine. */
void scratch_dir_release(struct scratch_dir *scratch_dir);
const char *scratch_dir_path(const struct scratch_dir *scratch_dir);

/* A new directory in it, of this user where the nest is nobody's; the path is the caller's (free). */
int scratch_dir_add(struct scratch_dir *scratch_dir, uid_t uid, char **path, struct error *err);

#endif
