/* net/connect.h: remote procedures by the Connect protocol (connectrpc.com/docs/protocol), over HTTP/1.1.
 *
 * Two kinds: one message each way, and one message there and a stream of them back. Such a stream is a row of
 * envelopes, five bytes and a message; its last one is JSON and says how it ended, whatever the HTTP status was. Messages
 * are protocol buffers (net/protobuf.h), and are not compressed.
 */
#ifndef DROSTE_NET_CONNECT_H
#define DROSTE_NET_CONNECT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"
#include "net/rest.h"

enum connect_code {
    CONNECT_OK,
    CONNECT_CUT, /* no code: nobody answered, or no longer */
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

enum { CONNECT_MESSAGE_MAX = 4 << 20, CONNECT_ENVELOPE = 5 };

struct connect_result {
    enum connect_code code;
    struct error error; /* ERROR_NONE with CONNECT_OK; else what to tell people */
};

struct connect_call;
struct connect_handler {
    /* A message of a stream; NULL where it is none. May end the call. */
    void (*message)(void *arg, const char *data, size_t len);
    /* Once, the last; not from within the functions below. May do anything. */
    void (*done)(void *arg, const struct connect_result *result);
};

/* The header that all requests of the service have, for rest_options. */
#define CONNECT_HEADER "Connect-Protocol-Version: 1"

/* One message there (copied) and one back, which is passed over. `again`: it may be done twice. `seconds`: for all of it. */
int connect_send(struct rest *service, const char *path, const struct buf *message, bool again,
    double seconds, const struct connect_handler *handler, void *arg, struct connect_call **out,
    struct error *err);
/* One message there, many back, as long as it takes. */
int connect_stream(struct rest *service, const char *path, const struct buf *message,
    const struct connect_handler *handler, void *arg, struct connect_call **out, struct error *err);
/* Ends it without `done`. NULL is fine. */
void connect_cancel(struct connect_call *call);

/* The envelopes of a stream, in pieces of any size. */
struct connect_decoder {
    struct buf in;                /* of one that is not whole */
    bool ended;                   /* the last envelope has come */
    struct connect_result result; /* which says this */
};

/* Returns 0, 1 where `message` wants no more, or ERROR_PROTOCOL, after which nothing more comes of it. */
int connect_feed(struct connect_decoder *d, const char *data, size_t len,
    bool (*message)(void *arg, const char *data, size_t len), void *arg, struct error *err);

#endif
