/* env/clouds/daytona/sandbox.h: one Daytona sandbox: created or resumed, running a program on a
 * terminal, and deleted or stopped at the end.
 */
#pragma once

#include "env/remote/stdio_env.h"
#include "env/clouds/daytona/account.h"

struct daytona_sandbox;

/* transport_ops.start; `own` is a struct daytona_sandbox from then on. */
int daytona_sandbox_start(struct daytona_account *account, struct transport *transport,
    const struct sandbox_spec *spec, const char *const *words, void **own, struct error *err);
/* As in transport_ops. */
void daytona_sandbox_write(void *own, const struct iovec *iov, int count);
size_t daytona_sandbox_waiting(void *own);
void daytona_sandbox_pause(void *own, bool paused);
const char *daytona_sandbox_id(void *own);
const char *daytona_sandbox_volume(void *own);
void daytona_sandbox_describe(void *own, struct buf *out);
/* Deletes or stops it at the service, and then frees it. No transport event follows. */
void daytona_sandbox_end(void *own);
/* Whether one of the account's is being deleted or stopped. */
bool daytona_sandboxes_end(const struct daytona_account *account);
/* Frees it at once. What the service still has is found by its labels or ended by its limits. */
void daytona_sandbox_free(struct daytona_sandbox *s);
