/* env/remote/boot.h: turns a remote Python into the supervisor. The loader reports its Python
 * version and receives the guest in the form that suits this version best.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"
#include "wire/link.h"

/* How the supervisor is started. */
struct boot_options {
    enum link_form form; /* LINK_BARE or LINK_TEXT */
    double lease;  /* seconds without a message after which the supervisor ends itself; 0: never */
    bool eof_ends; /* the supervisor also ends itself when its standard input ends */
};

/* The program for python3 -u -c. */
const char *remote_loader(void);

/* The greeting of the loader is pending. Initialise to zero. */
struct remote_boot {
    struct buf heard; /* the end of what was received so far */
};

/* Consumes bytes until the greeting is complete. 1: it is; it ended after `*used` of these bytes,
 * and `out` has the reply to send. 0: not yet. ERROR_ENVIRONMENT: this Python cannot run the guest;
 * `err` has the reason. */
int remote_boot_feed(struct remote_boot *b, const struct boot_options *options, const char *data,
    size_t len, size_t *used, struct buf *out, struct error *err);
void remote_boot_free(struct remote_boot *b);
