/* cli/certificate.c: a NATS server says a line of its own before TLS begins. */
#include "cli/certificate.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

enum { ADDRESS_MAX = 300, GREETING_MAX = 8192 };

static int certificate_read(BIO *wire, SSL *ssl, time_t *out, struct error *err)
{
    char byte = 0;
    struct tm tm = { 0 };
    size_t read = 0;
    if (BIO_do_connect(wire) != 1)
        return error_set(err, ERROR_IO, "it cannot be reached");
    while (byte != '\n')
        if (++read > GREETING_MAX || BIO_read(wire, &byte, 1) != 1)
            return error_set(err, ERROR_IO, "it does not greet as a NATS server");
    BIO_up_ref(wire);
    SSL_set_bio(ssl, wire, wire);
    /* A server that wants a certificate of ours has shown its own before it refuses. */
    SSL_connect(ssl);
    X509 *certificate = SSL_get0_peer_certificate(ssl);
    if (!certificate || ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &tm) != 1)
        return error_set(err, ERROR_IO, "it shows no certificate");
    *out = timegm(&tm);
    return 0;
}

int certificate_end_of_nats(const char *address, time_t *out, struct error *err)
{
    char place[ADDRESS_MAX];
    const char *at = strrchr(address, '@'), *host = at ? at + 1 : address;
    const char *port = strrchr(host, ':') > strrchr(host, ']') ? "" : ":4222";
    snprintf(place, sizeof place, "%.280s%s", host, port);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = context ? SSL_new(context) : NULL;
    BIO *wire = ssl ? BIO_new_connect(place) : NULL;
    int rc = wire ? certificate_read(wire, ssl, out, err) : error_memory(err);
    BIO_free(wire);
    SSL_free(ssl);
    SSL_CTX_free(context);
    return rc;
}
