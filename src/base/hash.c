/* base/hash.c: hashes, through OpenSSL's EVP interface. */
#include "base/hash.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/text.h"

static int not_available(struct error *err)
{
    return error_set(err, ERROR_IO, "SHA-256 is not available from libcrypto");
}

static int write_digest(const unsigned char *digest, unsigned size, char *out, struct error *err)
{
    if (size != 32)
        return not_available(err);
    text_hex(digest, size, out);
    return 0;
}

int hash_sha256(const void *data, size_t len, char out[HASH_TEXT_SIZE], struct error *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    if (EVP_Digest(data, len, digest, &size, EVP_sha256(), NULL) != 1)
        return not_available(err);
    return write_digest(digest, size, out, err);
}

int hash_sha1(const void *data, size_t len, unsigned char out[HASH_SHA1_SIZE], struct error *err)
{
    unsigned int size = 0;
    if (EVP_Digest(data, len, out, &size, EVP_sha1(), NULL) != 1 || size != HASH_SHA1_SIZE)
        return error_set(err, ERROR_IO, "SHA-1 is not available from libcrypto");
    return 0;
}

int hash_open(struct hash *hash, struct error *err)
{
    hash->context = EVP_MD_CTX_new();
    if (!hash->context)
        return error_memory(err);
    return EVP_DigestInit_ex(hash->context, EVP_sha256(), NULL) == 1 ? 0 : not_available(err);
}

/* EVP_DigestUpdate fails only for a context that was not opened. */
void hash_add(struct hash *hash, const void *data, size_t len)
{
    EVP_DigestUpdate(hash->context, data, len);
}

int hash_take(struct hash *hash, char out[HASH_TEXT_SIZE], struct error *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    if (EVP_DigestFinal_ex(hash->context, digest, &size) != 1)
        return not_available(err);
    return write_digest(digest, size, out, err);
}

void hash_close(struct hash *hash)
{
    EVP_MD_CTX_free(hash->context);
    hash->context = NULL;
}

int hash_file(const char *path, char out[HASH_TEXT_SIZE], struct error *err)
{
    cleanup_hash struct hash hash = { 0 };
    cleanup_fd int fd = file_open(path, O_RDONLY, 0, "the file", err);
    char data[16384];
    ssize_t n;
    uint64_t total = 0;
    int rc = fd < 0 ? fd : hash_open(&hash, err);
    if (rc < 0)
        return rc;
    while ((n = read(fd, data, sizeof data)) > 0) {
        hash_add(&hash, data, (size_t)n);
        if ((total += (uint64_t)n) > HASH_FILE_MAX)
            return error_set(err, ERROR_ARGUMENT, "%.160s is larger than %u MiB", path,
                (unsigned)(HASH_FILE_MAX >> 20));
    }
    if (n < 0)
        return error_set_errno(err, ERROR_IO, "reading %.160s", path);
    return hash_take(&hash, out, err);
}

unsigned hash_word(unsigned from, const char *text)
{
    for (; *text; text++)
        from = (from ^ (unsigned char)*text) * 16777619u;
    return from;
}
