/* env/clouds/daytona/sandbox.h: one Daytona sandbox: created or resumed, running a program on a
 * terminal, and deleted or stopped at the end.
 */
#ifndef DROSTE_ENV_CLOUDS_DAYTONA_SANDBOX_H
#define DROSTE_ENV_CLOUDS_DAYTONA_SANDBOX_H

#include "env/remote/stdio_env.h"
#include "env/clouds/daytona/account.h"

struct daytona_sandbox;

/* `gone` is called once, after daytona_sandbox_end; the sandbox is freed by then. */
int daytona_sandbox_open(const struct daytona_account *account, struct transport *transport,
    const struct sandbox_spec *spec, const char *const *words, void (*gone)(void *arg), void *arg,
    struct daytona_sandbox **out, struct error *err);
void daytona_sandbox_write(struct daytona_sandbox *s, const struct iovec *iov, int count);
size_t daytona_sandbox_waiting(const struct daytona_sandbox *s);
void daytona_sandbox_pause(struct daytona_sandbox *s, bool paused);
const char *daytona_sandbox_id(const struct daytona_sandbox *s); /* NULL: not known yet */
const char *daytona_sandbox_volume(const struct daytona_sandbox *s);
void daytona_sandbox_describe(const struct daytona_sandbox *s, struct buf *out);
/* Deletes or stops it at the service, and then calls `gone`. No transport event follows. */
void daytona_sandbox_end(struct daytona_sandbox *s);
/* Frees it at once. What the service still has is found by its labels or ended by its limits. */
void daytona_sandbox_free(struct daytona_sandbox *s);

#endif
