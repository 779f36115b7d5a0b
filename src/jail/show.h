/* jail/show.h: makes host paths visible in a sandbox: as mounts under the same names in a private
 * root, or as Landlock rules among the host's files.
 */
#pragma once

#include "jail/builder.h"
#include "jail/jail.h"

/* Builds the root directory, once for all sandboxes of a zygote, and enters it. Fails only if an
 * image cannot be shown. */
int show_root(struct builder *b, const struct jail_host *host, struct error *err);
/* Adds the rules of the current Landlock domain. */
void show_rules(struct builder *b, const struct jail_host *host);
/* ERROR_ARGUMENT if the volume or workspace would hide a path that is to be visible. */
int show_check_mount_points(const struct jail_host *host, struct error *err);
