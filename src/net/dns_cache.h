/* net/dns_cache.h: a host's addresses, looked up once and not again for a minute.
 *
 * libcurl looks a name up once for each transfer that finds none in its cache, in a thread each:
 * a thousand transfers that start together on a fresh cache are a thousand threads. So the name is
 * looked up here, by libuv, and each transfer is told the answer (CURLOPT_RESOLVE).
 */
#ifndef DROSTE_NET_DNS_CACHE_H
#define DROSTE_NET_DNS_CACHE_H

#include "base/loop.h"

struct dns_cache;
/* `error` is NULL, or says why no address was found. */
typedef void dns_cache_fn(void *arg, const char *error);

/* `ready` is called when a look-up ended for which somebody waits; NULL without memory. */
struct dns_cache *dns_cache_new(
    struct loop *loop, const char *host, unsigned port, dns_cache_fn *ready, void *arg);
/* True if the caller may go on; else `ready` will come. Old addresses go on being used while new
 * ones are looked up; a look-up that failed is made again for the next who asks. */
bool dns_cache_ready(struct dns_cache *dns_cache);
/* "+host:port:address[,address…]"; NULL: libcurl must look itself. */
const char *dns_cache_entry(const struct dns_cache *dns_cache);
/* NULL is fine. */
void dns_cache_free(struct dns_cache *dns_cache);

#endif
