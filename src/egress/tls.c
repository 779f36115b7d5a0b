/* egress/tls.c: TLS in memory, see tls.h. */
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "egress/tls_internal.h"

struct egress_tls {
    SSL *ssl;
    BIO *in, *out; /* of `ssl` */
    bool has_ended;
    char host[EGRESS_HOST_SIZE];
    char why[160];
};

/* ---- towards the guest ---- */

/* The name in the handshake is that of the tunnel, or there is none. */
static int tls_on_name(SSL *ssl, int *alert, void *arg)
{
    const struct egress_tls *tls = SSL_get_app_data(ssl);
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    if (!name || strcasecmp(name, tls->host) == 0)
        return name ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
    *alert = SSL_AD_UNRECOGNIZED_NAME;
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* Without HTTP/1.1 in the client's list there is no common protocol. */
static int tls_on_protocols(SSL *ssl, const unsigned char **out, unsigned char *out_len,
    const unsigned char *in, unsigned in_len, void *arg)
{
    static const unsigned char ours[] = { 8, 'h', 't', 't', 'p', '/', '1', '.', '1' };
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof ours, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

void tls_set_up_server(SSL_CTX *context)
{
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_options(
        context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_tlsext_servername_callback(context, tls_on_name);
    SSL_CTX_set_alpn_select_cb(context, tls_on_protocols, NULL);
}

static struct egress_tls *tls_new(SSL_CTX *context, const struct egress_host *host)
{
    struct egress_tls *tls = calloc(1, sizeof *tls);
    if (!tls)
        return NULL;
    tls->ssl = SSL_new(context);
    tls->in = BIO_new(BIO_s_mem());
    tls->out = BIO_new(BIO_s_mem());
    snprintf(tls->host, sizeof tls->host, "%s", host->name);
    if (!tls->ssl || !tls->in || !tls->out) {
        BIO_free(tls->in);
        BIO_free(tls->out);
        SSL_free(tls->ssl);
        free(tls);
        return NULL;
    }
    SSL_set_bio(tls->ssl, tls->in, tls->out);
    SSL_set_app_data(tls->ssl, tls);
    return tls;
}

struct egress_tls *egress_tls_accept(
    struct egress_authority *authority, const struct egress_host *host)
{
    X509 *leaf = authority_leaf(authority, host);
    struct egress_tls *tls = leaf ? tls_new(authority->context, host) : NULL;
    if (tls && SSL_use_certificate(tls->ssl, leaf) &&
        SSL_use_PrivateKey(tls->ssl, authority->leaf_key)) {
        SSL_set_accept_state(tls->ssl);
        return tls;
    }
    egress_tls_free(tls);
    return NULL;
}

/* ---- towards servers ---- */

struct egress_tls *egress_tls_connect(struct egress_trust *trust, const struct egress_host *host)
{
    struct egress_tls *tls = tls_new(trust->context, host);
    if (!tls)
        return NULL;
    X509_VERIFY_PARAM *checks = SSL_get0_param(tls->ssl);
    X509_VERIFY_PARAM_set_hostflags(checks, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    bool set = host->is_address ? X509_VERIFY_PARAM_set1_ip_asc(checks, host->name)
                                : X509_VERIFY_PARAM_set1_host(checks, host->name, 0) &&
                                      SSL_set_tlsext_host_name(tls->ssl, host->name);
    if (set) {
        SSL_set_connect_state(tls->ssl);
        return tls;
    }
    egress_tls_free(tls);
    return NULL;
}

/* ---- both ---- */

void egress_tls_free(struct egress_tls *tls)
{
    if (!tls)
        return;
    SSL_free(tls->ssl);
    free(tls);
}

bool egress_tls_feed(struct egress_tls *tls, const void *data, size_t len)
{
    return BIO_write(tls->in, data, (int)len) == (int)len;
}

/* True: it only needs more bytes. */
static bool tls_goes_on(struct egress_tls *tls, int rc)
{
    int failure = SSL_get_error(tls->ssl, rc);
    if (failure == SSL_ERROR_WANT_READ || failure == SSL_ERROR_WANT_WRITE)
        return true;
    long checked = SSL_is_server(tls->ssl) ? X509_V_OK : SSL_get_verify_result(tls->ssl);
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    if (checked != X509_V_OK)
        snprintf(tls->why, sizeof tls->why, "its certificate is not accepted: %s",
            X509_verify_cert_error_string(checked));
    else
        snprintf(tls->why, sizeof tls->why, "%s", reason ? reason : "the connection was closed");
    return false;
}

bool egress_tls_shake(struct egress_tls *tls)
{
    ERR_clear_error();
    int rc = SSL_do_handshake(tls->ssl);
    bool goes_on = rc == 1 || tls_goes_on(tls, rc);
    ERR_clear_error();
    return goes_on;
}

bool egress_tls_is_up(const struct egress_tls *tls)
{
    return SSL_is_init_finished(tls->ssl);
}

void egress_tls_why(const struct egress_tls *tls, char *out, size_t size)
{
    snprintf(out, size, "%s", tls->why);
}

ssize_t egress_tls_read(struct egress_tls *tls, void *out, size_t size)
{
    size_t got = 0, n;
    ERR_clear_error();
    while (got < size && !tls->has_ended) {
        int rc = SSL_read_ex(tls->ssl, (char *)out + got, size - got, &n);
        if (rc == 1) {
            got += n;
            continue;
        }
        if (SSL_get_error(tls->ssl, rc) == SSL_ERROR_ZERO_RETURN)
            tls->has_ended = true;
        else if (tls_goes_on(tls, rc))
            break;
        else if (got == 0) {
            ERR_clear_error();
            return -1;
        } else
            break;
    }
    return (ssize_t)got;
}

bool egress_tls_has_ended(const struct egress_tls *tls)
{
    return tls->has_ended;
}

bool egress_tls_write(struct egress_tls *tls, const void *data, size_t len)
{
    size_t n;
    ERR_clear_error();
    return len == 0 || (SSL_write_ex(tls->ssl, data, len, &n) == 1 && n == len);
}

void egress_tls_end(struct egress_tls *tls)
{
    ERR_clear_error();
    if (SSL_is_init_finished(tls->ssl))
        (void)SSL_shutdown(tls->ssl);
    ERR_clear_error();
}

size_t egress_tls_peek(struct egress_tls *tls, char **data)
{
    long len = BIO_get_mem_data(tls->out, data);
    return len > 0 ? (size_t)len : 0;
}

void egress_tls_sent(struct egress_tls *tls)
{
    (void)BIO_reset(tls->out);
}
