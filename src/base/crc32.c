/* base/crc32.c: see crc32.h. */
#include "base/crc32.h"

enum { POLYNOMIAL = (int)0xEDB88320 };

void crc32_table_make(struct crc32_table *table)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? (uint32_t)POLYNOMIAL : 0);
        table->rows[0][i] = crc;
    }
    for (int row = 1; row < 8; row++)
        for (int i = 0; i < 256; i++) {
            uint32_t before = table->rows[row - 1][i];
            table->rows[row][i] = before >> 8 ^ table->rows[0][before & 255];
        }
}

uint32_t crc32_add(const struct crc32_table *table, uint32_t crc, const void *data, size_t len)
{
    const unsigned char *p = data;
    const uint32_t(*rows)[256] = table->rows;
    crc = ~crc;
    for (; len >= 8; len -= 8, p += 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                                 (uint32_t)p[3] << 24);
        crc = rows[7][low & 255] ^ rows[6][low >> 8 & 255] ^ rows[5][low >> 16 & 255] ^
              rows[4][low >> 24] ^ rows[3][p[4]] ^ rows[2][p[5]] ^ rows[1][p[6]] ^ rows[0][p[7]];
    }
    for (; len > 0; len--, p++)
        crc = crc >> 8 ^ rows[0][(crc ^ *p) & 255];
    return ~crc;
}
