/* serve/e2b/contexts.h: code contexts: sessions forked from the sandbox's, each with a queue. */
#pragma once

#include "base/os/random.h"
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

/* Node does not start in a sandbox, which has no epoll. */
#define E2B_NO_KERNEL "there is no kernel for the language '%.32s' here: there are python and bash"

/* What its session does now. */
enum context_phase {
    CONTEXT_IDLE,
    CONTEXT_SETTING_UP, /* its directory */
    CONTEXT_ENTERING,   /* the variables of one execution */
    CONTEXT_RUNNING,
    CONTEXT_LEAVING, /* the variables as they were */
    CONTEXT_PACKING, /* files, for a snapshot (snapshot.c) */
    CONTEXT_SAVING,  /* the session as a template */
    CONTEXT_DROPPING,
};

struct e2b_context {
    struct e2b_sandbox *e2b;
    char id[UUID_SIZE];
    const char *language;
    char *cwd;
    droste_session *session; /* NULL: the next execution forks one */
    bool wants_session, is_set_up;
    bool is_hidden; /* for one snapshot of files alone */
    bool entered;   /* the variables of the first execution are set */
    enum context_phase phase;
    uint64_t count;              /* of executions */
    struct trace_step cell;      /* of the first */
    struct e2b_execution *queue; /* the first may be under way */
    struct e2b_context *next;
};

/* NULL: there is none. */
struct e2b_context *e2b_context_find(struct e2b_sandbox *e, const char *id);
/* The context of a language that executions without one use; it exists from then on. NULL without
 * memory, or if there is no such language. */
struct e2b_context *e2b_context_default(struct e2b_sandbox *e, const char *language);
/* One that clients do not see, for a snapshot; it is freed behind it. NULL without memory. */
struct e2b_context *e2b_context_hidden(struct e2b_sandbox *e);
/* Whether code of this size may wait for the context. False: it refused the request. */
bool e2b_context_has_room(struct request *r, const struct e2b_context *c, size_t len);
/* Adds an execution, which is taken, to a context's queue. */
void e2b_context_queue(struct e2b_context *c, struct e2b_execution *x);
/* The client of an execution has gone. */
void e2b_context_abandon(struct e2b_execution *x);

/* ---- execute.c ---- */

/* Begins the stream of an execution. */
void e2b_execution_begin(struct e2b_execution *x);
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
