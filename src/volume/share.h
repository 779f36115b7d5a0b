/* volume/share.h: volumes as chunks in a directory (base/chunk.h).
 *
 * A commit is a list of chunks: the limits of the volume and the names of the chunks of its data,
 * which is serialised as in pack.h. A chunk ends where a rolling hash of its last bytes says so, so
 * that chunks of what has not changed are the same, and are there already.
 */
#pragma once

#include "base/chunk.h"
#include "volume/volume.h"

/* Stores the data of a volume that is open exclusively, and gives the commit's name. */
int volume_commit(const struct volume *v, const char *share, char commit[HASH_TEXT_SIZE],
    droste_volume_count *count, struct error *err);
/* Creates a volume with the data and limits of a commit. ERROR_NOT_FOUND: a chunk is not there;
 * ERROR_PROTOCOL: one is damaged. */
int volume_create_from(
    const char *root, const char *name, const char *share, const char *commit, struct error *err);
