/* serve/http/tls.h: the server's certificate, for GnuTLS. */
#pragma once

#ifdef DROSTE_TLS
#include <gnutls/abstract.h>
#endif

#include "base/error.h"

/* Versions and algorithms: TLS 1.2 and 1.3. */
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

/* Loads a chain of certificates and its key, in PEM. The old ones stay if that fails.
 * ERROR_UNSUPPORTED: this program was built without TLS. */
int tls_load(const char *certificate, const char *key, struct error *err);
#ifdef DROSTE_TLS
/* Credentials that have the certificate of the time. Negative: GnuTLS's error. */
int tls_credentials(gnutls_certificate_credentials_t *out);
#endif
void tls_close(void);
