/* serve/mcp/mcp.h: the Model Context Protocol over streamable HTTP, at /mcp.
 *
 * src/mcp speaks the protocol; here are its transport and its host. Up to 2025-11-25 a client has a
 * session (Mcp-Session-Id), whose id names its worker as a sandbox's does. Requests of 2026-07-28
 * have none: those of an account all go to one worker, which its id chooses, and share one user of
 * src/mcp, so that the names of Python sessions hold between requests. Python sessions are
 * sandboxes of the account.
 */
#pragma once

#include "mcp/mcp.h"
#include "serve/http/request.h"

/* For whom src/mcp asks for sandboxes. */
struct mcp_party {
    struct server *server;
    struct account *account;
};

struct mcp_event {
    struct mcp_event *next;
    unsigned number; /* in its stream, from 1 */
    size_t len;
    char text[]; /* as it is sent */
};

/* The messages for one request of a client, or those for none; kept so that a client whose
 * connection was cut gets them (Last-Event-ID). */
struct mcp_stream {
    struct mcp_service *service;
    struct mcp_http *session; /* NULL: of 2026-07-28, which resumes nothing */
    struct mcp_user *user;    /* then */
    struct request *r;        /* NULL: nothing is connected */
    unsigned number;
    bool is_listening; /* for messages of no request */
    bool is_sse, is_done;
    unsigned last, sent; /* the numbers of events that there were, and that were sent */
    uint64_t moved_ns;   /* when it was last sent to, or was done */
    struct mcp_event *events, **events_end;
    size_t bytes;
    struct mcp_stream *next;
};

/* A session of the protocol up to 2025-11-25. */
struct mcp_http {
    struct mcp_party party;
    struct mcp_service *service;
    char id[SERVE_ID_SIZE];
    struct mcp *mcp;
    struct mcp_peer *peer;
    struct mcp_stream *streams; /* the newest first */
    unsigned stream_count;      /* so far */
    size_t bytes;               /* of events of streams that are done */
    uint64_t used_ns;
    struct mcp_http *next, **link, *next_by_id;
};

/* An account's requests of 2026-07-28. */
struct mcp_user {
    struct mcp_party party;
    struct mcp *mcp;
    struct mcp_peer *peer;
    struct mcp_user *next;
};

enum { MCP_BUCKETS = 1024 };

struct mcp_service {
    struct server *server;
    struct mcp_server *core;
    struct mcp_http *sessions, *by_id[MCP_BUCKETS];
    size_t count;
    struct mcp_user *users;
};

extern const struct mcp_host serve_mcp_host;
extern const struct routes mcp_routes;

int mcp_service_open(struct server *s, struct error *err);
void mcp_service_close(struct server *s);
/* Before the loop waits. */
void mcp_service_flush(struct server *s);
void mcp_service_sweep(struct server *s, uint64_t now_ns);
/* Ends streams that would last, so that the server can stop. */
void mcp_service_drain(struct server *s);

/* ---- session.c ---- */

/* NULL without memory, or with as many as there may be. */
struct mcp_http *mcp_http_new(struct mcp_service *service, struct account *account);
struct mcp_http *mcp_http_find(struct mcp_service *service, const char *id);
/* Ends it with its Python sessions, and answers what waits. */
void mcp_http_end(struct mcp_http *h);
/* The one of an account; NULL without memory. */
struct mcp_user *mcp_user_of(struct mcp_service *service, struct account *account);

/* ---- stream.c ---- */

/* One for the request, of a session or a user; NULL: it was refused. */
struct mcp_stream *mcp_stream_new(
    struct request *r, struct mcp_service *service, struct mcp_http *h, struct mcp_user *user);
/* Whether a session may have one more for messages of no request. */
bool mcp_http_may_listen(const struct mcp_http *h);
/* Begins an answer as server-sent events, unless it has begun. */
void mcp_stream_begin(struct mcp_stream *st);
/* Connects a request to a stream that was cut, behind the event with this number. */
void mcp_stream_attach(struct mcp_stream *st, struct request *r, unsigned after);
/* What src/mcp sends: `arg` is a session, or NULL. */
void mcp_stream_on_message(void *arg, const struct mcp_message *message);
void mcp_stream_free(struct mcp_stream *st);
void mcp_streams_sweep(struct mcp_http *h, uint64_t now_ns);
void mcp_stream_keep_alive(struct mcp_stream *st, uint64_t now_ns);
