/* volume/pack.h: a directory as a stream of bytes, for a sandbox that cannot see this machine's files, and back.
 *
 * For each entry, a directory before what is in it, a header, the path in the directory, and the data; numbers are
 * little-endian:
 *
 *   byte 0       kind
 *   byte 1       zero
 *   bytes 2-3    mode (permissions)
 *   bytes 4-7    length of the path
 *   bytes 8-15   length of the data: of a file, or the target of a link
 *   bytes 16-23  time of the last change, seconds since 1970
 *
 * KEEP stands for a file or link that is as it was, and has no data. The last is a header of the kind END. From a sandbox, its time is
 * that in nanoseconds from which on the next look has to look for changes, its path says which entries there were (a sum), and its mode is 1 where all
 * is as it was, and nothing stands before it. guest/python/remote/unpack.py is the other side.
 */
#ifndef DROSTE_VOLUME_PACK_H
#define DROSTE_VOLUME_PACK_H

#include "volume/volume.h"

enum { PACK_HEADER_SIZE = 24, PACK_PATH_MAX = 4096, PACK_SUM_SIZE = 65 };
enum pack_kind { PACK_DIRECTORY = 1, PACK_FILE = 2, PACK_LINK = 3, PACK_END = 4, PACK_KEEP = 5 };

/* All that is in a volume, into a file without a name beside it: its descriptor, at its beginning. What is neither file,
 * directory nor link is left out. The paths go to `paths`, unless that is NULL. */
int volume_pack(const struct volume *v, int *out, struct list *paths, struct error *err);

/* A file without a name, beside the volume. */
int volume_pack_file(const struct volume *v, int *out, struct error *err);

struct pack_state {
    struct list paths; /* that the other side is known to have had */
    int64_t since;     /* nanoseconds, by its clock */
    char sum[PACK_SUM_SIZE];
};

/* What a sandbox sent, from the beginning of a file, becomes what is in the volume: what has changed there takes the place of what is here, and
 * what is gone there of what it had is removed. ERROR_PROTOCOL for what is no such stream, and then nothing was changed. *over: it is over its limits,
 * by so much more than that, that not all of it was taken. */
int volume_unpack(
    const struct volume *v, int file, struct pack_state *state, bool *over, struct error *err);

#endif
