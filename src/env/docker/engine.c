/* env/docker/engine.c: sends requests to the daemon. Until the API version is known, requests are
 * queued; the first one triggers the negotiation.
 */
#include "env/docker/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "net/rest.h"

#define DEFAULT_SOCKET "/var/run/docker.sock"
/* Engine API version 1.41: from Debian 12's Docker 20.10 to the newest that was tested. A newer
 * daemon supports it as well, until it says that it no longer does. */
#define VERSION_OLDEST 41
#define VERSION_NEWEST 51
#define PING_SECONDS   10

enum {
    CONNECTIONS = 4096,       /* each container has one that waits for its end */
    LINE_MAX_BYTES = 1 << 20, /* of an answer with an object per line */
};

struct engine_request {
    TAILQ_ENTRY(engine_request) link;
    struct engine *engine;
    char *method, *path;
    struct json_object *body;
    struct buf in;
    engine_line_fn *line;
    engine_done_fn *done;
    void *arg;
    double seconds;
    struct rest_request *sent; /* NULL while it waits for the version */
    bool telling, cancelled;   /* cancelled from within `line`: freed after it returns */
};
TAILQ_HEAD(request_list, engine_request);

struct engine {
    struct loop *loop;
    struct rest *rest;
    char *address, *url; /* the URL ends before the path */
    char *socket, *ca_file, *cert_file, *key_file;
    struct connect_options connect_options; /* points to these */
    unsigned version;                       /* 1.N; 0: not negotiated yet */
    struct engine_request *ping;
    struct request_list requests;
};

/* ---- the daemon's address ---- */

static int take_certificates(struct engine *e, struct error *err)
{
    const char *dir = getenv("DOCKER_CERT_PATH"), *home = getenv("HOME");
    cleanup_buf struct buf place = { 0 };
    if (dir && dir[0])
        buf_puts(&place, dir);
    else
        buf_printf(&place, "%s/.docker", home ? home : "");
    e->ca_file = text_printf("%s/ca.pem", buf_text(&place));
    e->cert_file = text_printf("%s/cert.pem", buf_text(&place));
    e->key_file = text_printf("%s/key.pem", buf_text(&place));
    if (!e->ca_file || !e->cert_file || !e->key_file)
        return error_memory(err);
    const struct connect_options options = { NULL, e->ca_file, e->cert_file, e->key_file };
    if (connect_options_check(&options, err) < 0)
        return error_wrap(err, "DOCKER_TLS_VERIFY is set; see DOCKER_CERT_PATH");
    return 0;
}

/* The length of the host in "HOST[:PORT][/…]", where an IPv6 address has brackets, and the port (0:
 * none). 0: it is no such text. */
static size_t engine_take_host(const char *where, unsigned *port)
{
    const char *bracket = where[0] == '[' ? strchr(where, ']') : NULL;
    size_t host = bracket ? (size_t)(bracket - where) + 1 : strcspn(where, ":/");
    size_t digits = where[host] == ':' ? strspn(where + host + 1, "0123456789") : 0;
    size_t end = host + (where[host] == ':') + digits;
    unsigned long number = digits && digits < 6 ? strtoul(where + host + 1, NULL, 10) : 0;
    *port = (unsigned)number;
    if ((where[end] != '\0' && where[end] != '/') || number > 65535 || (digits && number == 0))
        return 0;
    return host;
}

static int parse_tcp(struct engine *e, const char *address, struct error *err)
{
    const char *verify = getenv("DOCKER_TLS_VERIFY");
    const char *where = address + strlen("tcp://");
    bool tls = verify && verify[0];
    unsigned port;
    size_t n = engine_take_host(where, &port);
    if (n == 0)
        return error_set(err, ERROR_CONFIG,
            "DOCKER_HOST '%.100s' is not tcp://HOST:PORT with a port from 1 to 65535", address);
    if (port == 0)
        port = tls ? 2376 : 2375;
    e->url = text_printf("%s://%.*s:%u", tls ? "https" : "http", (int)n, where, port);
    if (!e->url)
        return error_memory(err);
    return tls ? take_certificates(e, err) : 0;
}

static int parse_address(struct engine *e, struct error *err)
{
    const char *variable = getenv("DOCKER_HOST");
    const char *address = variable && variable[0] ? variable : "unix://" DEFAULT_SOCKET;
    e->address = strdup(address);
    if (!e->address)
        return error_memory(err);
    if (strncmp(address, "tcp://", 6) == 0)
        return parse_tcp(e, address, err);
    if (strncmp(address, "unix://", 7) != 0 || address[7] != '/')
        return error_set(err, ERROR_CONFIG,
            "DOCKER_HOST '%.100s' is not an address that is supported: use unix:///PATH or "
            "tcp://HOST:PORT",
            address);
    e->socket = strdup(address + 7);
    e->url = strdup("http://docker");
    return e->socket && e->url ? 0 : error_memory(err);
}

const char *engine_address(const struct engine *e)
{
    return e->address;
}

