/* net/stream.h: a byte stream to a server over a Unix socket, TCP or TLS, on the loop.
 *
 * libcurl connects and implements TLS; the user defines the protocol.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "base/error.h"
#include "base/loop.h"
#include "net/connect_options.h"

struct stream;

/* Texts are copied. */
struct stream_options {
    const char *url; /* http://HOST:PORT or https://HOST:PORT */
    struct connect_options connect_options;
    const char *peer;       /* the server's name in errors */
    enum error_code code;   /* of errors */
    double connect_timeout; /* seconds, including TLS; 0: libcurl's default */
    /* The head of an HTTP request that upgrades the connection; NULL: it is a stream at once.
     * The server accepts with status 101, or 200, as old Docker daemons do. */
    const char *upgrade;
    /* Decides instead, from the status (0: malformed) and the head, after whose empty line the
     * body begins. It may do nothing else. NULL: the statuses above. */
    int (*agree)(void *arg, unsigned status, const char *head, struct error *err);
};

/* Called outside of libcurl; may do anything, including stream_close. */
struct stream_events {
    void (*connected)(void *arg); /* and the server has accepted */
    void (*bytes)(void *arg, const char *data, size_t len);
    /* The last event. ERROR_NONE: the server closed the stream in an orderly way. */
    void (*closed)(void *arg, const struct error *why);
};

/* Causes no event itself. */
int stream_open(struct loop *loop, const struct stream_options *options,
    const struct stream_events *events, void *arg, struct stream **out, struct error *err);
/* Sends what the socket accepts, once connected, and copies the rest. `closed` reports a lost
 * connection later. ERROR_MEMORY. */
int stream_send(struct stream *s, const struct iovec *iov, int count, struct error *err);
/* Bytes waiting to be sent. */
size_t stream_waiting(const struct stream *s);
/* Nothing is read while paused. */
void stream_pause(struct stream *s, bool paused);
/* No event follows. NULL is fine. */
void stream_close(struct stream *s);
