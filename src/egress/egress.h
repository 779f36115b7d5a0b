/* egress/egress.h: the proxy through which a sandbox reaches the destinations that it may reach.
 *
 * The sandbox has a network namespace of its own with a loopback interface and no route. One socket
 * listens there, which was made before any of the guest's code ran and which the host holds. Over
 * it come HTTP (RFC 9112, whole URLs), CONNECT and SOCKS 5. The host resolves the name, once for
 * each connection, checks the addresses, and connects to one of those that it has checked. What
 * goes through a tunnel is not read, unless a rule or a secret needs it: then the proxy ends TLS
 * there, and reads the requests within like others.
 *
 * Everything runs on the loop's thread. Nothing waits: sockets do not block, and names are resolved
 * by libuv's threads.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/loop.h"
#include "egress/grant.h"

enum {
    EGRESS_PORT = 3128, /* of the listening socket, at 127.0.0.1 in the namespace */
    EGRESS_WHY_SIZE = 256,
};

/* A request of HTTP or a tunnel. Texts are valid during the call. */
struct egress_request {
    uint64_t number;    /* in its sandbox, from 1 */
    const char *method; /* "GET"…; "CONNECT" and "SOCKS": a tunnel */
    const char *host;   /* a name or an address; "": the request was malformed */
    unsigned port;
    const char *path;    /* with the query; NULL: a tunnel */
    const char *address; /* that it was connected to; NULL: none */
    bool is_refused, has_ended;
    const char *why;         /* it was refused, or failed; NULL: neither */
    int status;              /* of the server's answer, or of the proxy's; 0: none */
    uint64_t sent, received; /* bytes, to the server and from it */
    int64_t started_ms;
    double seconds;
};

struct egress_events {
    /* A request begins, or has ended; one that is refused has ended at once. False: it could not
     * be recorded, so it does not go on. */
    bool (*request)(void *arg, const struct egress_request *request);
    /* A request needs an approval: egress_answer follows, at once or later. Its path is NULL where
     * the whole destination asks. False: nothing here can ask. NULL: the same. */
    bool (*approve)(void *arg, droste_network_request *request);
};

/* What the proxies of a host share: fairness, and a limit of descriptors. */
struct egress_hub;
int egress_hub_open(struct loop *loop, struct egress_hub **out, struct error *err);
/* After its proxies; NULL is fine. */
void egress_hub_close(struct egress_hub *hub);

/* The answer to egress_policy_ask, or `approve`; frees the request. */
void egress_answer(droste_network_request *request, bool allow, const char *reason);

struct egress;
/* Takes the listening socket, also after a failure. `events` must outlive the proxy. */
int egress_open(struct egress_hub *hub, struct egress_grant *grant, int listener,
    const struct egress_events *events, void *arg, struct egress **out, struct error *err);
/* Ends all connections; each is reported. NULL is fine. */
void egress_close(struct egress *proxy);
