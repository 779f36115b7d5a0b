/* env/docker/engine.c: see engine.h. Until the version is known, requests wait in a list; the first of
 * them asks for it. */
#include "env/docker/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "net/http.h"

#define DEFAULT_SOCKET "/var/run/docker.sock"
/* The Engine API that this was written for, from Debian 12's Docker 20.10 to the newest that was tried; a
 * daemon that is newer speaks it too, until it says that it no longer does. */
#define VERSION_OLDEST 41
#define VERSION_NEWEST 51
#define PING_SECONDS   10

enum {
    CONNECTIONS = 4096, /* each container has one that waits for its end */
    ANSWER_MAX = 16 << 20,
    LINE_MAX_BYTES = 1 << 20, /* of an answer in lines */
};

struct engine_request {
    TAILQ_ENTRY(engine_request) link;
    struct engine *engine;
    char *method, *path;
    struct buf body, in;
    engine_line_fn *line;
    engine_done_fn *done;
    void *arg;
    struct timer *deadline; /* NULL: none */
    double seconds;
    struct http_transfer *transfer; /* NULL while it waits for the version */
    bool telling, cancelled;        /* cancelled from within `line`: then it is freed behind it */
};
TAILQ_HEAD(request_list, engine_request);

struct engine {
    struct loop *loop;
    struct http *http;
    char *address, *url; /* the URL ends before the path */
    char *socket, *ca_file, *cert_file, *key_file;
    struct connect_options connect_options; /* of these */
    unsigned version;                       /* 1.N; 0: not known yet */
    struct engine_request *ping;
    struct request_list requests;
};

/* ---- where the daemon is ---- */

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
    const char *files[] = { e->ca_file, e->cert_file, e->key_file };
    for (size_t i = 0; i < array_length(files); i++)
        if (access(files[i], R_OK) < 0)
            return error_set_errno(err, ERROR_CONFIG,
                "DOCKER_TLS_VERIFY is set, but %.120s cannot be read; see DOCKER_CERT_PATH",
                files[i]);
    return 0;
}

static int parse_tcp(
    struct engine *e, const char *address, char **host, unsigned *port, struct error *err)
{
    const char *verify = getenv("DOCKER_TLS_VERIFY");
    const char *where = address + strlen("tcp://");
    const char *colon = strrchr(where, ':');
    size_t n = strcspn(where, "/");
    bool tls = verify && verify[0];
    if (colon && (size_t)(colon - where) < n && strspn(colon + 1, "0123456789") > 0)
        *port = (unsigned)strtoul(colon + 1, NULL, 10);
    else
        colon = NULL;
    if (*port == 0)
        *port = tls ? 2376 : 2375;
    *host = text_copy(where, colon ? (size_t)(colon - where) : n);
    if (!*host)
        return error_memory(err);
    if (!(*host)[0] || *port > 65535)
        return error_set(err, ERROR_CONFIG, "DOCKER_HOST '%.100s' names no host", address);
    e->url = text_printf("%s://%s:%u", tls ? "https" : "http", *host, *port);
    if (!e->url)
        return error_memory(err);
    return tls ? take_certificates(e, err) : 0;
}

static int parse_address(struct engine *e, char **host, unsigned *port, struct error *err)
{
    const char *given = getenv("DOCKER_HOST");
    const char *address = given && given[0] ? given : "unix://" DEFAULT_SOCKET;
    e->address = strdup(address);
    if (!e->address)
        return error_memory(err);
    if (strncmp(address, "tcp://", 6) == 0)
        return parse_tcp(e, address, host, port, err);
    if (strncmp(address, "unix://", 7) != 0 || address[7] != '/')
        return error_set(err, ERROR_CONFIG,
            "DOCKER_HOST '%.100s' is neither unix:///PATH nor tcp://HOST:PORT", address);
    e->socket = strdup(address + 7);
    e->url = strdup("http://docker");
    *host = strdup("docker");
    return e->socket && e->url && *host ? 0 : error_memory(err);
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
    cleanup_free char *host = NULL;
    unsigned port = 0;
    struct engine *e = calloc(1, sizeof *e);
    if (!e)
        return error_memory(err);
    e->loop = loop;
    TAILQ_INIT(&e->requests);
    int rc = parse_address(e, &host, &port, err);
    e->connect_options =
        (struct connect_options){ e->socket, e->ca_file, e->cert_file, e->key_file };
    struct http_options options = { .host = host,
        .port = port,
        .connect_options = e->connect_options,
        .peer = e->address,
        .codes = { ERROR_LOST, ERROR_LOST, ERROR_LOST, ERROR_ENVIRONMENT },
        .connections = CONNECTIONS,
        .connect_timeout = PING_SECONDS,
        .response_limit = ANSWER_MAX };
    if (rc == 0)
        rc = http_open(loop, &options, &e->http, err);
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
    timer_free(r->deadline);
    buf_free(&r->body);
    buf_free(&r->in);
    free(r->method);
    free(r->path);
    free(r);
}

