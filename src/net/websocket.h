/* net/websocket.h: a WebSocket to a server (RFC 6455), over net/stream, on our loop. No extensions
 * and no subprotocols are offered, and an answer that has some is refused.
 *
 * Why not a library: Debian 12's libcurl (7.88) is built without WebSockets, and libwebsockets
 * (1.7 MB, with an event loop of its own) serves what 600 lines over our own streams do.
 */
#ifndef DROSTE_NET_WEBSOCKET_H
#define DROSTE_NET_WEBSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "base/error.h"
#include "base/loop.h"
#include "net/connect_options.h"

struct websocket;

/* Texts are copied. */
struct websocket_options {
    const char *url; /* http://HOST[:PORT]/PATH[?QUERY], or https */
    struct connect_options connect_options;
    const char *peer;           /* how errors name the server */
    enum error_code code;       /* of errors of the connection */
    double connect_timeout;     /* seconds, TLS included; 0: libcurl's own */
    const char *const *headers; /* "Name: value", of the request */
    size_t header_count;
    size_t message_max; /* bytes of a message of the server's */
};

/* How it ended. */
struct websocket_end {
    unsigned http;      /* the HTTP status with which the server has refused it; 0: it did not */
    unsigned status;    /* of the server's close frame; 0: none came, 1005: one without a status */
    const char *reason; /* its words, UTF-8 that ends with a zero, valid within the event */
    struct error error; /* ERROR_NONE: the server has closed it in order */
};

/* These may do anything, websocket_close included. */
struct websocket_events {
    void (*connected)(void *arg);
    /* Bytes of a binary message, in pieces of any size. */
    void (*bytes)(void *arg, const char *data, size_t len);
    /* A text message, whole; UTF-8. */
    void (*text)(void *arg, const char *data, size_t len);
    /* The last event. */
    void (*closed)(void *arg, const struct websocket_end *end);
};

/* No event comes from within it. */
int websocket_open(struct loop *loop, const struct websocket_options *options,
    const struct websocket_events *events, void *arg, struct websocket **out, struct error *err);
/* Sends one binary message; what the connection does not take now waits. ERROR_MEMORY. */
int websocket_send(struct websocket *ws, const struct iovec *iov, int count, struct error *err);
/* Asks the server to show that it is there; websocket_heard tells. */
void websocket_ping(struct websocket *ws);
/* Since the last call something came, of whatever kind. */
bool websocket_heard(struct websocket *ws);
/* Bytes that wait to be sent. */
size_t websocket_waiting(const struct websocket *ws);
/* While it is paused, nothing is read. */
void websocket_pause(struct websocket *ws, bool paused);
/* Says goodbye, and does not wait for an answer. No event follows. NULL is fine. */
void websocket_close(struct websocket *ws);

#endif
