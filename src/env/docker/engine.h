/* env/docker/engine.h: requests to a Docker daemon: the Engine API over its Unix socket, TCP or TLS.
 *
 * Podman's compatible socket answers the same requests. The version is the newest that both sides know, asked
 * once (GET /_ping). Where the daemon is, DOCKER_HOST says: unix:///PATH or tcp://HOST:PORT, with TLS where
 * DOCKER_TLS_VERIFY is set and the certificates of DOCKER_CERT_PATH (~/.docker): ca.pem, cert.pem, key.pem.
 */
#ifndef DROSTE_ENV_DOCKER_ENGINE_H
#define DROSTE_ENV_DOCKER_ENGINE_H

#include "base/error.h"
#include "base/json/json.h"
#include "base/loop.h"
#include "net/stream.h"

struct engine;
struct engine_request;

struct engine_answer {
    /* ERROR_NONE: a status below 400. ERROR_NOT_FOUND: 404; ERROR_LOST: nobody answers, or no longer;
     * ERROR_ENVIRONMENT: anything else, in the daemon's words. */
    struct error error;
    long status;
    struct json_object *body; /* borrowed; NULL: none */
};
typedef void engine_done_fn(void *arg, const struct engine_answer *answer);
/* One of the JSON objects that an answer is made of, a line each. */
typedef void engine_line_fn(void *arg, struct json_object *line);

struct engine_ask {
    const char *method, *path; /* without the version: "/containers/json" */
    struct json_object *body;  /* borrowed; NULL: none */
    double seconds;            /* for the whole answer; 0: as long as it takes */
    engine_line_fn *line;      /* NULL: the answer is one object */
    engine_done_fn *done;      /* may do anything */
    void *arg;
};

/* Where the daemon is. ERROR_CONFIG for a DOCKER_HOST that is none. Nothing is asked yet. */
int engine_open(struct loop *loop, struct engine **out, struct error *err);
/* Requests that are left end without `done`. NULL is fine. */
void engine_close(struct engine *e);
/* `done` comes later, once. */
int engine_send(
    struct engine *e, const struct engine_ask *ask, struct engine_request **out, struct error *err);
/* Ends it without `done`. NULL is fine. */
void engine_cancel(struct engine_request *r);

/* Asks with POST for a connection of its own, on which bytes go both ways once the daemon has agreed: then
 * `connected` is told, else `closed`. The path is as in engine_ask. */
int engine_hijack(struct engine *e, const char *path, const struct stream_events *events, void *arg,
    struct stream **stream, struct error *err);

/* Nothing is sent: is there a socket, that this user may use? Of another machine's daemon it is not known. What to do about it
 * otherwise. */
int engine_configured(struct error *err);

/* "unix:///var/run/docker.sock" */
const char *engine_address(const struct engine *e);
/* True where the daemon shares this machine's files. */
bool engine_is_local(const struct engine *e);

#endif