bool engine_is_local(const struct engine *e)
{
    return e->socket != NULL;
}

int engine_open(struct loop *loop, struct engine **out, struct error *err)
{
    struct engine *e = calloc(1, sizeof *e);
    if (!e)
        return error_memory(err);
    e->loop = loop;
    TAILQ_INIT(&e->requests);
    int rc = parse_address(e, err);
    e->connect_options =
        (struct connect_options){ e->socket, e->ca_file, e->cert_file, e->key_file };
    struct rest_options options = { .base_url = e->url,
        .name = "the Docker daemon",
        .key_variable = "DOCKER_HOST",
        .ca_file = e->ca_file,
        .unix_path = e->socket,
        .cert_file = e->cert_file,
        .key_file = e->key_file,
        .connections = CONNECTIONS,
        .tries = 1 };
    if (rc == 0)
        rc = rest_open(loop, &options, &e->rest, err);
    if (rc < 0) {
        engine_close(e);
        return rc;
    }
    *out = e;
    return 0;
}

/* ---- requests ---- */

static void docker_engine_request_free(struct engine_request *r)
{
    TAILQ_REMOVE(&r->engine->requests, r, link);
    if (r->engine->ping == r)
        r->engine->ping = NULL;
    json_object_put(r->body);
    buf_free(&r->in);
    free(r->method);
    free(r->path);
    free(r);
}

void engine_cancel(struct engine_request *r)
{
    if (!r)
        return;
    rest_cancel(steal(&r->sent));
    r->cancelled = true;
    if (!r->telling)
        docker_engine_request_free(r);
}

static void addresses_free(struct engine *e)
{
    free(e->address);
    free(e->socket);
    free(e->url);
    free(e->ca_file);
    free(e->cert_file);
    free(e->key_file);
}

void engine_close(struct engine *e)
{
    struct engine_request *r;
    if (!e)
        return;
    while ((r = TAILQ_FIRST(&e->requests)))
        engine_cancel(r);
    rest_close(e->rest);
    addresses_free(e);
    free(e);
}

static void docker_engine_finish(struct engine_request *r, const struct engine_answer *answer)
{
    engine_done_fn *done = r->done;
    void *arg = r->arg;
    docker_engine_request_free(r);
    done(arg, answer);
}

/* Explains why a local socket does not answer. */
static void explain_socket(const struct engine *e, struct error *err)
{
    struct stat st;
    if (!e->socket)
        error_wrap(err, "no Docker daemon answers; see DOCKER_HOST");
    else if (stat(e->socket, &st) < 0 && errno == ENOENT)
        error_set(err, ERROR_LOST,
            "there is no Docker daemon at %.300s: install Docker and start it (systemctl start "
            "docker), or set DOCKER_HOST",
            e->address);
    else if (access(e->socket, R_OK | W_OK) < 0)
        error_set(err, ERROR_ENVIRONMENT,
            "permission to use the Docker daemon at %.300s is denied: add your user to the group "
            "docker, or use --env local",
            e->address);
    else
        error_set(err, ERROR_LOST,
            "the Docker daemon at %.300s does not answer; start it (systemctl start docker)",
            e->address);
}

int engine_configured(struct error *err)
{
    struct engine e = { 0 };
    int rc = parse_address(&e, err);
    if (rc == 0 && e.socket && access(e.socket, R_OK | W_OK) < 0) {
        explain_socket(&e, err);
        rc = -(int)err->code;
    }
    addresses_free(&e);
    return rc;
}

/* Handles the complete lines received so far. */
static void docker_engine_take_lines(struct engine_request *r)
{
    const char *newline;
    while (!r->cancelled && r->in.len > 0 && (newline = memchr(r->in.data, '\n', r->in.len))) {
        cleanup_json struct json_object *o = NULL;
        size_t len = (size_t)(newline - r->in.data);
        int rc = json_parse(r->in.data, len, &json_limits_small, &o, NULL);
        buf_consume(&r->in, len + 1);
        if (rc == 0 && json_object_is_type(o, json_type_object))
            r->line(r->arg, o);
    }
    if (r->in.len > LINE_MAX_BYTES)
        buf_clear(&r->in); /* no valid line is so long */
}

static void docker_engine_on_piece(void *arg, const char *data, size_t len)
{
    struct engine_request *r = arg;
    buf_append(&r->in, data, len);
    r->telling = true;
    docker_engine_take_lines(r);
    r->telling = false;
    if (r->cancelled)
        docker_engine_request_free(r);
}

/* The daemon's own message, if it has answered. */
static void docker_engine_explain(const struct engine_request *r, struct engine_answer *answer)
{
    const char *message = json_get_string(answer->body, "message", NULL);
    struct error *err = &answer->error;
    if (answer->status >= 400 && message)
        error_set(
            err, answer->status == 404 ? ERROR_NOT_FOUND : ERROR_ENVIRONMENT, "%.200s", message);
    else if (err->code == ERROR_TIMEOUT)
        error_set(err, ERROR_LOST, "the Docker daemon at %.80s did not answer within %g s",
            r->engine->address, r->seconds);
    else if (answer->status == 0)
        explain_socket(r->engine, err);
}

