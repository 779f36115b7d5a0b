/* serve/e2b/e2b.h: E2B's API over Droste's sandboxes, so that its SDKs work unmodified.
 *
 * Three services share the port: the control plane (/sandboxes, /v2/…), and in each sandbox "envd"
 * (port 49983: files and processes, Connect protocol) and the code interpreter (port 49999). A
 * request for a sandbox names it, and the port, in two headers or in the first label of its Host.
 *
 * The adapter keeps what only E2B's clients know beside a sandbox (struct e2b_sandbox). The session
 * of the sandbox runs no client's code: each code context is a fork of it, so that a new context is
 * empty, a restart is another fork, and code that ends its interpreter ends no more than that.
 */
#pragma once

#include "serve/sandbox/sandbox.h"

enum { E2B_PORT_ENVD = 49983, E2B_PORT_INTERPRETER = 49999 };
enum { E2B_TOKEN_SIZE = 33, E2B_USER_SIZE = 64 };

/* The SDKs derive from it what a sandbox can do. */
#define E2B_ENVD_VERSION "0.6.13"

/* What versions 1 and 2 of the interface give to sandboxes without a timeout. */
enum { E2B_SECONDS_V1 = 15, E2B_SECONDS_V2 = 300 };

struct e2b_context;
struct connect_stream;
struct e2b_watcher;
struct e2b_metrics;

struct e2b_log_entry;

/* The newest entries, oldest first (logs.c). */
struct e2b_log {
    struct e2b_log_entry *first, *last;
    size_t bytes;
};

struct e2b_sandbox {
    struct sandbox *sandbox;
    char token[E2B_TOKEN_SIZE];         /* for envd and the interpreter */
    char traffic_token[E2B_TOKEN_SIZE]; /* for all ports but envd's; "": none is needed */
    char *template;
    struct json_object *asked;       /* the request that created it */
    struct json_object *environment; /* the sandbox's variables; NULL: none */
    struct json_object *network;     /* as given; NULL: none was */
    struct buf destinations;         /* the settings that its network had when it was created */
    int64_t started_us;              /* also the order of lists: no two are equal */
    uint64_t end_ns;                 /* the deadline */
    bool ready, paused, auto_pause, auto_resume, no_internet;
    bool has_files;       /* of a snapshot, which are unpacked first */
    bool has_interpreter; /* a context is prepared for its clients */
    bool has_loopback;    /* its ports can be reached */
    bool has_epoll;       /* its programs may use epoll, which Node needs */
    bool has_root;        /* a writable one, with /home/user and the users "user" and "root" */
    int64_t memory_bytes, disk_bytes;
    struct e2b_context *contexts;   /* oldest first */
    struct connect_stream *streams; /* to clients, of envd */
    struct request *pausing;        /* waits until a process that starts can be stopped; or NULL */
    struct e2b_watcher *watchers;   /* of directories */
    struct e2b_metrics *metrics;    /* what it used when clients asked; NULL: none did */
    struct e2b_log log;
    struct e2b_context *forking; /* for which the sandbox's session is being forked */
};

/* ---- route.c ---- */

extern const struct routes e2b_control_routes, e2b_envd_routes, e2b_interpreter_routes,
    e2b_port_routes;

/* True for the Host of a sandbox: {port}-{id}.{domain}. */
bool e2b_host_is_sandbox(const char *host);

/* ---- signature.c ---- */

/* True if the request has a signature that was made with the token, also an expired one. */
bool e2b_signature_fits(struct request *r, const char *token);
/* Refuses a request whose signature does not fit or has expired. */
bool e2b_signature_check(struct request *r, const char *token);

/* ---- sandbox.c ---- */

/* The running sandbox that a request for a port names; NULL: the request was refused. */
struct e2b_sandbox *e2b_running_of(struct request *r);
/* The user of a request to envd, as it names one; "": the default. */
void e2b_user_of(struct request *r, char out[E2B_USER_SIZE]);
/* Where a user's relative paths begin; NULL: the default user. */
const char *e2b_home(const struct e2b_sandbox *e, const char *user);
/* Refuses a request as E2B's edge does; `sandbox` NULL: for no sandbox in particular. */
void e2b_refuse(struct request *r, unsigned status, const char *sandbox, const char *text);
/* Refuses a request for a sandbox that has ended. */
void e2b_refuse_gone(struct request *r);
/* The sandbox of E2B's clients that the path names; NULL: the request was refused. */
struct e2b_sandbox *e2b_control_sandbox(struct request *r);
/* The timeout that the request asks for. False: it is too long, and the request was refused. */
bool e2b_take_timeout(struct request *r, int64_t fallback, double *out);
/* Of processors that a sandbox may use. */
int e2b_cpu_count(void);
/* The description of a sandbox in lists. */
struct json_object *e2b_describe(const struct e2b_sandbox *e);
/* The answer to create, connect and resume. */
struct json_object *e2b_describe_new(const struct e2b_sandbox *e);
/* A time as RFC 3339 has it, with microseconds. */
void e2b_put_time(struct json_object *o, const char *key, int64_t us);

