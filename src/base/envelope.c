/* base/envelope.c: see envelope.h. */
#include "base/envelope.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>

int envelope_size(const char *data, size_t len, size_t most, size_t *out, struct error *err)
{
    uint32_t size;
    *out = 0;
    if (len < ENVELOPE_HEAD)
        return 0;
    memcpy(&size, data + 1, sizeof size);
    size = ntohl(size);
    if (size > most)
        return error_set(err, ERROR_PROTOCOL, "a message of %u bytes", size);
    *out = ENVELOPE_HEAD + (size_t)size;
    return 0;
}

void envelope_append(struct buf *out, unsigned flags, const void *message, size_t len)
{
    uint32_t size = htonl((uint32_t)len);
    buf_putc(out, (char)flags);
    buf_append(out, &size, sizeof size);
    buf_append(out, message, len);
}
