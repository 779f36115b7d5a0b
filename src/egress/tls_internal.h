/* egress/tls_internal.h: what tls.c, authority.c and trust.c share. */
#pragma once

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include "egress/tls.h"

struct egress_authority {
    EVP_PKEY *key, *leaf_key;
    X509 *certificate;
    SSL_CTX *context; /* of connections of the guest */
    struct leaf {
        char *host;
        X509 *certificate;
    } leaves[64];
    size_t count, next;
};

struct egress_trust {
    SSL_CTX *context; /* of connections to servers */
    struct buf file;  /* the operator's own certificates, as PEM */
};

void tls_set_up_server(SSL_CTX *context);
/* The certificate of the host; NULL: out of memory. */
X509 *authority_leaf(struct egress_authority *authority, const struct egress_host *host);
