/* base/os/random.c: random bytes, hexadecimal names and UUIDs. */
#include "base/os/random.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/text.h"

int random_bytes(void *out, size_t len, struct error *err)
{
    for (ssize_t n; len > 0; out = (char *)out + n, len -= (size_t)n) {
        n = getrandom(out, len, 0);
        if (n < 0 && errno != EINTR)
            return error_set_errno(err, ERROR_IO, "reading random bytes");
        n = n < 0 ? 0 : n;
    }
    return 0;
}

int random_hex(char *out, size_t digits, struct error *err)
{
    unsigned char raw[RANDOM_HEX_MAX / 2];
    int rc = random_bytes(raw, digits / 2, err);
    if (rc == 0)
        text_hex(raw, digits / 2, out);
    return rc;
}

int random_uuid(char out[UUID_SIZE], struct error *err)
{
    unsigned char raw[16];
    char hex[2 * sizeof raw + 1];
    int rc = random_bytes(raw, sizeof raw, err);
    if (rc < 0)
        return rc;
    raw[6] = (unsigned char)((raw[6] & 0x0F) | 0x40); /* the version */
    raw[8] = (unsigned char)((raw[8] & 0x3F) | 0x80); /* the variant */
    text_hex(raw, sizeof raw, hex);
    snprintf(
        out, UUID_SIZE, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
    return 0;
}