void engine_cancel(struct engine_request *r)
{
    if (!r)
        return;
    if (r->transfer)
        http_cancel(steal(&r->transfer));
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
    http_close(e->http);
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

/* Why nobody answers at a socket of this machine. */
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
    cleanup_free char *host = NULL;
    unsigned port = 0;
    int rc = parse_address(&e, &host, &port, err);
    if (rc == 0 && e.socket && access(e.socket, R_OK | W_OK) < 0) {
        explain_socket(&e, err);
        rc = -(int)err->code;
    }
    addresses_free(&e);
    return rc;
}

/* What a status from 400 on means, in the daemon's words. */
static void docker_engine_explain_status(
    long status, struct json_object *body, const struct buf *in, struct error *err)
{
    const char *message = json_get_string(body, "message", NULL);
    enum error_code code = status == 404 ? ERROR_NOT_FOUND : ERROR_ENVIRONMENT;
    error_set(err, code, "%.200s",
        message       ? message
        : in->len > 0 ? buf_text(in)
                      : "it does not say why");
}

static void docker_engine_on_head(void *arg, struct http_transfer *transfer)
{
    struct engine_request *r = arg;
    struct engine *e = r->engine;
    const char *version = http_header(transfer, "Api-Version");
    if (r == e->ping && version && strncmp(version, "1.", 2) == 0)
        e->version = (unsigned)strtoul(version + 2, NULL, 10);
}

/* The whole lines that are there. */
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
        buf_clear(&r->in); /* no line of a daemon's is so long */
}

static void docker_engine_on_data(void *arg, const char *data, size_t len)
{
    struct engine_request *r = arg;
    buf_append(&r->in, data, len);
    if (!r->line || http_status(r->transfer) >= 400)
        return;
    r->telling = true;
    docker_engine_take_lines(r);
    r->telling = false;
    if (r->cancelled)
        docker_engine_request_free(r);
}

static void docker_engine_on_done(void *arg, const struct http_result *result)
{
    struct engine_request *r = arg;
    struct engine_answer answer = { .error = result->error, .status = result->status };
    cleanup_json struct json_object *body = NULL;
    r->transfer = NULL;
    if (result->error.code != ERROR_NONE) {
        if (result->unsent || result->status == 0)
            explain_socket(r->engine, &answer.error);
    } else {
        if (r->in.len > 0 && !(r->line && result->status < 400))
            json_parse(r->in.data, r->in.len, &json_limits_large, &body, NULL);
        if (result->status >= 400)
            docker_engine_explain_status(result->status, body, &r->in, &answer.error);
        answer.body = body;
    }
    docker_engine_finish(r, &answer);
}

static void docker_engine_too_late(void *arg)
{
    struct engine_request *r = arg;
    struct engine_answer answer = { 0 };
    error_set(&answer.error, ERROR_LOST, "the Docker daemon at %.80s did not answer within %g s",
        r->engine->address, r->seconds);
    if (r->transfer)
        http_cancel(steal(&r->transfer));
    docker_engine_finish(r, &answer);
}

static int docker_engine_transmit(struct engine_request *r, struct error *err)
{
    static const struct http_handler handler = { docker_engine_on_head, docker_engine_on_data,
        docker_engine_on_done };
    static const char *const headers[] = { "Content-Type: application/json" };
    struct engine *e = r->engine;
    cleanup_buf struct buf url = { 0 };
    buf_puts(&url, e->url);
    if (r != e->ping)
        buf_printf(&url, "/v1.%u", e->version);
    buf_puts(&url, r->path);
    if (buf_failed(&url))
        return error_memory(err);
    struct http_request request = { .method = r->method,
        .url = buf_text(&url),
        .headers = headers,
        .header_count = 1,
        .body = buf_text(&r->body),
        .body_len = r->body.len };
    return http_send(e->http, &request, &handler, r, &r->transfer, err);
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
        .line = ask->line,
        .done = ask->done,
        .arg = ask->arg,
        .seconds = ask->seconds };
    TAILQ_INSERT_TAIL(&e->requests, r, link);
    if (ask->body)
        buf_puts(&r->body, json_text(ask->body, NULL));
    if (ask->seconds > 0)
        r->deadline = timer_new(e->loop, docker_engine_too_late, r);
    if (!r->method || !r->path || buf_failed(&r->body) || (ask->seconds > 0 && !r->deadline)) {
        docker_engine_request_free(r);
        return NULL;
    }
    if (r->deadline)
        timer_start(r->deadline, (uint64_t)(ask->seconds * 1000), 0);
    return r;
}

/* ---- the version ---- */

/* Those that have waited go; or all have this answer. */
static void docker_engine_pinged(void *arg, const struct engine_answer *answer)
{
    struct engine *e = arg;
    struct engine_answer refused = *answer;
    refused.body = NULL;
    if (answer->error.code == ERROR_NONE && e->version < VERSION_OLDEST) {
        error_set(&refused.error, ERROR_ENVIRONMENT,
            "the daemon at %.80s speaks the Engine API 1.%u; 1.%u is needed, which Docker 20.10 "
            "has",
            e->address, e->version, VERSION_OLDEST);
        e->version = 0;
    }
    if (e->version > VERSION_NEWEST)
        e->version = VERSION_NEWEST;
    struct engine_request *r;
    for (;;) {
        TAILQ_FOREACH(r, &e->requests, link)
        if (!r->transfer)
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
