/* serve/http/tls.c: see tls.h.
 *
 * GnuTLS asks for the certificate at each handshake, so that one which was loaded again is used for
 * new connections; it gives its callback no argument, which is why the pair is a variable of this
 * file. The pair before it is kept until the next one comes, for handshakes that have begun.
 */
#include "serve/http/tls.h"

#include "base/cleanup.h"
#include "base/os/file.h"

#ifdef DROSTE_TLS

#include <fcntl.h>
#include <string.h>
#include <stdlib.h>

enum { TLS_CHAIN_MAX = 16, TLS_FILE_MAX = 1 << 20 };

struct tls_pair {
    gnutls_pcert_st chain[TLS_CHAIN_MAX];
    unsigned count;
    gnutls_privkey_t key;
};

static struct tls_pair *tls_now, *tls_before;

static void tls_free(struct tls_pair *pair)
{
    if (!pair)
        return;
    for (unsigned i = 0; i < pair->count; i++)
        gnutls_pcert_deinit(&pair->chain[i]);
    if (pair->key)
        gnutls_privkey_deinit(pair->key);
    free(pair);
}

static int tls_read(
    struct tls_pair *pair, const char *certificate, const char *key, struct error *err)
{
    cleanup_buf struct buf chain = { 0 }, secret = { 0 };
    if (file_read(certificate, TLS_FILE_MAX, &chain, err) < 0 ||
        file_read(key, TLS_FILE_MAX, &secret, err) < 0)
        return -1;
    const gnutls_datum_t chain_text = { (unsigned char *)chain.data, (unsigned)chain.len };
    const gnutls_datum_t key_text = { (unsigned char *)secret.data, (unsigned)secret.len };
    pair->count = TLS_CHAIN_MAX;
    int rc = gnutls_pcert_list_import_x509_raw(
        pair->chain, &pair->count, &chain_text, GNUTLS_X509_FMT_PEM, 0);
    if (rc < 0) {
        pair->count = 0;
        return error_set(
            err, ERROR_CONFIG, "the certificate in %s: %s", certificate, gnutls_strerror(rc));
    }
    if (gnutls_privkey_init(&pair->key) < 0)
        return error_memory(err);
    rc = gnutls_privkey_import_x509_raw(pair->key, &key_text, GNUTLS_X509_FMT_PEM, NULL, 0);
    explicit_bzero(secret.data, secret.len);
    if (rc < 0)
        return error_set(err, ERROR_CONFIG, "the key in %s: %s", key, gnutls_strerror(rc));
    return 0;
}

/* A key of another certificate would fail each handshake. */
static int tls_check(struct tls_pair *pair, const char *key, struct error *err)
{
    unsigned char a[64], b[64];
    size_t a_len = sizeof a, b_len = sizeof b;
    gnutls_pubkey_t public = NULL;
    int rc = gnutls_pubkey_init(&public);
    if (rc == 0)
        rc = gnutls_pubkey_import_privkey(public, pair->key, 0, 0);
    if (rc == 0)
        rc = gnutls_pubkey_get_key_id(public, GNUTLS_KEYID_USE_SHA256, a, &a_len);
    if (rc == 0)
        rc = gnutls_pubkey_get_key_id(pair->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, b, &b_len);
    gnutls_pubkey_deinit(public);
    if (rc < 0 || a_len != b_len || memcmp(a, b, a_len) != 0)
        return error_set(err, ERROR_CONFIG, "the key in %s is not that of the certificate", key);
    return 0;
}

int tls_load(const char *certificate, const char *key, struct error *err)
{
    struct tls_pair *pair = calloc(1, sizeof *pair);
    if (!pair)
        return error_memory(err);
    int rc = tls_read(pair, certificate, key, err);
    if (rc == 0)
        rc = tls_check(pair, key, err);
    if (rc < 0) {
        tls_free(pair);
        return rc;
    }
    tls_free(tls_before);
    tls_before = tls_now;
    tls_now = pair;
    return 0;
}

static int tls_on_certificate(gnutls_session_t session, const gnutls_datum_t *authorities,
    int authority_count, const gnutls_pk_algorithm_t *algorithms, int algorithm_count,
    gnutls_pcert_st **chain, unsigned *count, gnutls_privkey_t *key)
{
    *chain = tls_now->chain;
    *count = tls_now->count;
    *key = tls_now->key;
    return 0;
}

int tls_credentials(gnutls_certificate_credentials_t *out)
{
    int rc = gnutls_certificate_allocate_credentials(out);
    if (rc == 0)
        gnutls_certificate_set_retrieve_function2(*out, tls_on_certificate);
    return rc;
}

void tls_close(void)
{
    tls_free(steal(&tls_now));
    tls_free(steal(&tls_before));
}

#else

int tls_load(const char *certificate, const char *key, struct error *err)
{
    return error_set(err, ERROR_UNSUPPORTED,
        "this program was built without TLS; use a proxy, or a package of your system");
}

void tls_close(void)
{
}

#endif
