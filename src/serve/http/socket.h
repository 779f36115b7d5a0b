/* serve/http/socket.h: the server's side of a WebSocket (RFC 6455).
 *
 * Messages are bounded and come whole; what waits for the client is the sender's to bound, with
 * socket_unsent and `drained`. Pings find clients that are gone; the server's end closes it (1001).
 */
#pragma once

#include "base/websocket_frame.h"
#include "serve/http/upgrade.h"

enum { SOCKET_MESSAGE_MAX = 64 << 10 };
/* A subprotocol that is offered and never chosen: it carries the client's key. */
#define SOCKET_KEY_PREFIX "droste.key."

/* May do anything with the socket. */
struct socket_events {
    /* A whole message; text is UTF-8. */
    void (*message)(void *arg, bool is_text, const char *data, size_t len);
    void (*drained)(void *arg); /* nothing is unsent */
    void (*closed)(void *arg);  /* the last event: by the client, or by the server's end */
};

struct web_socket {
    struct upgrade upgrade;
    struct websocket_decoder decoder;
    struct buf message;
    const struct socket_events *events;
    void *arg;
    uint64_t heard_ns, closing_ns;
    bool has_pinged;
    bool is_closing; /* a close frame was sent */
};

/* Answers the request with a handshake, and with this subprotocol if the client offers it. False:
 * the request was refused. */
bool socket_accept(struct request *r, struct web_socket *ws, const char *protocol,
    const struct socket_events *events, void *arg);
void socket_send(struct web_socket *ws, bool is_text, const void *data, size_t len);
size_t socket_unsent(const struct web_socket *ws);
/* Nothing is read while paused. What was read before is still delivered. */
void socket_pause(struct web_socket *ws, bool is_paused);
/* No event follows. */
void socket_close(struct web_socket *ws, enum websocket_status status, const char *reason);
void socket_free(struct web_socket *ws);

/* The word after the prefix in a list of words as of Sec-WebSocket-Protocol. False: there is none,
 * or it does not fit. An empty prefix and a word compare that word alone. */
bool socket_offered(const char *list, const char *prefix, char *out, size_t size);
