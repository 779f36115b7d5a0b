/* droste/network.h: decisions about requests to the network in code (docs/network.md).
 *
 * The program is asked about each request and tunnel that the setting "allow-net" allows, before
 * the host's name is resolved. Where the proxy does not end TLS, it is asked about the tunnel.
 */
#ifndef DROSTE_NETWORK_H
#define DROSTE_NETWORK_H

#include <stddef.h>

#include "droste/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct droste_network_request {
    const char *method; /* "GET"…; "CONNECT" and "SOCKS": a tunnel */
    const char *host;   /* a name in lower case, or an address */
    unsigned port;
    const char *path; /* with the query, in which secrets are placeholders; NULL: a tunnel */
    /* the names of the secrets that the proxy would put in; NULL ends the list */
    const char *const *secrets;
} droste_network_request;

/* Of sessions and runs that begin afterwards, with their forks and child runs: is asked about each
 * request. The function, or the program later, in the loop's thread, calls droste_network_answer
 * once for each; until then the request is valid, also if the code does not wait for it any more.
 * It must not wait, nor close anything. A request without an answer is refused after a minute, or
 * net-timeout if that is less. NULL: those that begin afterwards do not ask. */
typedef void droste_network_fn(void *arg, droste_network_request *request);
DROSTE_API void droste_on_network(droste *d, droste_network_fn *fn, void *arg);
/* Decides, and frees the request. `reason` of a refusal, which the record keeps and the code sees,
 * may be NULL. */
DROSTE_API void droste_network_answer(
    droste_network_request *request, int allow, const char *reason);

/* Whether a rule of the setting "allow-net" allows all that another one does: 1 or 0. "all" covers
 * no rule that lists a private address or one of this machine. ERROR_ARGUMENT (negative): one of
 * them is no rule; "none" is not. */
DROSTE_API int droste_network_covers(const char *rule, const char *asked, droste_error *err);

#ifdef __cplusplus
}
#endif

#endif
