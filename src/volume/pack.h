/* volume/pack.h: a directory as a stream of bytes, for a sandbox that cannot see this machine's files.
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
 * The last is a header of the kind END. guest/py/unpack.py reads it.
 */
#ifndef DROSTE_VOLUME_PACK_H
#define DROSTE_VOLUME_PACK_H

#include "volume/volume.h"

enum { PACK_HEADER_SIZE = 24 };
enum pack_kind { PACK_DIRECTORY = 1, PACK_FILE = 2, PACK_LINK = 3, PACK_END = 4 };

/* All that is in a volume goes to the end of a file that is open. What is neither file, directory nor link is left
 * out. */
int volume_pack(const struct volume *v, int out, struct error *err);
/* The same into a file without a name, beside the volume: its descriptor, at its beginning. */
int volume_pack_file(const struct volume *v, int *out, struct error *err);

#endif
