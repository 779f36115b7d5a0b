/* wire/little_endian.h: reads numbers of the wire, which is little-endian, at any address. */
#pragma once

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t wire_get64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return le64toh(v);
}

static inline uint32_t wire_get32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return le32toh(v);
}
