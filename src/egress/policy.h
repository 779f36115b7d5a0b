/* egress/policy.h: the destinations that a sandbox may reach.
 *
 * A rule is one of
 *
 *     none                            nothing; the default
 *     all                             every public address
 *     HOST:PORT                       a name, an address, or *.NAME for the names below it; PORT
 *                                     may be *
 *     [METHOD] http://HOST[:PORT]/PATH   requests of HTTP; in PATH, * stands for a part without a
 *                                     slash, and ** for any
 *
 * A name's address must be public, unless a rule lists the address itself, with the port.
 */
#ifndef DROSTE_EGRESS_POLICY_H
#define DROSTE_EGRESS_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "egress/address.h"

struct egress_policy;

/* Limits of a sandbox's network; 0: none. */
struct egress_limits {
    uint64_t bytes;    /* in both directions together */
    uint64_t requests; /* requests of HTTP and tunnels, refused ones included */
    double seconds;    /* of one request or tunnel */
};

/* Parses rules: *out is NULL if they allow nothing. ERROR_ARGUMENT names the rule and a remedy. */
int egress_policy_parse(const struct list *rules, const struct egress_limits *limits,
    struct egress_policy **out, struct error *err);
/* A further reference; NULL is fine. */
struct egress_policy *egress_policy_hold(struct egress_policy *policy);
void egress_policy_release(struct egress_policy *policy);

const struct egress_limits *egress_policy_limits(const struct egress_policy *policy);
/* A tunnel, whose contents are not read. */
bool egress_policy_allows_tunnel(
    const struct egress_policy *policy, const struct egress_host *host, unsigned port);
/* A request of HTTP; `path` begins with a slash and has its query. */
bool egress_policy_allows_request(const struct egress_policy *policy,
    const struct egress_host *host, unsigned port, const char *method, const char *path);
/* Whether a rule lists this address itself; port 0: with any port. */
bool egress_policy_lists(
    const struct egress_policy *policy, const struct egress_address *address, unsigned port);

#endif
