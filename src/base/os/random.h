/* base/os/random.h: random bytes from getrandom(2). They become names and secrets, so there is no
 * fallback: if they are unavailable, the caller fails.
 */
#pragma once

#include <stddef.h>

#include "base/error.h"

enum { UUID_SIZE = 37, RANDOM_HEX_MAX = 32 };

int random_bytes(void *out, size_t len, struct error *err);
/* `digits` hexadecimal digits, an even number up to RANDOM_HEX_MAX, and a NUL. */
int random_hex(char *out, size_t digits, struct error *err);
/* A random UUID (RFC 9562, version 4). */
int random_uuid(char out[UUID_SIZE], struct error *err);
