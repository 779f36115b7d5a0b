/* env/nest.h: the temporary directory of a zygote whose sandboxes stand among the host's files.
 *
 * Each of its sandboxes has a directory in it. All is removed with the last that holds it: the zygote
 * or a sandbox. If the host is killed, the zygote removes it (guest/py/boot.py, tidy_up); if it is killed before there
 * is one, the next host that makes a nest does.
 */
#ifndef DROSTE_ENV_NEST_H
#define DROSTE_ENV_NEST_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct nest;

/* In TMPDIR, or /tmp; held by the caller. `nobody`: it belongs to JAIL_NOBODY, not to root, and others can
 * pass it. */
int nest_new(bool nobody, struct nest **out, struct error *err);
struct nest *nest_hold(struct nest *nest);
/* NULL is fine. */
void nest_release(struct nest *nest);
const char *nest_path(const struct nest *nest);

/* A new directory in it, of this user where the nest is nobody's; the path is the caller's (free). */
int nest_add(struct nest *nest, uid_t uid, char **path, struct error *err);

#endif
