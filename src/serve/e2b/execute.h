/* serve/e2b/execute.h: an operation that waits for a code context: code, with its stream of output,
 * results and errors, or a snapshot.
 */
#pragma once

#include "base/text.h"
#include "serve/e2b/e2b.h"

/* A request to run code. It outlives its client: what has begun is interrupted first. */
struct e2b_execution {
    struct request *request; /* NULL: its client has gone */
    struct e2b_context *context;
    char *code;
    size_t len;
    struct json_object *environment; /* for this execution; NULL: none */
    struct text_rest rest[2];
    uint64_t lost;                 /* bytes that a slow client does not get */
    uint64_t spoken_ns;            /* when something was last sent */
    struct e2b_snapshot *snapshot; /* is made instead of running code; or NULL */
    struct e2b_execution *next;
};

/* A request for a snapshot or for forks. It is freed when neither its client nor an operation needs
 * it. */
struct e2b_snapshot {
    unsigned references;
    struct request *r; /* NULL: answered, or its client has gone */
    struct server *server;
    char id[SERVE_ID_SIZE]; /* of the sandbox */
    droste_template *made;
    struct e2b_image *image;     /* NULL: not made yet */
    struct json_object *answers; /* of forks; NULL: it is a snapshot */
    size_t count;                /* of forks */
    void (*on_saved)(struct e2b_snapshot *s, struct e2b_sandbox *e); /* `made` is there */
};

/* Begins the stream of an execution, the context's `count`-th. */
void e2b_execution_begin(struct e2b_execution *x, uint64_t count);
void e2b_execution_output(struct e2b_execution *x, int stream, const char *data, size_t len);
void e2b_execution_show(struct e2b_execution *x, const droste_bundles *bundles, size_t index);
/* Its end; `result` is NULL if there is none. */
void e2b_execution_end(
    struct e2b_execution *x, const droste_result *result, const droste_error *err);
/* It does not run, or its sandbox ends. */
void e2b_execution_cut(struct e2b_execution *x);
void e2b_execution_fail(struct e2b_execution *x, const char *name, const char *text);
void e2b_execution_keep_alive(struct e2b_execution *x, uint64_t now_ns);
void e2b_execution_free(struct e2b_execution *x);

void e2b_snapshot_fail(struct e2b_snapshot *s, unsigned status, const char *text);
void e2b_snapshot_release(struct e2b_snapshot *s);
