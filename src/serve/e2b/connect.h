/* serve/e2b/connect.h: the server's side of the Connect protocol, with JSON.
 *
 * A unary call is a JSON body and a JSON answer. A stream is answered with status 200, and with
 * envelopes; the last one has the outcome.
 */
#pragma once

#include "serve/e2b/e2b.h"

enum { CONNECT_BODY_MAX = 4 << 20 }; /* a message of a client */

/* A stream to a client, which a sandbox knows for its keepalives. */
struct connect_stream {
    struct request *request; /* NULL: it has ended */
    uint64_t spoken_ns, interval_ns;
    uint64_t deadline_ns; /* the client's, which ends the stream alone; 0: none */
    bool is_plain;        /* its events have no "event" around them */
    struct connect_stream *next, **link;
};

/* The client's time limit in milliseconds; 0: none. */
uint64_t connect_timeout_ms(struct request *r);

/* Connect's name of an error, by the HTTP status that stands for it. */
const char *connect_code(unsigned status);

/* Sets the request's JSON from the one envelope of its body. False: it was refused. */
bool connect_take_message(struct request *r);
/* Begins the answer. */
void connect_open(struct connect_stream *c, struct request *r, struct e2b_sandbox *e);
/* Sends a message; takes the tree. */
void connect_push(struct connect_stream *c, struct json_object *message);
/* The same for a message that is JSON text already. */
void connect_push_text(struct connect_stream *c, const struct buf *text);
/* {"event": {NAME: EVENT}}, or {NAME: EVENT}; takes the tree. */
void connect_push_event(struct connect_stream *c, const char *name, struct json_object *event);
/* Ends it; `code` is NULL for success. */
void connect_end(struct connect_stream *c, const char *code, const char *text);
/* Ends it without an outcome. */
void connect_cut(struct connect_stream *c);
/* Its client has gone. */
void connect_leave(struct connect_stream *c);
void connect_sweep(struct e2b_sandbox *e, uint64_t now_ns);
