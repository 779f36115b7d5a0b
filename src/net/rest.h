/* net/rest.h: requests to a JSON service over HTTP.
 *
 * A request is retried if that is harmless: after a failed connection and after 429; an idempotent
 * one also after a cut connection and after 500, 502, 503, 504 and 524. net/retry.h determines the
 * pauses. The service's messages appear in errors on one line, bounded, and without the secret.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/json/json.h"
#include "base/loop.h"
#include "net/connect_options.h"

struct rest;
struct rest_request;

/* Texts are copied. */
struct rest_options {
    const char *base_url;       /* "https://HOST/PATH", to which requests' paths are appended */
    const char *name;           /* the service's name in errors: "Daytona" */
    const char *key_variable;   /* the variable in which users set the secret: "DAYTONA_API_KEY" */
    const char *secret;         /* NULL: none */
    const char *const *headers; /* "Name: value", sent with every request; including the secret's */
    size_t header_count;
    const char *ca_file;                          /* certificates to trust; NULL: the system's */
    const char *unix_path, *cert_file, *key_file; /* as in connect_options.h; not copied */
    unsigned connections;                         /* maximum; 0: 64 */
    unsigned tries;                               /* maximum; 0: 7 */
    size_t answer_limit; /* bytes of a response that is not streamed; 0: 16 MiB */
};

struct rest_answer {
    /* ERROR_NONE: a status below 400. ERROR_PERMISSION: 401, 402, 403; ERROR_NOT_FOUND: 404;
     * ERROR_LOST: no response, or a cut one; ERROR_TIMEOUT: too late; ERROR_ENVIRONMENT:
     * anything else, with the service's message. */
    struct error error;
    long status;              /* 0: no response */
    struct json_object *body; /* borrowed; NULL: not JSON */
    const char *data;         /* the raw response */
    size_t len;
    const char *header; /* the requested header; NULL if absent */
};
typedef void rest_done_fn(void *arg, const struct rest_answer *answer);
/* Receives pieces of a successful response. */
typedef void rest_piece_fn(void *arg, const char *data, size_t len);

/* Everything is copied. */
struct rest_ask {
    const char *method, *path; /* appended to the base URL, with the query, escaped */
    struct json_object *body;  /* NULL: none, or `data` */
    const char *data;          /* a body that is not JSON, of this type */
    size_t len;
    const char *type;
    const char *const *headers; /* additional ones */
    size_t header_count;
    const char *tell_header; /* a response header to report; must live as long as the request */
    /* may be repeated: reading, deleting, or requests with a key or name of their own */
    bool again;
    double seconds;       /* for all tries; 0: no limit */
    rest_piece_fn *piece; /* NULL: the response is reported as a whole */
    rest_done_fn *done;   /* called once; may do anything. Not called from within rest_send */
    void *arg;
};

/* ERROR_CONFIG for an invalid URL, or a secret that cannot be a header. */
int rest_open(
    struct loop *loop, const struct rest_options *options, struct rest **out, struct error *err);
/* Ends open requests without `done`. NULL is fine. */
void rest_close(struct rest *r);
int rest_send(
    struct rest *r, const struct rest_ask *ask, struct rest_request **out, struct error *err);
/* Ends the request without `done`. NULL is fine. */
void rest_cancel(struct rest_request *q);

/* The base URL, without a trailing slash. */
const char *rest_base(const struct rest *r);
struct loop *rest_loop(const struct rest *r);
/* Replaces the secret by a renewed token; `header` is the complete header with it. */
int rest_renew(struct rest *r, const char *secret, const char *header, struct error *err);
