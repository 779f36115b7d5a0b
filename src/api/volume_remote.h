/* api/volume_remote.h: the contents of volumes that a provider keeps (Daytona, Modal). These
 * services show volumes only to sandboxes, so each function starts a sandbox, runs one program in
 * it, and ends it. ERROR_NOT_FOUND if there is no such volume; it is not created. */
#pragma once

#include "droste.h"
#include "volume/workspace.h"

/* As volume_list. */
int volume_remote_list(droste *d, const char *name, const char *path, unsigned depth, size_t most,
    volume_entry_fn *fn, void *arg, bool *more, struct error *err);
/* Copies a file or directory, under the same path, into a local volume. */
int volume_remote_fetch(
    droste *d, const char *name, const char *path, const struct volume *into, struct error *err);
/* Copies `put` of a workspace to a path, and waits until it is durable. A file replaces another
 * one. */
int volume_remote_put(
    droste *d, const char *name, struct workspace *staged, const char *path, struct error *err);
