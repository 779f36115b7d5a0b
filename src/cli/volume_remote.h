/* cli/volume_remote.h: what is in a volume that the environment's provider keeps (Daytona, Modal): the verbs of
 * `droste volume` that copy and list, with the same words. The volume is reached through a sandbox that has it, as those
 * services show volumes to sandboxes; the sandbox runs one program of ours and ends with the command. */
#ifndef DROSTE_CLI_VOLUME_REMOTE_H
#define DROSTE_CLI_VOLUME_REMOTE_H

#include "cli/volume_print.h"
#include "droste.h"
#include "volume/workspace.h"

/* Whether the environment that the settings name keeps its volumes itself. */
bool volume_is_remote(const droste *d);

struct volume_remote;
/* ERROR_NOT_FOUND where there is no such volume: none is made. `put` is NULL, or a workspace whose `put` is to be
 * copied there, and is taken. */
int volume_remote_open(droste *d, const char *name, struct workspace *put,
    struct volume_remote **out, struct error *err);
/* Waits until what was copied is durable in the volume. NULL is fine. */
int volume_remote_close(struct volume_remote *r, struct error *err);

/* As volume_list. */
int volume_remote_list(struct volume_remote *r, const char *path, unsigned depth, size_t most,
    volume_entry_fn *fn, void *arg, bool *more, struct error *err);
/* Copies a file or directory, under the same path, into a local volume: volume_get and volume_read take it from there. */
int volume_remote_fetch(
    struct volume_remote *r, const char *path, const struct volume *into, struct error *err);
/* Copies what it was opened with to a path: a file takes the place of another one. */
int volume_remote_put(struct volume_remote *r, const char *path, struct error *err);

#endif
