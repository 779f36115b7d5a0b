/* env/common/send_queue.h: queue of bytes and descriptors for a socket that may be full. */
#pragma once

#include <stdbool.h>
#include <sys/uio.h>

#include "base/error.h"

struct unsent;

/* All zero: empty. */
struct send_queue {
    struct unsent *first, *last; /* bytes that the guest has not taken yet */
    size_t bytes;                /* of memory that they use */
    bool is_held;                /* everything is queued, and nothing sent, until it is cleared */
};

/* Sends what the socket accepts and queues a copy of the rest. `fd` (-1: none) travels with the
 * first byte and is closed in any case. Without a socket (-1) yet, queues everything. Does not
 * report that the guest is gone. ERROR_UNSUPPORTED: the kernel accepts no descriptor at present,
 * and nothing was sent (ETOOMANYREFS in unix(7)). The caller must limit the queue's size. */
int send_queue_send(struct send_queue *box, int socket, const struct iovec *iov, int count, int fd,
    struct error *err);
/* Call when the socket is writable: sends queued bytes. True when nothing is left. */
bool send_queue_flush(struct send_queue *box, int socket);
/* True if something is queued that can be sent once the socket is writable. */
bool send_queue_waits(const struct send_queue *box);
/* True if nothing is queued and the guest has read everything that was sent. */
bool send_queue_is_clear(const struct send_queue *box, int socket);
/* Discards the queue and closes its descriptors. */
void send_queue_drop(struct send_queue *box);
