/* net/stream.h: a stream of bytes to a server and back, over a Unix socket, TCP or TLS, on our loop.
 *
 * libcurl connects and speaks TLS; what the bytes mean is the user's.
 */
#ifndef DROSTE_NET_STREAM_H
#define DROSTE_NET_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "base/error.h"
#include "base/loop.h"
#include "net/connect_options.h"

struct stream;

/* Texts are copied. */
struct stream_options {
    const char *url; /* http://HOST:PORT or https://HOST:PORT: where to, and whether with TLS */
    struct connect_options connect_options;
    const char *peer;       /* how errors name the server */
    enum error_code code;   /* of errors */
    double connect_timeout; /* seconds, TLS included; 0: libcurl's own */
    /* The head of an HTTP request that makes a stream of the connection; NULL: it is one at once. The server
     * agrees with the status 101, or with 200, as old Docker daemons do. */
    const char *upgrade;
    /* Decides instead, by the status (0: it was none) and the head, behind whose empty line the body begins. It may do
     * nothing else. NULL: the statuses above. */
    int (*agree)(void *arg, unsigned status, const char *head, struct error *err);
};

/* These run outside of libcurl and may do anything, stream_close included. */
struct stream_events {
    void (*connected)(void *arg); /* and the server has agreed */
    void (*bytes)(void *arg, const char *data, size_t len);
    /* The last event. ERROR_NONE: the server has ended it in order. */
    void (*closed)(void *arg, const struct error *why);
};

/* No event comes from within it. */
int stream_open(struct loop *loop, const struct stream_options *options,
    const struct stream_events *events, void *arg, struct stream **out, struct error *err);
/* Sends what the socket takes, once there is a connection, and keeps a copy of the rest. A connection that is
 * lost is told by `closed`, later. ERROR_MEMORY. */
int stream_send(struct stream *s, const struct iovec *iov, int count, struct error *err);
/* Bytes that wait to be sent. */
size_t stream_waiting(const struct stream *s);
/* While it is paused, nothing is read. */
void stream_pause(struct stream *s, bool paused);
/* No event follows. NULL is fine. */
void stream_close(struct stream *s);

#endif
