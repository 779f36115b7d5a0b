/* net/websocket.h: a WebSocket client (RFC 6455) over net/stream, on the loop. It offers neither
 * extensions nor subprotocols, and refuses a response that selects any.
 *
 * Why not a library: Debian 12's libcurl (7.88) is built without WebSockets, and libwebsockets (1.7
 * MB, with an event loop of its own) would replace 600 lines on top of our own streams.
 */
#pragma once

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
    const char *peer;           /* the server's name in errors */
    enum error_code code;       /* of connection errors */
    double connect_timeout;     /* seconds, including TLS; 0: libcurl's default */
    const char *const *headers; /* "Name: value", sent with the request */
    size_t header_count;
    size_t message_max; /* bytes of a message from the server */
};

/* How the connection ended. */
struct websocket_end {
    unsigned http;      /* the HTTP status of the server's refusal; 0: it did not refuse */
    unsigned status;    /* of the server's close frame; 0: none, 1005: one without a status */
    const char *reason; /* its reason, NUL-terminated UTF-8, valid during the event */
    struct error error; /* ERROR_NONE: the server closed it in an orderly way */
};

/* May do anything, including websocket_close. */
struct websocket_events {
    void (*connected)(void *arg);
    /* Part of a binary message, in pieces of any size. */
    void (*bytes)(void *arg, const char *data, size_t len);
    /* A complete text message in UTF-8. */
    void (*text)(void *arg, const char *data, size_t len);
    /* The last event. */
    void (*closed)(void *arg, const struct websocket_end *end);
};

/* Causes no event itself. */
int websocket_open(struct loop *loop, const struct websocket_options *options,
    const struct websocket_events *events, void *arg, struct websocket **out, struct error *err);
/* Sends one binary message; queues what the connection does not accept now. ERROR_MEMORY. */
int websocket_send(struct websocket *ws, const struct iovec *iov, int count, struct error *err);
/* Sends a ping; websocket_heard reveals a response. */
void websocket_ping(struct websocket *ws);
/* Whether anything has arrived since the last call. */
bool websocket_heard(struct websocket *ws);
/* Bytes waiting to be sent. */
size_t websocket_waiting(const struct websocket *ws);
/* Nothing is read while paused. */
void websocket_pause(struct websocket *ws, bool paused);
/* Sends a close frame and does not wait for a response. No event follows. NULL is fine. */
void websocket_close(struct websocket *ws);