/* ---- pause.c ---- */

int e2b_sandbox_pause(struct e2b_sandbox *e, droste_error *err);
/* Answers the request that waits for it, if it can be paused now. */
void e2b_sandbox_pause_for(struct e2b_sandbox *e);
void e2b_sandbox_resume(struct e2b_sandbox *e);

/* ---- network.c ---- */

/* Why no sandbox here can have such a network; NULL: it can. */
const char *e2b_network_refusal(struct json_object *network);
/* Appends the settings for `allow_internet_access` of `o`, and for `network`. False: what they say
 * is not permitted, or cannot be expressed, and the request was refused. */
bool e2b_network_settings(
    struct request *r, struct json_object *o, struct json_object *network, struct buf *words);
/* Whether what these settings say holds in the sandbox as it is. */
bool e2b_network_holds(const struct e2b_sandbox *e, const struct buf *asked);

/* ---- logs.c ---- */

enum e2b_level { E2B_DEBUG, E2B_INFO, E2B_WARN, E2B_ERROR };

/* A field of an entry, without a value where there is none. Lists end with one without a name. */
struct e2b_field {
    const char *name, *value;
};

/* Adds an entry; `more` NULL: no more fields. */
void e2b_log(struct e2b_sandbox *e, enum e2b_level level, const char *event,
    const struct e2b_field *more, const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Adds what something has printed, the head of a large piece. */
void e2b_log_output(struct e2b_sandbox *e, const char *stream, const struct e2b_field *of,
    const char *data, size_t len);
void e2b_log_free(struct e2b_log *log);

/* ---- ports.c ---- */

/* Passes a request on to the server at its port of the sandbox, and answers with what that does. */
void e2b_handle_port(struct request *r);

/* ---- watch.c ---- */

void e2b_watchers_free(struct e2b_sandbox *e);
void e2b_watchers_sweep(struct e2b_sandbox *e, uint64_t now_ns);

/* ---- image.c ---- */

/* Removes those of revoked keys. */
void e2b_snapshots_sweep(struct server *s);
void e2b_snapshots_close(struct server *s);

/* ---- contexts.c ---- */

void e2b_contexts_free(struct e2b_sandbox *e);
/* Prepares the context that a client will most likely use. */
void e2b_contexts_warm(struct e2b_sandbox *e);
/* Tells clients of streams that were silent for long that they still live. */
void e2b_contexts_sweep(struct e2b_sandbox *e, uint64_t now_ns);

/* ---- handlers ---- */

void e2b_handle_create(struct request *r);
void e2b_handle_list(struct request *r);
void e2b_handle_get(struct request *r);
void e2b_handle_kill(struct request *r);
void e2b_handle_timeout(struct request *r);
void e2b_handle_refresh(struct request *r);
void e2b_handle_connect(struct request *r);
void e2b_handle_resume(struct request *r);
void e2b_handle_pause(struct request *r);
void e2b_handle_metrics(struct request *r);
void e2b_handle_metrics_of_all(struct request *r);
void e2b_handle_logs(struct request *r);
void e2b_handle_network(struct request *r);
void e2b_handle_alias(struct request *r);
void e2b_handle_snapshot(struct request *r);
void e2b_handle_snapshots(struct request *r);
void e2b_handle_fork(struct request *r);
void e2b_handle_template_delete(struct request *r);
void e2b_handle_envd_health(struct request *r);
void e2b_handle_process_start(struct request *r);
void e2b_handle_process_connect(struct request *r);
void e2b_handle_process_list(struct request *r);
void e2b_handle_process_input(struct request *r);
void e2b_handle_process_stream_input(struct request *r);
void e2b_handle_process_close(struct request *r);
void e2b_handle_process_signal(struct request *r);
void e2b_handle_process_update(struct request *r);
void e2b_handle_file_read(struct request *r);
void e2b_handle_file_write(struct request *r);
void e2b_handle_stat(struct request *r);
void e2b_handle_make_directory(struct request *r);
void e2b_handle_move(struct request *r);
void e2b_handle_remove(struct request *r);
void e2b_handle_list_directory(struct request *r);
void e2b_handle_watch(struct request *r);
void e2b_handle_watcher_create(struct request *r);
void e2b_handle_watcher_events(struct request *r);
void e2b_handle_watcher_remove(struct request *r);
void e2b_handle_interpreter_health(struct request *r);
void e2b_handle_execute(struct request *r);
void e2b_handle_contexts(struct request *r);
void e2b_handle_context_create(struct request *r);
void e2b_handle_context_remove(struct request *r);
void e2b_handle_context_restart(struct request *r);
