/* serve/server.h: what the files of the server share: the server, its clients and sandboxes. */
#ifndef DROSTE_SERVE_SERVER_H
#define DROSTE_SERVE_SERVER_H

#include "base/json/schema.h"
#include "serve/accounts.h"
#include "serve/admission.h"
#include "serve/idempotency.h"
#include "serve/listen.h"
#include "serve/log.h"
#include "serve/request.h"
#include "serve/serve.h"
#include "serve/table.h"

enum { SERVE_ENDS = 256 };
enum { SERVE_ID_BUCKETS = 4096 }; /* 10,000 sandboxes are found within some three steps */

/* A connection, from its acceptance on. */
struct client {
    struct server *server;
    int fd;
    struct request *request; /* NULL: a head is awaited */
    uint64_t since_ns;       /* since when */
    char address[64];        /* for logs */
    bool used;               /* for a request before */
    bool is_relay;           /* another worker's */
    struct client *next, **link;
};

/* Why a sandbox is gone whose session was lost. */
struct sandbox_end {
    char id[SERVE_ID_SIZE], key[KEY_ID_SIZE];
    int code;
    char text[240];
};

struct server {
    droste *d;
    const struct serve_options *options;
    uv_loop_t loop;
    struct MHD_Daemon *daemon;
    struct MHD_Daemon *relay_daemon; /* of connections of other workers; NULL: there are none */
    struct listener listener;
    uv_poll_t http_poll, relay_poll, droste_poll;
    uv_prepare_t prepare;
    uv_timer_t http_timer, sweep_timer;
    uv_signal_t term, interrupt, hangup;
    struct table *table;
    struct worker_links *links; /* NULL: there is one worker */
    uv_poll_t mailbox_poll;
    struct upstream *idle_upstreams;
    unsigned worker;
    struct table_worker *figures; /* this worker's */
    struct accounts accounts;
    struct idempotency *idempotency;
    int audit_fd, traces_fd; /* -1: none */
    /* See admission.c. */
    size_t starting;
    struct admission *waiting, **waiting_end;
    bool has_released; /* a place, since waiting requests were served */
    uint64_t swept_ns;
    enum head_trust trust;
    uint64_t request_count;
    char id_prefix[9]; /* of the ids of requests */
    bool listening, draining, stopping, closing, woken;
    uint64_t drain_ns;
    size_t requests;     /* begun and not answered */
    uint64_t body_bytes; /* of all bodies in memory */
    struct client *clients;
    struct sandbox *sandboxes, *by_id[SERVE_ID_BUCKETS];
    size_t sandbox_count;
    struct sandbox_end ends[SERVE_ENDS]; /* the last ones, by end_count modulo their number */
    size_t end_count;
    /* See runs.c. */
    droste_record *record; /* NULL: not opened yet */
    struct run *runs;
    struct template_row *templates; /* see templates.c */
    struct follower *followers;
    struct mcp_service *mcp; /* see mcp/mcp.h */
    struct jupyter *jupyter; /* see jupyter/jupyter.h */
    struct schema **schemas; /* by route; NULL: none */
    struct openai *openai;   /* what that protocol has of its own */
    /* See sandbox_options.c and calls.c. */
    droste *parser; /* reads the values of options; NULL: none was read yet */
    uint64_t model_key;
};

/* A connection was resumed or has ended: the library gets a turn soon, for which its descriptor
 * does not ask. */
void server_wake(struct server *s);

/* A new id of a sandbox or run of this worker. Negative: there is no randomness. */
int server_make_id(const struct server *s, char id[SERVE_ID_SIZE]);

/* NULL: the route has none. */
const struct schema *server_schema_of(const struct server *s, const struct route *route);

/* ---- sandbox.c ---- */

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

