/* net/sockets.h: libcurl's sockets on our loop.
 *
 * libcurl says of each transfer anew which socket it waits for, and that it no longer does. A
 * connection is used for many transfers, and to leave and enter the kernel's list of watched
 * descriptors for each cost more than the answer's bytes. So a socket stays watched, in the
 * background, until libcurl closes it.
 */
#ifndef DROSTE_NET_SOCKETS_H
#define DROSTE_NET_SOCKETS_H

#include "base/loop.h"

struct sockets;

/* The socket is ready for `events`, as curl_multi_socket_action has them: a set of CURL_CSELECT_IN, _OUT and _ERR. */
typedef void sockets_fn(void *arg, int fd, int events);

/* NULL without memory. */
struct sockets *sockets_new(struct loop *loop, sockets_fn *fn, void *arg);
/* No socket may be open any more. NULL is fine. */
void sockets_free(struct sockets *s);

/* From now on fn hears of what libcurl asks for (CURL_POLL_IN, _OUT, _INOUT), until the next call; of nothing after
 * CURL_POLL_REMOVE. -1 without memory. */
int sockets_want(struct sockets *s, int fd, int what);
/* Must come before fd is closed. */
void sockets_forget(struct sockets *s, int fd);

#endif
