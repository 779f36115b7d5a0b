/* egress/request.h: requests to the proxy, and what goes on to the server. */
#ifndef DROSTE_EGRESS_REQUEST_H
#define DROSTE_EGRESS_REQUEST_H

#include "base/buf.h"
#include "egress/address.h"
#include "egress/body.h"

enum { EGRESS_METHOD_SIZE = 33 };

/* A request to the proxy, by HTTP or SOCKS. */
struct egress_target {
    char method[EGRESS_METHOD_SIZE]; /* CONNECT: a tunnel; SOCKS: one by that protocol */
    bool is_tunnel;
    struct egress_host host;
    unsigned port;
    char *path;              /* of HTTP: with the query; NULL: a tunnel */
    struct egress_body body; /* of HTTP */
    struct buf head;         /* of HTTP: to send to the server */
};

void egress_target_clear(struct egress_target *target);

/* Parses the head of a request. 0, or the status of the answer that refuses it, with the reason in
 * *why; then `target` has what was understood. */
int egress_request_parse(
    const char *data, size_t len, struct egress_target *target, const char **why);

/* What is known of an answer of the server. */
struct egress_answer {
    int status;
    struct egress_body body;
};

/* Parses the head of the answer to a request with this method, and appends what goes on to the
 * client. False: it is malformed. */
bool egress_answer_parse(const char *data, size_t len, const char *method,
    struct egress_answer *answer, struct buf *out);

#endif
