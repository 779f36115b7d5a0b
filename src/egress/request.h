/* egress/request.h: requests to the proxy, and what goes on to the server. */
#pragma once

#include "base/buf.h"
#include "egress/address.h"
#include "egress/body.h"
#include "egress/grant.h"

enum { EGRESS_METHOD_SIZE = 33 };

/* A request to the proxy, by HTTP or SOCKS. */
struct egress_target {
    char method[EGRESS_METHOD_SIZE]; /* CONNECT: a tunnel; SOCKS: one by that protocol */
    bool is_tunnel;
    bool is_tls;      /* within TLS that the proxy has ended */
    bool keeps;       /* the connection may take another request */
    bool is_guarded;  /* a secret is bound to the destination */
    uint32_t secrets; /* those whose values are in the head, by their index in the policy */
    struct egress_host host;
    unsigned port;
    char *path;              /* of HTTP: with the query; NULL: a tunnel */
    struct egress_body body; /* of HTTP */
    struct buf head;         /* of HTTP: to send to the server */
};

void egress_target_clear(struct egress_target *target);

/* Where a request arrives. */
struct egress_scope {
    const struct egress_host *host; /* of the tunnel around it; NULL: at the proxy itself */
    unsigned port;
    const struct egress_grant *grant; /* with secrets; NULL: none */
};

/* Parses the head of a request. 0, or the status of the answer that refuses it, with the reason in
 * *why; then `target` has what was understood. */
int egress_request_parse(const char *data, size_t len, const struct egress_scope *scope,
    struct egress_target *target, const char **why);

/* What is known of an answer of the server. */
struct egress_answer {
    int status;
    bool keeps;    /* the server's connection may take another request */
    bool is_coded; /* compressed, or in another coding that hides its text */
    struct egress_body body;
};

/* Parses the head of the answer to the request, and appends what goes on to the client. False: it
 * is malformed. */
bool egress_answer_parse(const char *data, size_t len, const struct egress_target *target,
    struct egress_answer *answer, struct buf *out);
