/* net/sockets.h: watches libcurl's sockets on the loop.
 *
 * libcurl announces for each transfer which socket it waits for, and when it no longer does.
 * Connections are reused, and removing a descriptor from epoll and adding it again for each
 * transfer cost more than reading the response. So a socket stays watched, in the background, until
 * libcurl closes it.
 */
#pragma once

#include "base/loop.h"

struct sockets;

/* The socket is ready; `events` is for curl_multi_socket_action: a set of CURL_CSELECT_IN, _OUT
 * and _ERR. */
typedef void sockets_fn(void *arg, int fd, int events);

/* NULL without memory. */
struct sockets *sockets_new(struct loop *loop, sockets_fn *fn, void *arg);
/* All sockets must have been closed. NULL is fine. */
void sockets_free(struct sockets *s);

/* Sets the events that fn receives (CURL_POLL_IN, _OUT, _INOUT), until the next call; none after
 * CURL_POLL_REMOVE. -1 without memory. */
int sockets_want(struct sockets *s, int fd, int what);
/* Must be called before fd is closed. */
void sockets_forget(struct sockets *s, int fd);
