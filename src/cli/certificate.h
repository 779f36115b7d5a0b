/* cli/certificate.h: how long the certificate of a NATS server is valid. */
#pragma once

#include <time.h>

#include "base/error.h"

/* `address` is HOST or HOST:PORT, perhaps behind USER@. The certificate is read, not verified: the
 * connection of the bus has done that. */
int certificate_end_of_nats(const char *address, time_t *out, struct error *err);
