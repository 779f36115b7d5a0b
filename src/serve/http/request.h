/* serve/http/request.h: a request from its head to the end of its answer, for the handlers of
 * routes.
 *
 * Everything runs in the loop's thread. A handler answers at once, or later from a callback; in
 * between, the connection is suspended, and nothing is read from its client.
 */
#pragma once

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <uv.h>

#include "base/fifo.h"
#include "base/error.h"
#include "base/json/json.h"
#include "droste.h"
#include "serve/access/admission.h"
#include "serve/server.h"
#include "serve/trace.h"

struct sandbox;
struct sandbox_maker;
struct run;
struct follower;
struct request;
struct upgrade;

enum { SERVE_NAME_SIZE = 65 };
/* A body that is held in memory: code, JSON; a variable, input of a command. */
enum { SERVE_BODY_MAX = 8 << 20, SERVE_VALUE_MAX = 64 << 20 };
/* Bytes of a stream that wait for a slow client. */
enum { SERVE_UNREAD_MAX = 512 << 10 };

struct openai_form;

enum body { BODY_NONE, BODY_JSON, BODY_BYTES, BODY_STREAM };

/* One operation of the interface. The table of routes is also the OpenAPI document. */
struct route {
    /* {id}: of a sandbox or run; {name}: of a variable; {path}: the rest, as the name;
     * {rest}: the rest, of any length, for a handler that takes it from the target */
    const char *method, *path;
    enum body body;
    const char *schema; /* of BODY_JSON: requests are checked against it */
    const char *query;  /* the query's parameters, as JSON schema properties; NULL: none */
    int status;         /* of success */
    const char *type;   /* the media type of the answer; NULL: it is empty */
    const char *answer; /* the schema of a JSON answer; NULL: not JSON */
    const char *summary;
    /* Called with the whole body; of BODY_STREAM, with the head. */
    void (*handle)(struct request *r);
    /* What a key needs one of (keys.h). 0: to use sandboxes, or only to read, for GET. */
    unsigned scopes;
    bool creates;    /* takes an Idempotency-Key */
    bool is_paced;   /* its body comes when its client has something to say: at no least rate */
    bool of_run;     /* {id}: of a run, which outlives its worker */
    size_t body_max; /* 0: SERVE_BODY_MAX */
    bool is_form;    /* its body is multipart/form-data */
    /* The status of a stream of events, which its body can ask for; 0: none. */
    int streams;
    const struct openai_form *form; /* of OpenAI's API: how it answers with a run; NULL: not */
};

/* The routes of one protocol. */
struct routes {
    const struct route *rows;
    size_t count;
    /* Whether a request is one of this protocol, by its path and headers. NULL: by its path. */
    bool (*claims)(struct request *r, const char *path);
    /* Sets r->account, or refuses the request. NULL: account_identify. */
    bool (*identify)(struct request *r);
    /* True if the request is for a sandbox that it does not name and this worker does not have; the
     * other workers get it in turn. May set its id. NULL: there are no such requests. */
    bool (*is_elsewhere)(struct request *r);
    /* The worker for a request that names none. NULL: by the route. */
    unsigned (*place)(struct request *r);
    /* True for a Host that names one of its sandboxes, whose requests need that sandbox's token.
     * NULL: none does. */
    bool (*has_host)(const char *host);
    /* It says itself that the worker of an id has died. */
    bool knows_lost;
    /* Answers with an error in the protocol's form. NULL: {"error": {"code", "message"}} */
    void (*refuse)(struct request *r, unsigned status, const char *code, const char *text);
    /* The schema of {name} in this path. NULL: a text. */
    const char *(*name_schema)(const char *path);
    const struct route *any; /* for each path and method that `rows` does not have; NULL: none */
    bool is_documented;      /* in the OpenAPI document */
    bool takes_token;        /* a key may be the query's parameter `token` */
};

/* All of them: serve/protocols.c. */
extern const struct routes *const serve_protocols[];
extern const size_t serve_protocol_count;

const struct route *route_at(size_t index);
/* The schema of its bodies, parsed; NULL: the route has none. */
const struct schema *route_schema(const struct server *s, const struct route *route);
/* The scopes of which its client needs one; SCOPE_NONE: anyone may. */
unsigned route_scopes(const struct route *route);
/* Sets the request's routes, route, id and name. *allowed: a method that the path has; NULL: there
 * is no such path. */
bool route_find(struct request *r, const char *method, const char *path, const char **allowed);
/* True for the Host of a protocol's sandbox. */
bool route_has_host(const char *host);
/* Appends the methods that a path has: "GET, POST". */
void route_methods(const struct routes *of, const char *path, struct buf *out);

