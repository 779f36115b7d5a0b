/* egress/connection.h: a connection of the guest to the proxy, shared by the files that serve it:
 * proxy.c (accepts), connection.c (phases, tunnels, ends), socks.c, exchange.c (HTTP), dial.c.
 */
#pragma once

#include "base/fifo.h"
#include "egress/egress.h"
#include "egress/question.h"
#include "egress/request.h"

enum {
    EGRESS_PIECE = 64 << 10,
    EGRESS_BULK = 1 << 20,
    EGRESS_CONNECTIONS_MAX = 32, /* of a sandbox */
    DIAL_ADDRESSES_MAX = 8,
};

struct egress_hub {
    struct loop *loop;
    unsigned open, open_most;         /* connections of all proxies */
    uint64_t tick;                    /* a millisecond of the loop */
    unsigned busy;                    /* connections that moved data in it */
    struct connection *first, **last; /* those that wait for their turn */
    unsigned turns, at_turn; /* how many may still go on in this millisecond; how many do */
    struct timer *turn;
    struct egress *proxies;
    struct lookup *lookups; /* names that are being resolved */
    char *bulk;             /* EGRESS_BULK bytes; NULL: not needed yet */
};

struct egress {
    struct egress_hub *hub;
    struct egress *next;
    struct egress_grant *grant;
    struct egress_policy *policy; /* of the grant */
    const struct egress_events *events;
    void *arg;
    int listener;
    struct watch *watch;
    bool listens;
    struct timer *sweep; /* looks for connections that have exceeded their time */
    struct connection *connections;
    unsigned count;
    uint64_t bytes, requests;
    bool told_limit;
};

enum phase {
    PHASE_GREETING, /* the head of a request of HTTP, or the first message of SOCKS */
    PHASE_SOCKS,    /* the request of SOCKS */
    PHASE_TLS,      /* the guest's handshake, in a tunnel where TLS ends */
    PHASE_ASK,      /* the program decides */
    PHASE_DIAL,
    PHASE_SECURE,   /* the handshake with the server */
    PHASE_EXCHANGE, /* HTTP */
    PHASE_TUNNEL,
    PHASE_LAST,   /* what is left goes to the client */
    PHASE_LINGER, /* until the client has read it: closing earlier would discard it */
    PHASE_CLOSED,
};

/* One of the two sockets. */
struct side {
    int fd;
    struct watch *watch;
    int events;
    struct fifo out;
    struct egress_tls *tls; /* NULL: none, or it is not the proxy's */
    bool has_ended;         /* it sends no more */
    bool is_shut;           /* it was told that nothing more comes */
    bool is_deaf;           /* what it sends is not read any more */
};

struct lookup;

struct dial {
    struct lookup *lookup;
    struct egress_address addresses[DIAL_ADDRESSES_MAX];
    size_t count, at;
    bool waits;          /* for other names */
    uint64_t attempt_ns; /* when the present attempt began */
};

struct connection {
    struct egress *proxy;
    struct connection *next, **slot; /* of its proxy */
    struct connection *next_turn;    /* of those that wait for their turn */
    bool waits, has_turn;
    bool is_large; /* the last piece from the server was a whole one */
    uint64_t tick;
    enum phase phase;
    struct side client, server;
    struct buf in; /* what was read of a head */
    size_t scanned;
    struct buf behind; /* what has come of the request after this one */
    bool is_tls;       /* TLS ends here; `host` and `port` are the tunnel's */
    struct egress_host host;
    unsigned port;
    bool is_cut;    /* the server ended its answer as if it were cut, and so does the proxy */
    bool is_reused; /* the server's connection has served another request */
    struct egress_redactor redactor;
    struct egress_target target;
    struct egress_answer answer;
    bool is_socks, has_answer;
    struct egress_question *question; /* PHASE_ASK */
    struct dial dial;
    uint64_t until_ns; /* the phase ends then */
    uint64_t number;   /* of the request; 0: none yet, or it has ended */
    uint64_t began_ns;
    int64_t began_ms;
    char address[EGRESS_ADDRESS_SIZE + 8];
    char why[EGRESS_WHY_SIZE];
    int status;
    uint64_t sent, received;
};

/* ---- connection.c ---- */

/* Takes the socket. False: no memory. */
bool connection_open(struct egress *proxy, int fd);
/* Ends it and frees it. */
void connection_close(struct connection *c);
/* Goes on with what its turn was awaited for. */
void connection_resume(struct connection *c);
/* The request is understood: decides about it, and dials. */
void connection_ask(struct connection *c);
/* The program has answered, outside of question_ask. */
void connection_decided(struct connection *c);
/* Refuses it with this status of HTTP, or what corresponds to it. */
void connection_refuse(struct connection *c, int status, const char *why);
/* It failed after it was permitted. */
void connection_fail(struct connection *c, int status, const char *why);
/* The server is connected. */
void connection_dialled(struct connection *c);
/* After an event: ends what has ended, which frees it, and waits for the next event. */
void connection_settle(struct connection *c);
/* Its time has passed; may free it. */
void connection_expire(struct connection *c);
/* Sends, and keeps what does not fit. False: it has failed. */
bool side_send(struct side *side, const void *data, size_t len);
/* The exchange has ended, and another request may follow. */
void connection_next(struct connection *c);
/* Counts bytes; false: the limit is reached, and the connection has been ended. */
bool connection_count(struct connection *c, uint64_t *which, size_t n);
void connection_last(struct connection *c);

/* ---- socks.c ---- */

/* Reads messages of SOCKS from c->in. */
void socks_step(struct connection *c);
/* Answers the request; `status` is of HTTP, 200: it is connected. */
void socks_answer(struct connection *c, int status);

/* ---- exchange.c ---- */

/* Reads a head of HTTP from c->in. */
void exchange_step(struct connection *c);
/* Sends the request to the server, which is connected. */
void exchange_begin(struct connection *c);
void exchange_from_client(struct connection *c, const char *data, size_t len);
void exchange_from_server(struct connection *c, const char *data, size_t len);
/* The server has closed the connection, or it broke. */
void exchange_server_ended(struct connection *c, bool broke);
/* Writes an answer of the proxy itself. */
void exchange_answer(struct connection *c, int status, const char *why);

/* ---- dial.c ---- */

/* Resolves the host and connects: connection_dialled or connection_fail follows, maybe at once. */
void dial_begin(struct connection *c);
/* Gives up an attempt that takes long, if there is another address. */
void dial_check_time(struct connection *c);
/* Forgets what is on its way. */
void dial_cancel(struct connection *c);
/* Lookups go on when the sandbox, or the loop's environment, is closed. */
void dial_forget_sandbox(const struct egress *proxy);
void dial_forget_hub(struct egress_hub *hub);

/* ---- proxy.c ---- */

/* Whether the connection must wait for its turn; it is resumed then. */
bool hub_puts_off(struct connection *c);
void hub_forget(struct connection *c);
/* Whether a connection may move more than a piece, through hub->bulk. */
bool hub_is_calm(struct egress_hub *hub);
/* A connection was closed: others may be accepted. */
void proxy_accept_again(struct egress *proxy);
