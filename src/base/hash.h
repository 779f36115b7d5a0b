/* base/hash.h: SHA-256 as lower-case hexadecimal, and SHA-1 for WebSockets, through libcrypto. */
#pragma once

#include <stddef.h>

#include "base/error.h"

enum { HASH_TEXT_SIZE = 65 }; /* 64 digits and the NUL */

int hash_sha256(const void *data, size_t len, char out[HASH_TEXT_SIZE], struct error *err);

/* FNV-1a, for tables whose keys no stranger chooses; continues from an earlier hash. */
#define HASH_WORD 2166136261u /* where it begins */
unsigned hash_word(unsigned from, const char *text);

/* SHA-1, which RFC 6455 requires; it protects nothing. */
enum { HASH_SHA1_SIZE = 20 };
int hash_sha1(const void *data, size_t len, unsigned char out[HASH_SHA1_SIZE], struct error *err);

/* Hashes a regular file of at most HASH_FILE_MAX bytes. */
enum { HASH_FILE_MAX = 1 << 30 };
int hash_file(const char *path, char out[HASH_TEXT_SIZE], struct error *err);

/* Incremental SHA-256. */
struct hash {
    struct evp_md_ctx_st *context;
};

int hash_open(struct hash *hash, struct error *err);
void hash_add(struct hash *hash, const void *data, size_t len);
int hash_take(struct hash *hash, char out[HASH_TEXT_SIZE], struct error *err);
void hash_close(struct hash *hash);
#define cleanup_hash __attribute__((cleanup(hash_close)))
