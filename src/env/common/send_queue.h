/* env/common/send_queue.h: what goes to a guest over a socket that may be full, with descriptors among it. */
#ifndef DROSTE_ENV_COMMON_SEND_QUEUE_H
#define DROSTE_ENV_COMMON_SEND_QUEUE_H

#include <stdbool.h>
#include <sys/uio.h>

#include "base/error.h"

struct unsent;

/* All zero: empty. */
struct send_queue {
    struct unsent *first, *last; /* bytes that the guest has not taken yet */
    size_t bytes;                /* of memory that they take */
};

/* Sends at once what the socket takes, and keeps the rest, copied. `fd` (-1: none) goes with the first byte, and
 * is closed in any case. That the guest is gone is not said here. ERROR_UNSUPPORTED: the kernel takes no descriptor
 * now, and nothing was sent (ETOOMANYREFS in unix(7)). How much waits is for the caller to bound. */
int send_queue_send(struct send_queue *box, int socket, const struct iovec *iov, int count, int fd,
    struct error *err);
/* When the socket can be written to: sends what waits. True when nothing is left. */
bool send_queue_flush(struct send_queue *box, int socket);
bool send_queue_waits(const struct send_queue *box);
/* Nothing waits, and the guest has read all that the socket has taken. */
bool send_queue_is_clear(const struct send_queue *box, int socket);
/* Forgets what waits, and closes its descriptors. */
void send_queue_drop(struct send_queue *box);

#endif
