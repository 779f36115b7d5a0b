/* env/remote/files.h: directories of this machine that have a copy at the far end of a remote. */
#ifndef DROSTE_ENV_REMOTE_FILES_H
#define DROSTE_ENV_REMOTE_FILES_H

#include "env/remote/remote.h"

struct delivery;

/* What is in a volume goes into the directory `to` over there, or, if that is NULL, into one that ends with the delivery. Sandboxes
 * that are opened from now on wait until all is there; where that fails, it is their end, which says why. */
int delivery_open(struct loop *loop, struct remote *r, const struct environment_ops *ops,
    const struct volume *v, const char *to, struct delivery **out, struct error *err);
/* The directory. */
const char *delivery_place(const struct delivery *d);

/* All is there: what comes back is of all of it. */
bool delivery_is_there(const struct delivery *d);
bool delivery_is_fetching(const struct delivery *d);
/* What has changed there comes back into the volume. `how`: all is zero where it did; a limit where it is over that now, and maybe not all of it
 * came; else an error. Not while one is under way. */
typedef void delivery_fetched_fn(void *arg, const struct sandbox_exit *how);
int delivery_fetch(struct delivery *d, delivery_fetched_fn *done, void *arg, struct error *err);

/* Before the remote is freed, and after its sandboxes were closed. NULL is fine. */
void delivery_close(struct delivery *d);

#endif
