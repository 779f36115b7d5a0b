/* net/connect.h: remote procedure calls with the Connect protocol (connectrpc.com/docs/protocol),
 * over HTTP/1.1.
 *
 * Two kinds of calls: one message in each direction, and one message answered by a stream. A stream
 * consists of envelopes, each with five bytes before its message; the last one is JSON and contains
 * the outcome, whatever the HTTP status was. Messages are protocol buffers (net/protobuf.h) without
 * compression.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"
#include "net/rest.h"

enum connect_code {
    CONNECT_OK,
    CONNECT_CUT, /* no code: the service did not answer, or the connection was cut */
    CONNECT_CANCELED,
    CONNECT_UNKNOWN,
    CONNECT_INVALID_ARGUMENT,
    CONNECT_DEADLINE_EXCEEDED,
    CONNECT_NOT_FOUND,
    CONNECT_ALREADY_EXISTS,
    CONNECT_PERMISSION_DENIED,
    CONNECT_RESOURCE_EXHAUSTED,
    CONNECT_FAILED_PRECONDITION,
    CONNECT_ABORTED,
    CONNECT_OUT_OF_RANGE,
    CONNECT_UNIMPLEMENTED,
    CONNECT_INTERNAL,
    CONNECT_UNAVAILABLE,
    CONNECT_DATA_LOSS,
    CONNECT_UNAUTHENTICATED,
};

enum { CONNECT_MESSAGE_MAX = 4 << 20 };

struct connect_result {
    enum connect_code code;
    struct error error; /* ERROR_NONE with CONNECT_OK; otherwise a message for users */
};

struct connect_call;
struct connect_handler {
    /* A message of a stream; NULL if there is none. May end the call. */
    void (*message)(void *arg, const char *data, size_t len);
    /* Called once, at the end; not from within the functions below. May do anything. */
    void (*done)(void *arg, const struct connect_result *result);
};

/* The header of all requests to the service, for rest_options. */
#define CONNECT_HEADER "Connect-Protocol-Version: 1"

/* Sends one message (copied); the one in return is ignored. `again`: may be repeated. `seconds`:
 * for all tries. */
int connect_send(struct rest *service, const char *path, const struct buf *message, bool again,
    double seconds, const struct connect_handler *handler, void *arg, struct connect_call **out,
    struct error *err);
/* Sends one message and receives a stream, without a time limit. */
int connect_stream(struct rest *service, const char *path, const struct buf *message,
    const struct connect_handler *handler, void *arg, struct connect_call **out, struct error *err);
/* Ends the call without `done`. NULL is fine. */
void connect_cancel(struct connect_call *call);

/* Decodes the envelopes of a stream, in pieces of any size. */
struct connect_decoder {
    struct buf in;                /* the incomplete envelope */
    bool ended;                   /* the last envelope has arrived */
    struct connect_result result; /* its content */
};

/* Returns 0, 1 if `message` asked to stop, or ERROR_PROTOCOL, after which the decoder is
 * unusable. */
int connect_feed(struct connect_decoder *d, const char *data, size_t len,
    bool (*message)(void *arg, const char *data, size_t len), void *arg, struct error *err);
