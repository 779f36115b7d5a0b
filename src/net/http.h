/* net/http.h: HTTP requests to one server over reused connections, on the loop.
 *
 * libcurl implements HTTP/1.1, TLS (through OpenSSL) and proxies from the environment; the loop
 * waits for its sockets. Retries and the meaning of statuses belong to the caller: a transfer
 * succeeds if the response is complete.
 */
#pragma once

#include "base/error.h"
#include "base/loop.h"
#include "net/connect_options.h"

struct http;
struct http_transfer;

/* The caller's error codes, such as ERROR_MODEL_CONNECT… for a model's server. */
struct http_codes {
    enum error_code connect; /* the connection failed */
    enum error_code cut;     /* it was cut during the response */
    enum error_code stall;   /* nothing arrived for too long */
    enum error_code reply;   /* the response is malformed or too large */
};

struct http_options {
    const char *host; /* of all requests, for name resolution; in brackets if IPv6 */
    unsigned port;
    struct connect_options connect_options; /* these texts, and the next, must outlive the http */
    const char *peer;                       /* the host's name in errors */
    struct http_codes codes;
    unsigned connections;   /* maximum */
    double connect_timeout; /* seconds, including TLS */
    /* seconds from the end of sending to the first byte of the body; 0: none */
    double first_timeout;
    /* seconds without a byte, while sending or receiving the body; 0: none */
    double stall_timeout;
    size_t response_limit; /* bytes of a body */
};

struct http_request {
    const char *method; /* NULL: POST */
    const char *url;
    const char *const *headers; /* "Name: value" */
    size_t header_count;
    const char *body; /* not copied: must last until `done` or http_cancel */
    size_t body_len;
    bool once; /* on a new connection: libcurl would repeat it if a reused one was closed */
};

struct http_result {
    struct error error; /* ERROR_NONE: the response is complete, whatever its status */
    bool unsent;        /* it failed before the server can have acted on the request */
    bool hopeless;   /* a repetition would also fail: an untrusted certificate, an invalid file */
    bool unanswered; /* no response at all, on a reused connection */
    long status;     /* 0: none came */
    double retry_after; /* seconds; 0: not requested */
};

/* Called outside of libcurl, so `data` and `done` may do anything, including cancelling and
 * closing. `head` comes once before both, if the server responded, and may only inspect the
 * response. */
struct http_handler {
    void (*head)(void *arg, struct http_transfer *transfer);
    void (*data)(void *arg, const char *data, size_t len);
    void (*done)(void *arg, const struct http_result *result);
};

int http_open(
    struct loop *loop, const struct http_options *options, struct http **out, struct error *err);
/* All transfers must have ended. NULL is fine. */
void http_close(struct http *http);

/* Never calls `done` itself; the transfer is freed after `done`. */
int http_send(struct http *http, const struct http_request *request,
    const struct http_handler *handler, void *arg, struct http_transfer **out, struct error *err);
/* True if the request may have reached the server. */
bool http_sent(const struct http_transfer *transfer);
/* For `data`: the status, and whether the response has this type ("text/event-stream"). */
long http_status(const struct http_transfer *transfer);
bool http_is_type(const struct http_transfer *transfer, const char *type);
/* For `head`: a response header, valid until the next call; NULL if absent. */
const char *http_header(struct http_transfer *transfer, const char *name);
/* Stops reading the response, and continues. A transfer that is paused does not stall. */
void http_pause(struct http_transfer *transfer, bool on);
/* Ends the transfer without `done`. */
void http_cancel(struct http_transfer *transfer);
