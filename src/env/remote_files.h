/* env/remote_files.h: files of this machine for the far end of a remote. */
#ifndef DROSTE_ENV_REMOTE_FILES_H
#define DROSTE_ENV_REMOTE_FILES_H

#include "env/remote.h"

struct delivery;

/* What is in a volume goes into the directory `to` over there, or, if that is NULL, into one that ends with the supervisor. Sandboxes that are opened from now on wait until all is there; where that
 * fails, it is their end, which says why. */
int delivery_open(struct loop *loop, struct remote *r, const struct environment_ops *ops,
    const struct volume *v, const char *to, struct delivery **out, struct error *err);
/* The directory. */
const char *delivery_place(const struct delivery *d);
/* Before the remote is freed, and after its sandboxes were closed. NULL is fine. */
void delivery_close(struct delivery *d);

#endif
