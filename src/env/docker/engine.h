/* env/docker/engine.h: a client of the Docker Engine API over its Unix socket, TCP or TLS.
 *
 * Podman's compatible socket works too. The API version is the newest that both sides know,
 * negotiated once (GET /_ping). DOCKER_HOST names the daemon: unix:///PATH or tcp://HOST:PORT. TLS
 * is used if DOCKER_TLS_VERIFY is set, with ca.pem, cert.pem and key.pem in DOCKER_CERT_PATH
 * (~/.docker).
 */
#pragma once

#include "base/error.h"
#include "base/json/json.h"
#include "base/loop.h"
#include "net/stream.h"

struct engine;
struct engine_request;

struct engine_answer {
    /* ERROR_NONE: a status below 400. ERROR_NOT_FOUND: 404. ERROR_LOST: no connection, or it was
     * lost. ERROR_ENVIRONMENT: any other status, with the daemon's message. */
    struct error error;
    long status;
    struct json_object *body; /* borrowed; NULL: none */
};
typedef void engine_done_fn(void *arg, const struct engine_answer *answer);
/* One JSON object of an answer that has one per line. */
typedef void engine_line_fn(void *arg, struct json_object *line);

struct engine_ask {
    const char *method, *path; /* the path without the version: "/containers/json" */
    struct json_object *body;  /* borrowed; NULL: none */
    double seconds;            /* for the whole answer; 0: unlimited */
    engine_line_fn *line;      /* NULL: the answer is one object */
    engine_done_fn *done;      /* may call any function */
    void *arg;
};

/* Reads the daemon's address; sends nothing. ERROR_CONFIG for an invalid DOCKER_HOST. */
int engine_open(struct loop *loop, struct engine **out, struct error *err);
/* Cancels pending requests without calling `done`. NULL is fine. */
void engine_close(struct engine *e);
/* `done` is called later, once. */
int engine_send(
    struct engine *e, const struct engine_ask *ask, struct engine_request **out, struct error *err);
/* Cancels it without calling `done`. NULL is fine. */
void engine_cancel(struct engine_request *r);

/* Turns a POST request into a bidirectional byte stream (hijacking). `connected` fires once the
 * daemon has agreed, otherwise `closed`. The path is as in engine_ask. */
int engine_hijack(struct engine *e, const char *path, const struct stream_events *events, void *arg,
    struct stream **stream, struct error *err);

/* Sends nothing: checks that the socket exists and this user may use it. A daemon on another
 * machine cannot be checked. The error says what to do. */
int engine_configured(struct error *err);

/* For example "unix:///var/run/docker.sock". */
const char *engine_address(const struct engine *e);
/* True if the daemon shares this machine's files. */
bool engine_is_local(const struct engine *e);
