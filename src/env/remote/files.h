/* env/remote/files.h: copies a directory of this machine to the far end of a remote, and changes
 * back.
 */
#pragma once

#include "env/remote/remote.h"

struct delivery;

/* Copies the volume's contents to the remote directory `to`, or to a temporary one (NULL) that is
 * removed with the delivery. Sandboxes that are opened from now on wait for the copy; if it fails,
 * they end with the error. */
int delivery_open(struct loop *loop, struct remote *r, const struct volume *v, const char *to,
    struct delivery **out, struct error *err);
/* The remote directory. */
const char *delivery_directory(const struct delivery *d);

/* The copy is complete, so its changes can be fetched. */
bool delivery_is_there(const struct delivery *d);
bool delivery_is_fetching(const struct delivery *d);
/* Copies changes back into the volume. `how` is all zero on success. It has a limit if the volume
 * exceeds it, in which case the copy may be incomplete; otherwise it has an error. Only one fetch
 * may run at a time. */
typedef void delivery_fetched_fn(void *arg, const struct sandbox_exit *how);
int delivery_fetch(struct delivery *d, delivery_fetched_fn *done, void *arg, struct error *err);

/* After its sandboxes were closed and before the remote is freed. NULL is fine. */
void delivery_close(struct delivery *d);
