/* serve/e2b/signature.c: signed URLs of files, which any HTTP client may use.
 *
 * The signature is "v1_" and the unpadded base64 of SHA-256 over the path as given, the operation,
 * the user, the sandbox's token and, if there is one, the time of expiry, joined by colons.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "serve/e2b/e2b.h"

static void signature_unhex(const char *hex, unsigned char out[32])
{
    for (size_t i = 0; i < 32; i++) {
        unsigned byte = 0;
        sscanf(hex + 2 * i, "%2x", &byte);
        out[i] = (unsigned char)byte;
    }
}

static bool signature_make(struct request *r, const char *token, struct buf *out)
{
    cleanup_buf struct buf text = { 0 };
    char hex[HASH_TEXT_SIZE];
    unsigned char digest[32];
    const char *path = request_parameter(r, "path"), *user = request_parameter(r, "username");
    const char *expiry = request_parameter(r, "signature_expiration");
    bool reads = r->route && strcmp(r->route->method, "GET") == 0;
    buf_printf(
        &text, "%s:%s:%s:%s", path ? path : "", reads ? "read" : "write", user ? user : "", token);
    if (expiry)
        buf_printf(&text, ":%s", expiry);
    if (buf_failed(&text) || hash_sha256(text.data, text.len, hex, NULL) < 0)
        return false;
    signature_unhex(hex, digest);
    buf_puts(out, "v1_");
    json_append_base64(out, digest, sizeof digest);
    while (out->len > 0 && out->data[out->len - 1] == '=')
        out->data[--out->len] = '\0';
    return !buf_failed(out);
}

bool e2b_signature_fits(struct request *r, const char *token)
{
    cleanup_buf struct buf expected = { 0 };
    const char *given = request_parameter(r, "signature");
    unsigned differ = 0;
    if (!given || !signature_make(r, token, &expected) || strlen(given) != expected.len)
        return false;
    for (size_t i = 0; i < expected.len; i++)
        differ |= (unsigned)(given[i] ^ expected.data[i]);
    return differ == 0;
}

bool e2b_signature_check(struct request *r, const char *token)
{
    const char *expiry = request_parameter(r, "signature_expiration");
    char *end = NULL;
    if (!e2b_signature_fits(r, token)) {
        request_refuse(r, 401, "unauthorized", "%s",
            request_parameter(r, "signature") ? "invalid signature"
                                              : "missing access token or signature");
        return false;
    }
    if (expiry && (strtoll(expiry, &end, 10) < (long long)time(NULL) || *end != '\0')) {
        request_refuse(r, 401, "unauthorized", "signature is already expired");
        return false;
    }
    return true;
}
