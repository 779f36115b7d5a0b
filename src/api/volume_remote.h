/* api/volume_remote.h: what is in a volume that the environment's provider keeps (Daytona,
 * Modal). The volume is reached through a sandbox that has it, as those services show volumes to
 * sandboxes: each function starts one, which runs one program of ours, and ends it.
 * ERROR_NOT_FOUND where there is no such volume: none is made. */
#ifndef DROSTE_API_VOLUME_REMOTE_H
#define DROSTE_API_VOLUME_REMOTE_H

#include "droste.h"
#include "volume/workspace.h"

/* As volume_list. */
int volume_remote_list(droste *d, const char *name, const char *path, unsigned depth, size_t most,
    volume_entry_fn *fn, void *arg, bool *more, struct error *err);
/* Copies a file or directory, under the same path, into a local volume. */
int volume_remote_fetch(
    droste *d, const char *name, const char *path, const struct volume *into, struct error *err);
/* Copies `put` of a workspace to a path, and waits until it is durable there: a file takes the
 * place of another one. */
int volume_remote_put(
    droste *d, const char *name, struct workspace *staged, const char *path, struct error *err);

#endif