struct sandbox {
    struct server *server;
    const struct sandbox_maker *maker;
    struct e2b_sandbox *e2b;         /* what E2B's clients know beside; NULL: it is not theirs */
    struct mcp_session *mcp;         /* that of a client of MCP; NULL: it is not theirs */
    struct jupyter_session *jupyter; /* that of a kernel; NULL: it is none of one */
    struct account *owner;
    char id[SERVE_ID_SIZE];
    droste_session *session;
    struct json_object *metadata;
    int64_t created_ms;
    uint64_t created_ns, used_ns, began_ns; /* began: the operation under way */
    double life_seconds, idle_seconds;
    sandbox_done_fn *done;        /* of the operation under way; NULL: none */
    struct request *request;      /* that waits for it; NULL: its client has gone */
    size_t transfers;             /* of files */
    droste_session *forked;       /* by the operation under way */
    unsigned checkpoint;          /* that the operation under way makes */
    struct template_build *build; /* of the template that it is to become (templates.c); NULL */
    /* See calls.c. */
    struct request *listener; /* the stream of the cell that runs; NULL: it has none */
    struct client_call *calls;
    struct client_tool *tools;
    uint64_t model_key, call_count;
    struct sandbox *next, **link;
    struct sandbox *next_by_id; /* with the same hash */
};

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
/* Ends a sandbox and answers what waits for it. */
void sandbox_close(struct sandbox *sb);
/* Ends those whose time is up. */
void sandboxes_sweep(struct server *s, uint64_t now_ns);
/* Starts one for the request, which its maker answers. */
void sandbox_create(struct request *r, const struct sandbox_maker *maker);
void sandbox_setting(struct buf *words, const char *name, const char *value);
/* Settings as the library takes them, from those that sandbox_setting has appended. Free the list.
 * NULL without memory. */
const char **sandbox_list_settings(const struct buf *words);
/* A description, for an answer; NULL without memory. */
struct json_object *sandbox_json(const struct sandbox *sb);
/* Adds one, in the place that was admitted (NULL: it has none); the session is taken. NULL without
 * memory. */
struct sandbox *sandbox_add(
    struct server *s, struct admission *place, struct account *owner, droste_session *session);

/* ---- sandbox_options.c ---- */

/* Appends the options of the request, as sandbox_setting does. False: one was refused. */
bool sandbox_settings(struct request *r, struct buf *words);
/* Appends the limits of the request's key, where its client does not ask for less. */
void sandbox_put_limits(struct request *r, struct buf *words);

/* ---- cells.c ---- */

/* The end of an operation that makes sb->forked: a sandbox of its own. */
sandbox_done_fn fork_on_done;

/* ---- transfers.c ---- */

/* Answers with the content of a file of the request's sandbox. NULL: it was refused. */
void transfer_read(struct request *r, const char *path);

/* ---- handlers of routes ---- */

void handle_health(struct request *r);
void handle_ready(struct request *r);
void handle_openapi(struct request *r);
void handle_metrics(struct request *r);
void handle_create(struct request *r);
void handle_list(struct request *r);
void handle_get(struct request *r);
void handle_close(struct request *r);
void handle_execute(struct request *r);
void handle_interrupt(struct request *r);
void handle_fork(struct request *r);
void handle_expect(struct request *r);
void handle_tools(struct request *r);
void handle_call_answer(struct request *r);
void handle_checkpoint_create(struct request *r);
void handle_checkpoint_list(struct request *r);
void handle_checkpoint_remove(struct request *r);
void handle_checkpoint_fork(struct request *r);
void handle_rollback(struct request *r);
void handle_variable_get(struct request *r);
void handle_variable_set(struct request *r);
void handle_file_read(struct request *r);
void handle_file_write(struct request *r);
void handle_file_list(struct request *r);
void handle_file_glob(struct request *r);
void handle_file_describe(struct request *r);
void handle_file_move(struct request *r);
void handle_directory_create(struct request *r);
void handle_directory_remove(struct request *r);
void handle_command_start(struct request *r);
void handle_command_list(struct request *r);
void handle_command_output(struct request *r);
void handle_command_input(struct request *r);
void handle_command_signal(struct request *r);
void handle_command_resize(struct request *r);
void handle_terminal(struct request *r);
void handle_file_remove(struct request *r);

#endif
