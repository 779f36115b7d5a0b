/* net/http.h: HTTP requests to one server over reused connections, on our loop.
 *
 * libcurl speaks (HTTP/1.1, TLS by OpenSSL, proxies from the environment); the loop waits for it.
 * Neither retries nor statuses are known here: a transfer ends well when an answer came whole.
 */
#ifndef DROSTE_NET_HTTP_H
#define DROSTE_NET_HTTP_H

#include "base/error.h"
#include "base/loop.h"
#include "net/connect_options.h"

struct http;
struct http_transfer;

/* What went wrong, in the words of whoever asks: ERROR_MODEL_CONNECT… of a model's server. */
struct http_codes {
    enum error_code connect; /* no connection came about */
    enum error_code cut;     /* it ended in the middle of an answer */
    enum error_code stall;   /* nothing came for too long */
    enum error_code reply;   /* the answer is not what HTTP promises, or too large */
};

struct http_options {
    const char *host; /* of all requests, for the look-up; in brackets if IPv6 */
    unsigned port;
    struct connect_options connect_options; /* its texts, and the next, last as long as the http */
    const char *peer;                       /* how errors name the host */
    struct http_codes codes;
    unsigned connections;   /* at most */
    double connect_timeout; /* seconds, TLS included */
    double first_timeout;   /* seconds from the end of sending to the first byte of the body;
                               0: none */
    double stall_timeout;   /* seconds without a byte, while sending or between bytes of the body;
                               0: none */
    size_t response_limit;  /* bytes of a body */
};

struct http_request {
    const char *method; /* NULL: POST */
    const char *url;
    const char *const *headers; /* "Name: value" */
    size_t header_count;
    const char *body; /* not copied: lasts until `done` or http_cancel */
    size_t body_len;
    bool
        once; /* a connection of its own: on an old one that was closed meanwhile libcurl would send it again */
};

struct http_result {
    struct error error; /* ERROR_NONE: the answer is whole, whatever its status */
    bool unsent;        /* it failed before the request can have been acted on */
    bool hopeless;   /* and would again: a certificate that is not trusted, a file that is none */
    bool unanswered; /* not a byte came back, on a connection that was an old one */
    long status;     /* 0: none came */
    double retry_after; /* seconds; 0: the server did not say */
};

/* These run outside of libcurl, so `data` and `done` may do anything, cancel and close included.
 * `head` comes once, before both, if the server answered at all; it may only look. */
struct http_handler {
    void (*head)(void *arg, struct http_transfer *transfer);
    void (*data)(void *arg, const char *data, size_t len);
    void (*done)(void *arg, const struct http_result *result);
};

int http_open(
    struct loop *loop, const struct http_options *options, struct http **out, struct error *err);
/* No transfer may be left. NULL is fine. */
void http_close(struct http *http);

/* `done` is never called from within http_send; the transfer is gone after it. */
int http_send(struct http *http, const struct http_request *request,
    const struct http_handler *handler, void *arg, struct http_transfer **out, struct error *err);
/* True if the request may have reached the server by now. */
bool http_sent(const struct http_transfer *transfer);
/* For use in `data`: the status, and whether the answer is of this type ("text/event-stream"). */
long http_status(const struct http_transfer *transfer);
bool http_is_type(const struct http_transfer *transfer, const char *type);
/* For use in `head`: a header of the answer, valid until the next look; NULL: there is none. */
const char *http_header(struct http_transfer *transfer, const char *name);
/* Ends the transfer without `done`. */
void http_cancel(struct http_transfer *transfer);

#endif
