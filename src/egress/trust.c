/* egress/trust.c: the certificates by which the proxy, and the guest, recognise servers. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "egress/tls_internal.h"

enum { BUNDLE_MAX = 8 << 20 };

/* HTTP/1.1 alone: the proxy reads requests. */
static const unsigned char trust_protocols[] = { 8, 'h', 't', 't', 'p', '/', '1', '.', '1' };

static bool trust_take_file(struct egress_trust *trust, const char *file, struct error *err)
{
    X509_STORE *store = SSL_CTX_get_cert_store(trust->context);
    BIO *memory = BIO_new_mem_buf(trust->file.data, (int)trust->file.len);
    X509 *certificate;
    size_t count = 0;
    while (memory && (certificate = PEM_read_bio_X509(memory, NULL, NULL, NULL))) {
        count += (size_t)X509_STORE_add_cert(store, certificate);
        X509_free(certificate);
    }
    BIO_free(memory);
    ERR_clear_error();
    if (count == 0)
        error_set(err, ERROR_CONFIG, "net-ca '%.200s' has no certificate in PEM", file);
    return count > 0;
}

int egress_trust_new(const char *file, struct egress_trust **out, struct error *err)
{
    struct egress_trust *trust = calloc(1, sizeof *trust);
    if (!trust)
        return error_memory(err);
    trust->context = SSL_CTX_new(TLS_client_method());
    if (!trust->context || !SSL_CTX_set_default_verify_paths(trust->context)) {
        egress_trust_free(trust);
        return error_memory(err);
    }
    SSL_CTX_set_min_proto_version(trust->context, TLS1_2_VERSION);
    SSL_CTX_set_verify(trust->context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(trust->context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_protos(trust->context, trust_protocols, sizeof trust_protocols);
    int rc = file ? file_read(file, BUNDLE_MAX, &trust->file, err) : 0;
    if (rc < 0)
        rc = error_wrap(err, "reading net-ca");
    else if (file && !trust_take_file(trust, file, err))
        rc = -(int)ERROR_CONFIG;
    if (rc < 0)
        egress_trust_free(trust);
    else
        *out = trust;
    return rc;
}

void egress_trust_free(struct egress_trust *trust)
{
    if (!trust)
        return;
    SSL_CTX_free(trust->context);
    buf_free(&trust->file);
    free(trust);
}

void egress_trust_print(const struct egress_trust *trust, struct buf *out)
{
    /* Where Debian, Fedora, openSUSE and Alpine have it, after what OpenSSL itself would read. */
    const char *const files[] = { getenv(X509_get_default_cert_file_env()),
        X509_get_default_cert_file(), "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem" };
    cleanup_buf struct buf system = { 0 };
    for (size_t i = 0; system.len == 0 && i < array_length(files); i++)
        if (files[i] && file_read(files[i], BUNDLE_MAX, &system, NULL) < 0)
            buf_clear(&system);
    buf_append(out, system.data, system.len);
    buf_append(out, trust->file.data, trust->file.len);
}
