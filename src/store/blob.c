/* store/blob.c: values, stored once for each SHA-256.
 *
 * Values over a kibibyte are compressed if that makes them smaller. They are read in pieces, so
 * that large values need little memory. Reading verifies: the recorded size bounds the output, and
 * the hash must match at the end.
 */
#include <stdlib.h>

#include "base/hash.h"
#include "store/internal.h"

_Static_assert(HASH_TEXT_SIZE == 65, "internal.h spells the size of a hash out");

enum {
    COMPRESS_FROM = 1024, /* bytes */
    COMPRESS_LEVEL = 3,
    PIECE = 64 << 10,
};

static int is_known(struct store *store, const char *hash, bool *known, struct error *err)
{
    cleanup_query struct query q = query_open(store, STATEMENT_BLOB_KNOWN);
    bind_text(&q, hash);
    return query_step(&q, known, err);
}

/* NULL if compression gains nothing; `value` is then stored as it is. */
static void *blob_compress(struct store *store, droste_value value, size_t *len)
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

int blob_write(struct store *store, droste_value value, char hash[static 65], struct error *err)
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
    cleanup_free void *packed = blob_compress(store, value, &packed_len);
    cleanup_query struct query q = query_open(store, STATEMENT_BLOB_INSERT);
    bool row;
    bind_text(&q, hash);
    bind_int(&q, (int64_t)value.len);
    bind_text(&q, packed ? "zstd" : "raw");
    bind_bytes(&q, packed ? packed : value.data, packed ? packed_len : value.len);
    return query_step(&q, &row, err);
}

static int blob_damaged(struct store *store, const char *hash, struct error *err)
{
    return error_set(err, ERROR_STORE, "record %.120s: the value %.12s is damaged or missing",
        store->path, hash);
}

struct blob {
    int64_t row, size;
    bool packed;
};

static int blob_find(struct store *store, const char *hash, struct blob *blob, struct error *err)
{
    cleanup_query struct query q = query_open(store, STATEMENT_BLOB_FIND);
    bool row;
    bind_text(&q, hash);
    int rc = query_step(&q, &row, err);
    if (rc < 0)
        return rc;
    if (!row)
        return blob_damaged(store, hash, err);
    blob->row = take_int(&q);
    blob->size = take_int(&q);
    const char *encoding = take_text(&q);
    rc = query_check(&q, err);
    if (rc < 0)
        return rc;
    if (blob->size < 0 || blob->size > STORE_VALUE_MAX || !encoding)
        return blob_damaged(store, hash, err);
    blob->packed = strcmp(encoding, "zstd") == 0;
    return 0;
}

int blob_size(struct store *store, const char *hash, size_t *size, struct error *err)
{
    struct blob blob = { 0 };
    int rc = blob_find(store, hash, &blob, err);
    *size = (size_t)blob.size;
    return rc;
}

/* A value that is being read. */
struct reading {
    struct store *store;
    const char *name; /* its hash */
    struct hash hash;
    size_t left; /* bytes still to come */
    size_t max;  /* how many of those are wanted */
    store_piece_fn *fn;
    void *arg;
    sqlite3_blob *source;
    char *in, *out; /* PIECE bytes each */
};

static void end_reading(struct reading *r)
{
    sqlite3_blob_close(r->source);
    hash_close(&r->hash);
    free(r->in);
    free(r->out);
}

static int blob_give(struct reading *r, const char *data, size_t len, struct error *err)
{
    if (len > r->left)
        return blob_damaged(r->store, r->name, err);
    size_t wanted = len < r->max ? len : r->max;
    hash_add(&r->hash, data, len);
    r->left -= len;
    r->max -= wanted;
    return wanted > 0 ? r->fn(r->arg, data, wanted, err) : 0;
}

static int give_raw(struct reading *r, int len, struct error *err)
{
    return blob_give(r, r->in, (size_t)len, err);
}

static int give_unpacked(struct reading *r, int len, struct error *err)
{
    ZSTD_inBuffer in = { r->in, (size_t)len, 0 };
    for (;;) {
        ZSTD_outBuffer out = { r->out, PIECE, 0 };
        if (ZSTD_isError(ZSTD_decompressStream(r->store->unzstd, &out, &in)))
            return blob_damaged(r->store, r->name, err);
        int rc = blob_give(r, r->out, out.pos, err);
        if (rc < 0 || r->max == 0 || (in.pos == in.size && out.pos < out.size))
            return rc;
    }
}

static int blob_give_all(struct reading *r, bool packed, struct error *err)
{
    int stored = sqlite3_blob_bytes(r->source);
    ZSTD_DCtx_reset(r->store->unzstd, ZSTD_reset_session_only);
    for (int at = 0; at < stored && r->max > 0; at += PIECE) {
        int len = stored - at < PIECE ? stored - at : PIECE;
        int rc = sqlite3_blob_read(r->source, r->in, len, at);
        if (rc != SQLITE_OK)
            return store_error(r->store, rc, err);
        rc = packed ? give_unpacked(r, len, err) : give_raw(r, len, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* At the end: checks the value's size and hash. */
static int check_whole(struct reading *r, struct error *err)
{
    char found[HASH_TEXT_SIZE];
    int rc = hash_take(&r->hash, found, err);
    if (rc < 0)
        return rc;
    return r->left == 0 && strcmp(found, r->name) == 0 ? 0 : blob_damaged(r->store, r->name, err);
}

int blob_read(struct store *store, const char *hash, size_t max, store_piece_fn *fn, void *arg,
    struct error *err)
{
    struct blob blob = { 0 };
    int rc = blob_find(store, hash, &blob, err);
    if (rc < 0)
        return rc;
    bool whole = max >= (size_t)blob.size;
    /* If all of it is wanted, reads one byte more, to notice excess data. */
    __attribute__((cleanup(end_reading))) struct reading r = { .store = store,
        .name = hash,
        .left = (size_t)blob.size,
        .max = whole ? (size_t)blob.size + 1 : max,
        .fn = fn,
        .arg = arg,
        .in = malloc(PIECE),
        .out = malloc(PIECE) };
    if (!r.in || !r.out)
        return error_memory(err);
    rc = hash_open(&r.hash, err);
    if (rc < 0)
        return rc;
    rc = sqlite3_blob_open(store->db, "main", "blobs", "data", blob.row, 0, &r.source);
    if (rc != SQLITE_OK)
        return store_error(store, rc, err);
    rc = blob_give_all(&r, blob.packed, err);
    return rc == 0 && whole ? check_whole(&r, err) : rc;
}
