/* base/crc32.h: the CRC-32 of IEEE 802.3, as zlib and Python's binascii have it. Eight bytes at a time
 * ("slicing by 8"): about 2 GB/s, where a table of one byte gives a fifth of that.
 */
#ifndef DROSTE_BASE_CRC32_H
#define DROSTE_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* 8 KiB. Made once by whoever checks much: a library that keeps no globals has it in its objects. */
struct crc32_table {
    uint32_t rows[8][256];
};

void crc32_table_make(struct crc32_table *table);
/* Of the bytes before, whose sum is `crc` (0: there are none), and these. */
uint32_t crc32_add(const struct crc32_table *table, uint32_t crc, const void *data, size_t len);

#endif
