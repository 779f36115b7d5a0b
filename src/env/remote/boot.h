/* env/remote/boot.h: how Python at the far end becomes our supervisor: the loader says which Python it is, and is
 * sent the guest in the form in which that reads it best.
 */
#ifndef DROSTE_ENV_REMOTE_BOOT_H
#define DROSTE_ENV_REMOTE_BOOT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"
#include "env/remote/remote.h"

/* The loader's word is on its way. A zeroed one is new. */
struct remote_boot {
    struct buf heard; /* the last of what was said so far */
};

/* Takes bytes until the word is there. 1: it is, `*used` bytes of these are behind us, and `out` has what is to be
 * written; 0: not yet. ERROR_ENVIRONMENT: this Python cannot be the guest's, and `err` says why. */
int remote_boot_feed(struct remote_boot *b, const struct remote_options *options, const char *data,
    size_t len, size_t *used, struct buf *out, struct error *err);
void remote_boot_free(struct remote_boot *b);

#endif