struct request {
    struct server *server;
    struct client *client;
    struct MHD_Connection *connection;
    const struct routes *routes;
    const struct route *route;
    struct account *account; /* NULL: not identified, or not needed */
    char request_id[SERVE_NAME_SIZE];
    struct request_trace trace;
    char method[16];
    char *target;          /* as sent */
    const char *target_at; /* where the library has it */
    const char *head_end;  /* of one that was whole, and well formed, before the library read it */
    char id[SERVE_ID_SIZE], name[SERVE_NAME_SIZE];
    char about[96]; /* for logs: what a client of MCP asks for */
    unsigned port;  /* of the sandbox, which a request of E2B's clients names; 0: none */
    struct buf body;
    struct json_object *json; /* of BODY_JSON; NULL: an empty body */
    uint64_t began_ns;
    uint64_t received; /* bytes of the body */
    bool begun, complete, suspended, gone, close_after;
    bool is_relayed;  /* another worker answers it */
    uv_poll_t *watch; /* sees a client that goes away meanwhile */

    unsigned status;
    int sys;                    /* the errno of its failure, for a refusal; 0: none */
    struct MHD_Response *reply; /* ready to be sent */

    /* A streamed answer. */
    bool streaming, ended, cut;
    struct fifo unread;
    struct upgrade *upgrade; /* of a connection that was upgraded; NULL: it was not */

    /* Until a sandbox is created (admission.h). */
    struct admission admission;
    double held_cost; /* see spending.h */
    void (*admitted)(struct request *r);
    struct idempotent *idempotent; /* it is the first with its Idempotency-Key */

    /* The handler's. */
    struct sandbox *sandbox;
    const struct sandbox_maker *maker; /* of the sandbox that it creates */
    void *state;
    void (*on_piece)(struct request *r, const char *data, size_t len); /* of BODY_STREAM */
    void (*on_drained)(struct request *r);  /* the stream has nothing unread: produce more */
    void (*on_complete)(struct request *r); /* of BODY_STREAM: the body has ended */
    void (*on_gone)(struct request *r);     /* before the request is freed without its answer */
    void (*on_free)(struct request *r);
};

/* ---- answers ---- */

void request_reply(
    struct request *r, unsigned status, const char *type, const void *data, size_t len);
/* The content of a file, of which this takes the descriptor. */
void request_reply_fd(struct request *r, const char *type, int fd, uint64_t size);
/* A JSON answer; takes the tree. */
void request_reply_json(struct request *r, unsigned status, struct json_object *tree);
/* A JSON answer that was written as text. */
void request_reply_written(struct request *r, unsigned status, const struct buf *json);
/* {NAME: list}; takes the list. */
void request_reply_list(struct request *r, const char *name, struct json_object *list);
/* {"error": {"code", "message", "errno"}}, or as the request's routes say it. */
void request_refuse(struct request *r, unsigned status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same for an error of the library. */
void request_fail(struct request *r, const droste_error *err);
static inline void request_refuse_memory(struct request *r)
{
    request_refuse(r, 503, "memory", "out of memory");
}
/* Zeroed memory; NULL: there is none, and the request was refused. */
static inline void *request_alloc(struct request *r, size_t size)
{
    void *at = calloc(1, size);
    if (!at)
        request_refuse_memory(r);
    return at;
}
void request_header(struct request *r, const char *name, const char *value);
/* The field Location of the answer, formatted as by printf. */
void request_locate(struct request *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Begins a streamed answer; then request_push, and request_end. */
void request_stream(struct request *r, const char *type);
/* The same with another status than 200. */
void request_stream_as(struct request *r, unsigned status, const char *type);
void request_push(struct request *r, const void *data, size_t len);
/* Answers with 101; then the connection is the function's (upgrade.h). */
void request_upgrade(struct request *r, MHD_UpgradeHandler open, void *arg);
static inline size_t request_unread(const struct request *r)
{
    return fifo_len(&r->unread);
}
void request_end(struct request *r);
/* Ends it so that the client sees that something is missing. */
void request_cut(struct request *r);

/* ---- input ---- */

/* A parameter of the query; the fallback if it is absent. NULL: it is invalid, and the request
 * was refused. */
const char *request_query(struct request *r, const char *name, const char *fallback);
/* A number of the query, from 1; what is more than the most counts as that. 0: the request was
 * refused. */
unsigned request_query_number(
    struct request *r, const char *name, const char *fallback, unsigned most);
/* The same without refusing; NULL: it is absent. */
static inline const char *request_parameter(struct request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name);
}
/* A header's value; NULL: none. */
const char *request_header_of(struct request *r, const char *name);

/* ---- for the server ---- */

/* Nothing is read from the client, and nothing sent, until request_resume. */
void request_suspend(struct request *r);
void request_resume(struct request *r);
/* Notices if the client leaves, as the library does not look at a suspended connection. Of a stream
 * the server asks for this four times a second, since a watch takes seven system calls. */
void request_watch(struct request *r);
void request_free(struct request *r);

/* head.c: refuses what RFC 9112 forbids and libmicrohttpd accepts, foreign hosts and origins. */
/* Reads the fields as they were received, when the library has only parsed the request line. */
void head_look(struct request *r);
bool head_check(struct request *r, const char *method, const char *version, enum head_trust trust);
