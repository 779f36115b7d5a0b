/* store/unit.h: the head of a unit of a log (log.h), in the order of its bytes. */
#pragma once

#include <stdint.h>

enum { UNIT_FORMAT = 1, UNIT_PACKED = 1, UNIT_SIZE_MAX = 1 << 30 };

struct unit_head {
    char magic[2];
    uint8_t format, flags;
    uint32_t version, len, size; /* little endian */
};
_Static_assert(sizeof(struct unit_head) == 16, "without padding");
