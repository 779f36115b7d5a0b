/* jail/show.h: what a sandbox is shown of this machine: in a root of its own as mounts under the same names,
 * among the host's files as rules of its Landlock domain.
 */
#ifndef DROSTE_JAIL_SHOW_H
#define DROSTE_JAIL_SHOW_H

#include "jail/builder.h"
#include "jail/jail.h"

/* Makes the root directory, once for all sandboxes of a zygote, and goes there. */
void show_root(struct builder *b, const struct jail_host *host);
/* The rules of the Landlock domain that was begun. */
void show_rules(struct builder *b, const struct jail_host *host);
/* ERROR_ARGUMENT: what is shown where the volume or the workspace is to be would be hidden by it. */
int show_check_places(const struct jail_host *host, struct error *err);

#endif
