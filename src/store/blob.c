/* store/blob.c: values, once each, by the SHA-256 of what they say.
 *
 * Over a kibibyte they are compressed, and stay so if that made them smaller. Reading believes
 * nothing: the recorded size bounds the decompression, and the hash must come out again.
 */
#include <stdlib.h>

#include "base/hash.h"
#include "store/internal.h"

_Static_assert(HASH_TEXT_SIZE == 65, "internal.h spells the size of a hash out");

enum {
    COMPRESS_FROM = 1024, /* bytes */
    COMPRESS_LEVEL = 3,
};

static int is_known(struct store *store, const char *hash, bool *known, struct error *err)
{
    cleanup_query struct query q = query_open(store, STATEMENT_BLOB_KNOWN);
    bind_text(&q, hash);
    return query_step(&q, known, err);
}

/* NULL, and `value` is to be kept as it is, where compressing gains nothing. */
static void *compress(struct store *store, struct store_value value, size_t *len)
{
    if (value.len <= COMPRESS_FROM)
        return NULL;
    size_t bound = ZSTD_compressBound(value.len);
    void *packed = malloc(bound);
    if (!packed)
        return NULL;
    *len = ZSTD_compressCCtx(store->zstd, packed, bound, value.data, value.len, COMPRESS_LEVEL);
    if (ZSTD_isError(*len) || *len >= value.len) {
        free(packed);
        return NULL;
    }
    return packed;
}

int blob_write(
    struct store *store, struct store_value value, char hash[static 65], struct error *err)
{
    if (value.len > STORE_VALUE_MAX)
        return error_set(err, ERROR_STORE,
            "a value of %zu bytes is too large for the record; at most %d", value.len,
            STORE_VALUE_MAX);
    bool known = false;
    int rc = hash_sha256(value.data, value.len, hash, err);
    if (rc == 0)
        rc = is_known(store, hash, &known, err);
    if (rc < 0 || known)
        return rc;

    size_t packed_len = 0;
    cleanup_free void *packed = compress(store, value, &packed_len);
    cleanup_query struct query q = query_open(store, STATEMENT_BLOB_INSERT);
    bool row;
    bind_text(&q, hash);
    bind_int(&q, (int64_t)value.len);
    bind_text(&q, packed ? "zstd" : "raw");
    bind_bytes(&q, packed ? packed : value.data, packed ? packed_len : value.len);
    return query_step(&q, &row, err);
}

/* False if the stored bytes are not exactly `size` bytes of content. */
static bool decode(char *out, size_t size, const char *encoding, const void *data, size_t len)
{
    if (strcmp(encoding, "zstd") == 0)
        return ZSTD_decompress(out, size, data, len) == size;
    if (len != size)
        return false;
    if (size > 0)
        memcpy(out, data, size);
    return true;
}

static int damaged(struct store *store, const char *hash, struct error *err)
{
    return error_set(err, ERROR_STORE, "record %.120s: the value %.12s is damaged or missing",
        store->path, hash);
}

int blob_read(struct store *store, const char *hash, char **data, size_t *len, struct error *err)
{
    cleanup_query struct query q = query_open(store, STATEMENT_BLOB_READ);
    bool row;
    bind_text(&q, hash);
    int rc = query_step(&q, &row, err);
    if (rc < 0)
        return rc;
    if (!row)
        return damaged(store, hash, err);

    int64_t size = take_int(&q);
    const char *encoding = take_text(&q);
    size_t stored_len;
    const void *stored = take_bytes(&q, &stored_len);
    if (size < 0 || size > STORE_VALUE_MAX || !encoding)
        return damaged(store, hash, err);
    cleanup_free char *out = malloc((size_t)size + 1);
    if (!out)
        return error_memory(err);
    char found[HASH_TEXT_SIZE];
    if (!decode(out, (size_t)size, encoding, stored, stored_len))
        return damaged(store, hash, err);
    rc = hash_sha256(out, (size_t)size, found, err);
    if (rc < 0)
        return rc;
    if (strcmp(found, hash) != 0)
        return damaged(store, hash, err);
    out[size] = '\0';
    *data = steal(&out);
    *len = (size_t)size;
    return 0;
}
