/* base/hash.h: SHA-256 as lower-case hexadecimal, by OpenSSL's libcrypto. */
#ifndef DROSTE_BASE_HASH_H
#define DROSTE_BASE_HASH_H

#include <stddef.h>

#include "base/error.h"

enum { HASH_TEXT_SIZE = 65 }; /* 64 digits and the NUL */

int hash_sha256(const void *data, size_t len, char out[HASH_TEXT_SIZE], struct error *err);

#endif
