/* net/rest.h: requests to a service that speaks JSON over HTTP.
 *
 * A request is tried again where that does no harm: after a connection that did not come about, and
 * after 429; an idempotent one also after a cut and after 500, 502, 503, 504 and 524. net/retry.h has
 * the pauses. The service's words go into errors on one line, bounded, and without the secret.
 */
#ifndef DROSTE_NET_REST_H
#define DROSTE_NET_REST_H

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
    const char *base_url;       /* "https://HOST/PATH": what requests' paths follow */
    const char *name;           /* of the service, for errors: "Daytona" */
    const char *key_variable;   /* where a user sets the secret: "DAYTONA_API_KEY" */
    const char *secret;         /* NULL: none */
    const char *const *headers; /* "Name: value", of every request; the secret's among them */
    size_t header_count;
    const char *ca_file;                          /* certificates to trust; NULL: the system's */
    const char *unix_path, *cert_file, *key_file; /* as in connect_options.h; not copied */
    unsigned connections;                         /* at most; 0: 64 */
    unsigned tries;                               /* at most; 0: 7 */
    size_t answer_limit; /* bytes of an answer that is no stream; 0: 16 MiB */
};

struct rest_answer {
    /* ERROR_NONE: a status below 400. ERROR_PERMISSION: 401, 402, 403; ERROR_NOT_FOUND: 404; ERROR_LOST: nobody answers, or
     * no longer; ERROR_TIMEOUT: not in time; ERROR_ENVIRONMENT: anything else, in the service's words. */
    struct error error;
    long status;              /* 0: none came */
    struct json_object *body; /* borrowed; NULL: it was no JSON */
    const char *data;         /* the answer as it came */
    size_t len;
    const char *header; /* of the one that was asked for; NULL: there is none */
};
typedef void rest_done_fn(void *arg, const struct rest_answer *answer);
/* Bytes of a good answer as they come. */
typedef void rest_piece_fn(void *arg, const char *data, size_t len);

/* All is copied. */
struct rest_ask {
    const char *method, *path; /* behind the base URL, with its query, escaped */
    struct json_object *body;  /* NULL: none, or `data` */
    const char *data;          /* a body that is no JSON, of this type */
    size_t len;
    const char *type;
    const char *const *headers; /* further ones */
    size_t header_count;
    const char *tell_header; /* the name of one of the answer's; must live as long as the request */
    bool again; /* it may be done twice: reading, deleting, what has a key or a name of its own */
    double seconds;       /* for all tries; 0: as long as it takes */
    rest_piece_fn *piece; /* NULL: the answer is told as a whole */
    rest_done_fn *done;   /* once; may do anything. Not from within rest_send */
    void *arg;
};

/* ERROR_CONFIG for a URL that is none, and for a secret that cannot be a header. */
int rest_open(
    struct loop *loop, const struct rest_options *options, struct rest **out, struct error *err);
/* Requests that are left end without `done`. NULL is fine. */
void rest_close(struct rest *r);
int rest_send(
    struct rest *r, const struct rest_ask *ask, struct rest_request **out, struct error *err);
/* Ends it without `done`. NULL is fine. */
void rest_cancel(struct rest_request *q);

/* The base URL, without a slash behind. */
const char *rest_base(const struct rest *r);
struct loop *rest_loop(const struct rest *r);
/* From now on: another value of the secret, where it is a token that is renewed; `header` is the one that has it, whole. */
int rest_renew(struct rest *r, const char *secret, const char *header, struct error *err);

#endif
