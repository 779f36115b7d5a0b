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
 *     [METHOD] https://HOST[:PORT]/PATH  likewise: the proxy ends TLS there
 *     ask RULE                        one of these but "none", for which an approval is needed
 *
 * A name's address must be public, unless a rule lists the address itself, with the port. A policy
 * may have secrets, see secret.h; where one is bound, the proxy ends TLS, too.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "droste/network.h"
#include "egress/address.h"
#include "egress/redact.h"
#include "egress/secret.h"
#include "egress/tls.h"

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
/* Whether `rule` allows all that `asked` does, without an approval where that has none. "all"
 * covers no rule that lists an address which is refused unless it is listed. ERROR_ARGUMENT if one
 * of them is no rule, such as "none". */
int egress_rule_covers(const char *rule, const char *asked, bool *out, struct error *err);
/* Adds a secret with its value; a rule must allow its destination. Takes it, also after a
 * failure. */
int egress_policy_add_secret(
    struct egress_policy *policy, struct egress_secret *secret, struct error *err);
/* Trusts the certificates of the file besides the system's; NULL: only those. */
int egress_policy_trust(struct egress_policy *policy, const char *file, struct error *err);
/* Has the program decide about what rules allow; NULL: rules alone do. */
void egress_policy_on_request(struct egress_policy *policy, droste_network_fn *fn, void *arg);
/* A further reference; NULL is fine. */
struct egress_policy *egress_policy_hold(struct egress_policy *policy);
void egress_policy_release(struct egress_policy *policy);

const struct egress_limits *egress_policy_limits(const struct egress_policy *policy);
/* Whether the program decides, too; then asks it, which egress_answer answers. */
bool egress_policy_asks(const struct egress_policy *policy);
void egress_policy_ask(const struct egress_policy *policy, droste_network_request *request);
/* A tunnel, whose contents are not read. */
bool egress_policy_allows_tunnel(
    const struct egress_policy *policy, const struct egress_host *host, unsigned port);
/* A request of HTTP; `path` begins with a slash and has its query. */
bool egress_policy_allows_request(const struct egress_policy *policy, bool is_tls,
    const struct egress_host *host, unsigned port, const char *method, const char *path);
/* What is allowed only by rules that need an approval; *whole: for the whole destination. */
bool egress_policy_needs_approval(const struct egress_policy *policy, bool is_tunnel, bool is_tls,
    const struct egress_host *host, unsigned port, const char *method, const char *path,
    bool *whole);
/* Whether the proxy ends TLS of tunnels to it, because it must read the requests. */
bool egress_policy_ends_tls(
    const struct egress_policy *policy, const struct egress_host *host, unsigned port);
/* Whether it ends TLS of any. */
bool egress_policy_ends_any(const struct egress_policy *policy);
/* Whether a secret is bound to it. */
bool egress_policy_guards(
    const struct egress_policy *policy, bool is_tls, const struct egress_host *host, unsigned port);
size_t egress_policy_secret_count(const struct egress_policy *policy);
const struct egress_secret *egress_policy_secret(const struct egress_policy *policy, size_t i);
/* NULL: there are no secrets. */
const struct egress_forms *egress_policy_forms(const struct egress_policy *policy);
struct egress_trust *egress_policy_trusted(const struct egress_policy *policy);
/* Whether a rule lists this address itself; port 0: with any port. */
bool egress_policy_lists(
    const struct egress_policy *policy, const struct egress_address *address, unsigned port);
