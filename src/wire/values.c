/* wire/values.c: checks containers of typed values, which come from a hostile guest. */
#include "wire/values.h"

#include "base/json/json.h"
#include "wire/little_endian.h"

enum { HEAD_SIZE = 16, SLOT_SIZE = 16 };

static int check_slots(const char *slots, size_t count, size_t at, size_t len, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t offset = wire_get64(slots + SLOT_SIZE * i);
        uint64_t length = wire_get64(slots + SLOT_SIZE * i + 8);
        if (offset < at || offset > len || length > len - offset)
            return error_set(err, ERROR_PROTOCOL, "buffer %zu of a value is not within it", i);
        at = (size_t)(offset + length);
    }
    return 0;
}

int values_check(const char *data, size_t len, struct error *err)
{
    if (len < HEAD_SIZE)
        return error_set(err, ERROR_PROTOCOL, "a value ends within its header");
    uint32_t version = wire_get32(data);
    size_t count = wire_get32(data + 4);
    uint64_t tree = wire_get64(data + 8);
    if (version != VALUES_VERSION)
        return error_set(err, ERROR_PROTOCOL, "a value of version %u of the encoding, not %d",
            version, VALUES_VERSION);
    if (count > (len - HEAD_SIZE) / SLOT_SIZE)
        return error_set(err, ERROR_PROTOCOL, "a value has no room for its %zu buffers", count);
    size_t start = HEAD_SIZE + SLOT_SIZE * count;
    if (tree > len - start)
        return error_set(err, ERROR_PROTOCOL, "a value ends within its tree");
    int rc = check_slots(data + HEAD_SIZE, count, start + (size_t)tree, len, err);
    return rc < 0 ? rc : json_check(data + start, (size_t)tree, &json_limits_large, err);
}
