/* egress/authority.c: the certificate authority of a session, and the certificates of hosts.
 *
 * The keys are made for the session, stay in this process, and go with it. All hosts share one key,
 * so that a further host costs one signature; its certificate is kept, for 64 hosts.
 * They are valid for longer than any session, and worth nothing without the key.
 */
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "egress/tls_internal.h"

enum { SERIAL_BYTES = 16 };
#define DAY_SECONDS (24L * 3600)

static bool certificate_add(X509 *certificate, X509V3_CTX *context, int kind, const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, context, kind, value);
    bool added = extension && X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
    return added;
}

static bool certificate_set_serial(X509 *certificate)
{
    unsigned char bytes[SERIAL_BYTES];
    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return false;
    bytes[0] = (bytes[0] & 0x7f) | 0x40; /* positive, and of full length */
    BIGNUM *number = BN_bin2bn(bytes, sizeof bytes, NULL);
    bool set = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
    BN_free(number);
    return set;
}

static bool certificate_set_name(X509 *certificate, const char *name)
{
    return X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
        (const unsigned char *)name, -1, -1, 0);
}

/* A certificate without extensions and without a signature. */
static X509 *certificate_begin(EVP_PKEY *key, const char *name)
{
    X509 *certificate = X509_new();
    if (certificate && X509_set_version(certificate, X509_VERSION_3) &&
        certificate_set_serial(certificate) &&
        X509_gmtime_adj(X509_getm_notBefore(certificate), -DAY_SECONDS) &&
        X509_gmtime_adj(X509_getm_notAfter(certificate), 3650 * DAY_SECONDS) &&
        certificate_set_name(certificate, name) && X509_set_pubkey(certificate, key))
        return certificate;
    X509_free(certificate);
    return NULL;
}

static X509 *authority_certificate(EVP_PKEY *key)
{
    X509V3_CTX context;
    X509 *made = certificate_begin(key, "Droste, for one session");
    if (!made)
        return NULL;
    X509V3_set_ctx(&context, made, made, NULL, NULL, 0);
    if (X509_set_issuer_name(made, X509_get_subject_name(made)) &&
        certificate_add(made, &context, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
        certificate_add(made, &context, NID_key_usage, "critical,keyCertSign,cRLSign") &&
        certificate_add(made, &context, NID_subject_key_identifier, "hash") &&
        X509_sign(made, key, EVP_sha256()) > 0)
        return made;
    X509_free(made);
    return NULL;
}

int egress_authority_new(struct egress_authority **out, struct error *err)
{
    struct egress_authority *made = calloc(1, sizeof *made);
    if (!made)
        return error_memory(err);
    made->key = EVP_EC_gen("P-256");
    made->leaf_key = EVP_EC_gen("P-256");
    made->certificate = made->key ? authority_certificate(made->key) : NULL;
    made->context = SSL_CTX_new(TLS_server_method());
    if (!made->leaf_key || !made->certificate || !made->context) {
        egress_authority_free(made);
        return error_set(err, ERROR_ENVIRONMENT, "making the certificate authority of a session");
    }
    tls_set_up_server(made->context);
    *out = made;
    return 0;
}

void egress_authority_free(struct egress_authority *authority)
{
    if (!authority)
        return;
    for (size_t i = 0; i < authority->count; i++) {
        free(authority->leaves[i].host);
        X509_free(authority->leaves[i].certificate);
    }
    SSL_CTX_free(authority->context);
    X509_free(authority->certificate);
    EVP_PKEY_free(authority->leaf_key); /* which overwrites them */
    EVP_PKEY_free(authority->key);
    free(authority);
}

static void pem_append(X509 *certificate, struct buf *out)
{
    BIO *memory = BIO_new(BIO_s_mem());
    char *text = NULL;
    long len =
        memory && PEM_write_bio_X509(memory, certificate) ? BIO_get_mem_data(memory, &text) : 0;
    if (len > 0)
        buf_append(out, text, (size_t)len);
    else
        out->failed = true;
    BIO_free(memory);
}

void egress_authority_print(const struct egress_authority *authority, struct buf *out)
{
    pem_append(authority->certificate, out);
}

/* ---- certificates of hosts ---- */

static X509 *leaf_make(struct egress_authority *authority, const struct egress_host *host)
{
    X509V3_CTX context;
    cleanup_buf struct buf names = { 0 };
    X509 *made = certificate_begin(authority->leaf_key, "droste");
    if (!made)
        return NULL;
    X509V3_set_ctx(&context, authority->certificate, made, NULL, NULL, 0);
    buf_printf(&names, "%s:%s", host->is_address ? "IP" : "DNS", host->name);
    if (!buf_failed(&names) &&
        X509_set_issuer_name(made, X509_get_subject_name(authority->certificate)) &&
        certificate_add(made, &context, NID_basic_constraints, "critical,CA:FALSE") &&
        certificate_add(made, &context, NID_key_usage, "critical,digitalSignature") &&
        certificate_add(made, &context, NID_ext_key_usage, "serverAuth") &&
        certificate_add(made, &context, NID_subject_key_identifier, "hash") &&
        certificate_add(made, &context, NID_authority_key_identifier, "keyid:always") &&
        certificate_add(made, &context, NID_subject_alt_name, buf_text(&names)) &&
        X509_sign(made, authority->key, EVP_sha256()) > 0)
        return made;
    X509_free(made);
    return NULL;
}

X509 *authority_leaf(struct egress_authority *authority, const struct egress_host *host)
{
    for (size_t i = 0; i < authority->count; i++)
        if (strcmp(authority->leaves[i].host, host->name) == 0)
            return authority->leaves[i].certificate;
    cleanup_free char *name = strdup(host->name);
    X509 *made = name ? leaf_make(authority, host) : NULL;
    if (!made)
        return NULL;
    size_t at = authority->count < array_length(authority->leaves)
                    ? authority->count++
                    : authority->next++ % array_length(authority->leaves);
    free(authority->leaves[at].host);
    X509_free(authority->leaves[at].certificate);
    authority->leaves[at] = (struct leaf){ steal(&name), made };
    return made;
}
