/* base/hash.c: see hash.h. */
#include "base/hash.h"

#include <openssl/evp.h>
#include <stdio.h>

int hash_sha256(const void *data, size_t len, char out[HASH_TEXT_SIZE], struct error *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    if (EVP_Digest(data, len, digest, &size, EVP_sha256(), NULL) != 1 || size != 32)
        return error_set(err, ERROR_IO, "SHA-256 is not available from libcrypto");
    for (unsigned i = 0; i < size; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return 0;
}