static void docker_engine_on_done(void *arg, const struct rest_answer *reply)
{
    struct engine_request *r = arg;
    struct engine *e = r->engine;
    struct engine_answer answer = { reply->error, reply->status, reply->body };
    r->sent = NULL;
    if (answer.error.code != ERROR_NONE)
        docker_engine_explain(r, &answer);
    if (r == e->ping && reply->header && strncmp(reply->header, "1.", 2) == 0)
        e->version = (unsigned)strtoul(reply->header + 2, NULL, 10);
    docker_engine_finish(r, &answer);
}

static int docker_engine_transmit(struct engine_request *r, struct error *err)
{
    struct engine *e = r->engine;
    cleanup_buf struct buf path = { 0 };
    if (r != e->ping)
        buf_printf(&path, "/v1.%u", e->version);
    buf_puts(&path, r->path);
    if (buf_failed(&path))
        return error_memory(err);
    struct rest_ask ask = { .method = r->method,
        .path = buf_text(&path),
        .body = r->body,
        .type = "application/json",
        .tell_header = "Api-Version",
        .again = true, /* reuses connections; there is only one try in any case */
        .seconds = r->seconds,
        .piece = r->line ? docker_engine_on_piece : NULL,
        .done = docker_engine_on_done,
        .arg = r };
    return rest_send(e->rest, &ask, &r->sent, err);
}

static struct engine_request *docker_engine_request_new(
    struct engine *e, const struct engine_ask *ask)
{
    struct engine_request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    *r = (struct engine_request){ .engine = e,
        .method = strdup(ask->method),
        .path = strdup(ask->path),
        .body = json_object_get(ask->body),
        .line = ask->line,
        .done = ask->done,
        .arg = ask->arg,
        .seconds = ask->seconds };
    TAILQ_INSERT_TAIL(&e->requests, r, link);
    if (!r->method || !r->path) {
        docker_engine_request_free(r);
        return NULL;
    }
    return r;
}

/* ---- the version ---- */

/* Sends the queued requests, or fails all of them with this answer. */
static void docker_engine_pinged(void *arg, const struct engine_answer *answer)
{
    struct engine *e = arg;
    struct engine_answer refused = *answer;
    refused.body = NULL;
    if (answer->error.code == ERROR_NONE && e->version < VERSION_OLDEST) {
        error_set(&refused.error, ERROR_ENVIRONMENT,
            "the daemon at %.80s supports the Engine API up to 1.%u, but 1.%u is needed: use "
            "Docker 20.10 or newer",
            e->address, e->version, VERSION_OLDEST);
        e->version = 0;
    }
    if (e->version > VERSION_NEWEST)
        e->version = VERSION_NEWEST;
    struct engine_request *r;
    for (;;) {
        TAILQ_FOREACH(r, &e->requests, link)
        if (!r->sent)
            break;
        if (!r)
            return;
        if (refused.error.code == ERROR_NONE && docker_engine_transmit(r, &refused.error) == 0)
            continue;
        docker_engine_finish(r, &refused);
    }
}

static int docker_engine_ping(struct engine *e, struct error *err)
{
    struct engine_ask ask = { .method = "GET",
        .path = "/_ping",
        .seconds = PING_SECONDS,
        .done = docker_engine_pinged,
        .arg = e };
    e->ping = docker_engine_request_new(e, &ask);
    if (!e->ping)
        return error_memory(err);
    int rc = docker_engine_transmit(e->ping, err);
    if (rc < 0)
        docker_engine_request_free(e->ping);
    return rc;
}

int engine_send(
    struct engine *e, const struct engine_ask *ask, struct engine_request **out, struct error *err)
{
    int rc = 0;
    struct engine_request *r = docker_engine_request_new(e, ask);
    if (!r)
        return error_memory(err);
    if (e->version > 0)
        rc = docker_engine_transmit(r, err);
    else if (!e->ping)
        rc = docker_engine_ping(e, err);
    if (rc < 0) {
        docker_engine_request_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

int engine_hijack(struct engine *e, const char *path, const struct stream_events *events, void *arg,
    struct stream **stream, struct error *err)
{
    cleanup_buf struct buf head = { 0 };
    buf_printf(&head,
        "POST /v1.%u%s HTTP/1.1\r\nHost: docker\r\nUser-Agent: droste\r\nConnection: Upgrade\r\n"
        "Upgrade: tcp\r\nContent-Length: 0\r\n\r\n",
        e->version, path);
    if (buf_failed(&head))
        return error_memory(err);
    struct stream_options options = { .url = e->url,
        .connect_options = e->connect_options,
        .peer = e->address,
        .code = ERROR_LOST,
        .connect_timeout = PING_SECONDS,
        .upgrade = buf_text(&head) };
    return stream_open(e->loop, &options, events, arg, stream, err);
}
