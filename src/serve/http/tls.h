/* serve/http/tls.h: the server's certificate, for libmicrohttpd built with GnuTLS. */
#pragma once

#include <microhttpd.h>

#include "base/error.h"

/* Versions and algorithms: TLS 1.2 and 1.3. */
#define TLS_PRIORITIES "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

/* Loads a chain of certificates and its key, in PEM. The old ones stay if that fails.
 * ERROR_UNSUPPORTED: this program was built without TLS. */
int tls_load(const char *certificate, const char *key, struct error *err);
/* The option that gives libmicrohttpd the certificate. */
struct MHD_OptionItem tls_option(void);
void tls_close(void);
