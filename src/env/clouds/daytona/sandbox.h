/* env/clouds/daytona/sandbox.h: one sandbox of Daytona's: made or found, started, a program on a terminal in it, and deleted or
 * stopped at the end.
 */
#ifndef DROSTE_ENV_CLOUDS_DAYTONA_SANDBOX_H
#define DROSTE_ENV_CLOUDS_DAYTONA_SANDBOX_H

#include "env/remote/stdio_env.h"
#include "env/clouds/daytona/account.h"

struct daytona_sandbox;

/* `gone` is told once, after daytona_sandbox_end: it is freed then. */
int daytona_sandbox_open(const struct daytona_account *account, struct transport *transport,
    const struct sandbox_spec *spec, const char *const *words, void (*gone)(void *arg), void *arg,
    struct daytona_sandbox **out, struct error *err);
void daytona_sandbox_write(struct daytona_sandbox *s, const struct iovec *iov, int count);
size_t daytona_sandbox_waiting(const struct daytona_sandbox *s);
void daytona_sandbox_pause(struct daytona_sandbox *s, bool paused);
const char *daytona_sandbox_id(const struct daytona_sandbox *s); /* NULL: not known yet */
const char *daytona_sandbox_volume(const struct daytona_sandbox *s);
void daytona_sandbox_describe(const struct daytona_sandbox *s, struct buf *out);
/* The carrier is not told anything any more; the service is, and then `gone`. */
void daytona_sandbox_end(struct daytona_sandbox *s);
/* At once; what the service has left it finds by its labels and its limits. */
void daytona_sandbox_free(struct daytona_sandbox *s);

#endif
