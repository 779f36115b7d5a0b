/* env/outbox.h: what goes to a guest over a socket that may be full, with descriptors among it. */
#ifndef DROSTE_ENV_OUTBOX_H
#define DROSTE_ENV_OUTBOX_H

#include <stdbool.h>
#include <sys/uio.h>

#include "base/error.h"

struct unsent;

/* All zero: empty. */
struct outbox {
    struct unsent *first, *last; /* bytes that the guest has not taken yet */
    size_t bytes;                /* of memory that they take */
};

/* Sends at once what the socket takes, and keeps the rest, copied. `fd` (-1: none) goes with the first byte, and
 * is closed in any case. That the guest is gone is not said here. ERROR_UNSUPPORTED: the kernel takes no descriptor
 * now, and nothing was sent (ETOOMANYREFS in unix(7)). How much waits is for the caller to bound. */
int outbox_send(
    struct outbox *box, int socket, const struct iovec *iov, int count, int fd, struct error *err);
/* When the socket can be written to: sends what waits. True when nothing is left. */
bool outbox_flush(struct outbox *box, int socket);
bool outbox_waits(const struct outbox *box);
/* Nothing waits, and the guest has read all that the socket has taken. */
bool outbox_is_clear(const struct outbox *box, int socket);
/* Forgets what waits, and closes its descriptors. */
void outbox_drop(struct outbox *box);

#endif
