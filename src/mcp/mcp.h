/* mcp/mcp.h: a server of the Model Context Protocol, apart from the transport of its messages and
 * from what has its sandboxes.
 *
 * It gives a program, usually a coding agent, sandboxed Python with state, runs over long contexts,
 * and files. Two revisions are spoken: the one with `initialize`, up to 2025-11-25, and the
 * stateless one of 2026-07-28, whose requests carry their version. A transport (standard input and
 * output, HTTP) brings messages and sends what comes back; a host opens and counts sandboxes.
 * Everything runs in the thread of the library's loop. docs/mcp.md is for users.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "droste.h"

/* What all users share: the tools, and what they may do. */
struct mcp_server;
/* What one user has: sessions, and the runs that are resources. */
struct mcp;
/* A connection. Those of one user share the sessions. */
struct mcp_peer;
struct mcp_session;
struct mcp_extension;

#define MCP_STATELESS_VERSION "2026-07-28"
/* Whether it is a version with `initialize`. */
bool mcp_version_is_stateful(const char *version);

/* ---- the transport ---- */

/* A message for the client, one JSON object in one line. */
struct mcp_message {
    const char *json;
    size_t len;
    void *stream;    /* of the request with which it belongs; NULL: of none */
    bool is_answer;  /* the last one of its request */
    bool is_refusal; /* an answer to what was not a request of the protocol; `code` says why */
    bool is_stateless;
    bool may_be_lost; /* progress, which a transport drops if its client does not read */
    int code;         /* of an error (base/json/rpc.h); 0: none */
};

typedef void mcp_send_fn(void *arg, const struct mcp_message *message);

enum { MCP_ABOUT_SIZE = 96 };

/* How a message came. NULL members: the transport does not say. */
struct mcp_envelope {
    void *stream;    /* of the transport's, for the answer */
    bool is_checked; /* the texts below must agree with the message, if that has a version */
    bool is_shared;  /* by clients that know nothing of each other */
    const char *version, *method, *name;
    char about[MCP_ABOUT_SIZE]; /* set: the method and tool of a request, for logs; "": none */
};

/* ---- the host ---- */

/* Room for a sandbox. */
struct mcp_place {
    struct mcp *mcp;
    bool is_run; /* of a run of models, not of a session */
    /* There is room, or an error why there is none. */
    void (*go)(struct mcp_place *place, const droste_error *err);
    void *host; /* the host's; NULL: nothing is asked for or held */
};

/* Opens and counts the sandboxes of a user, whose `user` is that of mcp_new. */
struct mcp_host {
    /* Asks for room; go() is called once, now or later. */
    void (*ask)(void *user, struct mcp_place *place);
    /* Gives up room, or the wait for it. */
    void (*leave)(struct mcp_place *place);
    /* The start is over; the room is kept. */
    void (*settle)(struct mcp_place *place);
    /* Whether the user may start runs of models. */
    bool (*may_run)(void *user);
    /* Settings for the session or run: a name, its value, …, NULL (free); NULL without memory. */
    const char **(*settings)(const struct mcp_place *place);
    /* Takes the session into its care, with the room; NULL without memory: it is closed. */
    void *(*add)(struct mcp_place *place, struct mcp_session *s, droste_session *session);
    void (*close)(void *held);
    /* An operation has begun, for a request of this stream (NULL: for none): mcp_session_done is
     * called at its end. */
    void (*begin)(void *held, void *stream);
    /* Whether an operation of another client is under way; mcp_session_idle is called after it. */
    bool (*is_busy)(void *held);
    void (*use)(void *held); /* its files are used */
    /* An account for the record of runs, and a new id for one; may be NULL. */
    const char *(*account)(void *user);
    int (*make_run_id)(void *user, char id[DROSTE_RUN_ID_SIZE]);
    /* A run has ended; may be NULL. */
    void (*ran)(void *user, const char *id);
};

/* The end of an operation. The result stays the host's. */
void mcp_session_done(struct mcp_session *s, droste_result *result, const droste_error *err);
void mcp_session_idle(struct mcp_session *s);
/* The host has closed it, or is about to: it is forgotten, and its calls are answered. */
void mcp_session_lost(struct mcp_session *s);

/* ---- the server ---- */

struct mcp_options {
    /* Directories and files of this machine from which contexts may be loaded; ends with NULL. */
    const char *const *paths;
    size_t max_sessions;                   /* Python sessions of a user at once */
    const struct mcp_host *host;           /* NULL: the sandboxes are its own */
    bool roots_bound;                      /* the client's roots are directories of this machine */
    const struct mcp_extension *extension; /* NULL: none */
};

/* The options are copied, but for the host and the extension. ERROR_NOT_FOUND: a path does not
 * exist. */
int mcp_server_new(
    droste *d, const struct mcp_options *options, struct mcp_server **out, struct error *err);
/* After its users. NULL is fine. */
void mcp_server_free(struct mcp_server *server);

/* `user`: the host's. NULL without memory. */
struct mcp *mcp_new(struct mcp_server *server, void *user);
/* After its connections; ends the sessions and runs. NULL is fine. */
void mcp_free(struct mcp *mcp);

/* NULL without memory. */
struct mcp_peer *mcp_connect(struct mcp *mcp, mcp_send_fn *send, void *arg);
/* Ends the connection and what its requests had under way; the sessions stay. NULL is fine. */
void mcp_disconnect(struct mcp_peer *peer);
/* Takes one message, which may be anything. Answers follow at once or later. `envelope` may be
 * NULL. */
void mcp_receive(
    struct mcp_peer *peer, struct mcp_envelope *envelope, const char *text, size_t len);
/* The client does not wait for the request of this stream any more. */
void mcp_cancel(struct mcp_peer *peer, void *stream);
/* Whether a request of this stream is not answered yet. */
bool mcp_has(const struct mcp_peer *peer, const void *stream);
/* The version on which `initialize` agreed; "": none yet. */
const char *mcp_version(const struct mcp_peer *peer);
/* Requests that are not answered. */
size_t mcp_pending(const struct mcp_peer *peer);
/* Ends the subscriptions of a connection in the protocol's way. */
void mcp_end_subscriptions(struct mcp_peer *peer);

/* Asks the client of a run for a reply. False: it is not a call of a run of this server's. For
 * hosts that have the model of the program (droste_set_model). */
bool mcp_take_model_call(
    struct mcp_server *server, const droste_message *messages, size_t count, droste_call *call);
/* Asks the user of the client that waits for this code. False: there is none, or the client does
 * not offer that. For hosts that have the approvals of the program (droste_on_approval). */
bool mcp_take_approval(struct mcp_server *server, droste_approval *approval);
/* Sends the questions to clients that have come up; to be called after messages and after the
 * library's turns, before waiting. */
void mcp_flush(struct mcp_server *server);
/* Forgets what clients have not come back for; now and then. */
void mcp_sweep(struct mcp_server *server, uint64_t now_ns);
