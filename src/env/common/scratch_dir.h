/* env/common/scratch_dir.h: the temporary directory of a zygote whose sandboxes have no private
 * root.
 *
 * Each of its sandboxes has a subdirectory. The last reference, held by the zygote or a sandbox,
 * removes everything. If the host is killed, the zygote removes it (guest/python/core/boot.py,
 * tidy_up); if the host is killed before the zygote exists, the next host that creates a scratch
 * directory does.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct scratch_dir;

/* Creates it in TMPDIR or /tmp; the caller holds the reference. `nobody`: it belongs to JAIL_NOBODY
 * instead of root, and other users may traverse it. */
int scratch_dir_new(bool nobody, struct scratch_dir **out, struct error *err);
struct scratch_dir *scratch_dir_hold(struct scratch_dir *scratch_dir);
void scratch_dir_release(struct scratch_dir *scratch_dir);
const char *scratch_dir_path(const struct scratch_dir *scratch_dir);

/* Creates a subdirectory, owned by `uid` if the scratch directory is nobody's. The caller frees the
 * path. */
int scratch_dir_add(struct scratch_dir *scratch_dir, uid_t uid, char **path, struct error *err);
