/* serve/sandbox/sandbox.h: the sandboxes of a worker, for the handlers of every protocol.
 *
 * A sandbox has a session and does one operation at a time. The request that asked for it waits for
 * its end, unless its client goes. A protocol creates sandboxes through a `sandbox_maker`, and
 * keeps what only its clients know in a member of its own.
 */
#pragma once

#include "serve/http/request.h"

typedef void sandbox_done_fn(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err);

/* Of a protocol that creates sandboxes. */
struct sandbox_maker {
    /* Appends the session's settings with sandbox_setting. False: it refused the request. */
    bool (*settings)(struct request *r, struct buf *words);
    /* Sets what a new one is to have. False: it refused the request. */
    bool (*prepare)(struct sandbox *sb, struct request *r);
    /* Answers the request: the sandbox has started. `result` is that of its first, empty cell. */
    void (*ready)(struct sandbox *sb, struct request *r, droste_result *result);
    /* The template that it starts from; NULL: it refused the request. No function: from none. */
    droste_template *(*from)(struct request *r);
};

struct e2b_sandbox;
struct mcp_session;
struct jupyter_session;

/* What a protocol does as a sandbox changes that it keeps something beside. Any may be NULL. */
struct sandbox_hooks {
    void (*idle)(struct sandbox *sb); /* an operation ended, none followed */
    bool (*is_over)(
        struct sandbox *sb, uint64_t now_ns); /* its time, by the protocol's own rules */
    void (*close)(struct sandbox *sb);        /* the sandbox ends: frees what is kept */
};

struct sandbox {
    struct server *server;
    const struct sandbox_maker *maker; /* NULL: it has started */
    const struct sandbox_hooks *hooks; /* NULL: none */
    struct e2b_sandbox *e2b;           /* what E2B's clients know beside; NULL: it is not theirs */
    struct mcp_session *mcp;           /* that of a client of MCP; NULL: it is not theirs */
    struct jupyter_session *jupyter;   /* that of a kernel; NULL: it is none of one */
    struct account *owner;
    char id[SERVE_ID_SIZE];
    droste_session *session;
    struct json_object *metadata;
    int64_t created_ms;
    uint64_t created_ns, used_ns, began_ns; /* began: the operation under way */
    double life_seconds, idle_seconds;
    sandbox_done_fn *done;        /* of the operation under way; NULL: none */
    struct request *request;      /* that waits for it; NULL: its client has gone */
    struct trace_step cell;       /* if it is one */
    size_t transfers;             /* of files */
    droste_session *forked;       /* by the operation under way */
    unsigned checkpoint;          /* that the operation under way makes */
    struct template_build *build; /* of the template that it is to become (templates.c); NULL */
    void (*drop_build)(struct sandbox *sb);
    /* See calls.c. */
    struct request *listener; /* the stream of the cell that runs; NULL: it has none */
    struct client_call *calls;
    struct client_tool *tools;
    uint64_t model_key, call_count;
    struct sandbox *next, **link;
    struct sandbox *next_by_id; /* with the same hash */
};

/* Whether an account may know of the sandbox. What it may not is not found (404). */
bool sandbox_is_visible(const struct sandbox *sb, const struct account *account);
/* NULL: there is none. Of any account: for what goes on after its client was checked. */
struct sandbox *sandbox_find(struct server *s, const char *id);
/* The sandbox that the request's path names and its account owns; NULL: the request was refused. */
struct sandbox *sandbox_of(struct request *r);
/* The same if no operation is under way. */
struct sandbox *sandbox_idle_of(struct request *r);
/* The request waits for the end of the operation that was just started (`rc`). */
void sandbox_await(
    struct sandbox *sb, struct request *r, int rc, const droste_error *err, sandbox_done_fn *done);
/* An operation was started, for a request or (NULL) for another part of the server. */
void sandbox_begin(struct sandbox *sb, struct request *r, sandbox_done_fn *done);
/* A cell was started, for a request or (NULL) for nobody: it and what it causes are traced. */
void cell_begin(struct trace_step *cell, const struct sandbox *sb, droste_session *session,
    const struct request *r, const char *language);
/* It has ended: it is counted, and its span written. Nothing, if none is under way. */
void cell_end(struct trace_step *cell, const droste_result *result);
/* Ends a sandbox and answers what waits for it. */
void sandbox_close(struct sandbox *sb);
/* Ends those whose time is up. */
void sandboxes_sweep(struct server *s, uint64_t now_ns);
/* Starts one for the request, which its maker answers. */
void sandbox_create(struct request *r, const struct sandbox_maker *maker);
/* Appends a description, for an answer. */
void sandbox_put(struct buf *out, const struct sandbox *sb);
/* Adds one, in the place that was admitted (NULL: it has none); the session is taken. NULL without
 * memory. */
struct sandbox *sandbox_add(
    struct server *s, struct admission *place, struct account *owner, droste_session *session);

/* ---- options.c ---- */

/* Appends the options of the request, as sandbox_setting does. False: one was refused. */
bool sandbox_settings(struct request *r, struct buf *words);
/* Appends the limits of the request's key, where its client does not ask for less. */
void sandbox_put_limits(struct request *r, struct buf *words);

/* ---- network.c ---- */

/* Whether the operator permits the request's client to open its sandboxes to this rule of
 * allow-net. */
bool network_is_permitted(const struct request *r, const char *rule);
/* Appends a rule, besides the server's own; "none" removes all before it, and the server's. False:
 * it is not permitted, and the request was refused. `member` of the request, for that, has it. */
bool network_put(struct request *r, const char *member, const char *rule, struct buf *words);

/* ---- transfers.c ---- */

/* Answers with the content of a file of the request's sandbox. NULL: it was refused. */
void transfer_read(struct request *r, const char *path);
