/* serve/server.h: what the files of the server share: the server, its clients and sandboxes. */
#pragma once

#include <uv.h>

#include "base/json/schema.h"
#include "serve/access/accounts.h"
#include "serve/http/listen.h"
#include "serve/serve.h"
#include "serve/table.h"

enum { SERVE_ID_SIZE = 33 }; /* of sandboxes, runs and templates */
enum { SERVE_ENDS = 256 };
enum { SERVE_ID_BUCKETS = 4096 }; /* 10,000 sandboxes are found within some three steps */

enum head_trust {
    HEAD_LOOPBACK, /* without keys, a page of another site must not reach the server */
    HEAD_ORIGIN,   /* with keys, only its own pages may use it */
    HEAD_ANY,      /* a unix socket */
};

/* A connection, from its acceptance on. */
struct client {
    struct server *server;
    int fd;
    struct request *request; /* NULL: a head is awaited */
    uint64_t since_ns;       /* since when */
    char address[64];        /* for logs */
    bool used;               /* for a request before */
    bool is_worker;          /* another worker's */
    bool is_relay;           /* the same, or its request has another node's ticket */
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
    struct tls_listener *tls; /* see http/tls_link.c; NULL: plain HTTP */
    uv_poll_t http_poll, relay_poll, droste_poll;
    uv_prepare_t prepare;
    uv_timer_t http_timer, sweep_timer;
    uv_timer_cb on_http_timer; /* gives libmicrohttpd its turn */
    uv_signal_t term, interrupt, hangup;
    struct table *table;
    struct worker_links *links; /* NULL: there is one worker */
    uv_poll_t mailbox_poll;
    struct upstream *idle_upstreams, *node_upstreams;
    struct registry *nodes; /* of the cluster; NULL: this server stands alone */
    int node_lock;          /* of the record, which is this node's alone; -1: none */
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
    /* See stop.h. */
    bool listening, draining, stopping, is_hurried, closing, woken;
    uint64_t drain_ns;
    size_t requests;     /* begun and not answered */
    uint64_t body_bytes; /* of all bodies in memory */
    struct client *clients;
    struct sandbox *sandboxes, *by_id[SERVE_ID_BUCKETS];
    size_t sandbox_count;
    struct sandbox_end ends[SERVE_ENDS]; /* the last ones, by end_count modulo their number */
    size_t end_count;
    /* See native/runs.c. */
    droste_record *record; /* NULL: not opened yet */
    struct run *runs;
    struct served_batch *batches; /* see native/batches.h */
    struct batch_reader *batch_readers;
    struct template_row *templates;     /* see native/templates.c */
    struct recipe_build *recipe_builds; /* see native/recipes.h */
    struct e2b_snapshot_row *snapshots; /* see e2b/snapshot.c */
    struct follower *followers;
    struct mcp_service *mcp; /* see mcp/mcp.h */
    struct jupyter *jupyter; /* see jupyter/jupyter.h */
    struct schema **schemas; /* by route; NULL: none */
    struct run_queue *queue; /* see queue/queue.h; NULL: it is in no cluster */
    struct owners *owners;   /* of volumes: see sandbox/owners.h; NULL: it is in no cluster */
    struct leaving *leaving; /* see sandbox/leaving.h */
    struct openai *openai;   /* what that protocol has of its own */
    /* See sandbox/options.c and sandbox/calls.c. */
    droste *parser; /* reads the values of options; NULL: none was read yet */
    uint64_t model_key;
};

/* A connection was resumed or has ended: the library gets a turn soon, for which its descriptor
 * does not ask. */
void server_wake(struct server *s);

/* The record of runs, which is opened at first; NULL: there is none yet, or it cannot be opened. */
droste_record *server_record(struct server *s, droste_error *err);

/* The digits of an id that say where it was made: worker, its generation, node. */
enum { SERVE_ID_PLACE = 10 };
/* A new id of a sandbox or run of this worker. Negative: there is no randomness. */
int server_make_id(const struct server *s, char id[SERVE_ID_SIZE]);
