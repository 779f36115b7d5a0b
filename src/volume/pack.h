/* volume/pack.h: serialises a directory for sandboxes without access to this machine's files, and
 * back.
 *
 * Each entry is a header, its path and its data; directories precede their contents. Numbers are
 * little-endian:
 *
 *   byte 0       kind
 *   byte 1       zero
 *   bytes 2-3    mode (permissions)
 *   bytes 4-7    length of the path
 *   bytes 8-15   length of the data: of a file, or the target of a link
 *   bytes 16-23  modification time, seconds since 1970
 *
 * KEEP means an unchanged file or link, and has no data. The last header is of the kind END. From a
 * sandbox, its time is the start of the next search for changes, in nanoseconds; its path is a
 * checksum of the list of entries; and its mode is 1 if nothing has changed, in which case nothing
 * precedes it. guest/python/remote/unpack.py is the other side.
 */
#pragma once

#include "volume/volume.h"

enum { PACK_HEADER_SIZE = 24, PACK_PATH_MAX = 4096, PACK_SUM_SIZE = 65 };
enum pack_kind { PACK_DIRECTORY = 1, PACK_FILE = 2, PACK_LINK = 3, PACK_END = 4, PACK_KEEP = 5 };

/* Packs the volume into an unnamed file beside it; *out is its descriptor, at the beginning.
 * Skips everything but files, directories and links. The paths go to `paths`, unless that is
 * NULL. */
int volume_pack(const struct volume *v, int *out, struct list *paths, struct error *err);

/* Creates an unnamed file beside the volume. */
int volume_pack_file(const struct volume *v, int *out, struct error *err);

struct pack_state {
    struct list paths; /* known to exist on the other side */
    int64_t since;     /* nanoseconds, of the other side's clock */
    char sum[PACK_SUM_SIZE];
};

/* Applies what a sandbox sent, from the beginning of a file: changed entries replace those here,
 * and entries that it had and has removed are removed here. An invalid stream is ERROR_PROTOCOL
 * and changes nothing. *over: it exceeds the volume's limits so far that not all of it was
 * applied. */
int volume_unpack(
    const struct volume *v, int file, struct pack_state *state, bool *over, struct error *err);
