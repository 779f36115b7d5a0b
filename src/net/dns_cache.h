/* net/dns_cache.h: caches a host's addresses for a minute.
 *
 * libcurl resolves a name in a thread for each transfer that does not find it in its cache: a
 * thousand transfers that start together create a thousand threads. Instead, libuv resolves the
 * name once, and transfers receive the result (CURLOPT_RESOLVE).
 */
#pragma once

#include "base/loop.h"

struct dns_cache;
/* `error` is NULL, or the reason why no address was found. */
typedef void dns_cache_fn(void *arg, const char *error);

/* Calls `ready` when a lookup that a caller waits for has ended; NULL without memory. */
struct dns_cache *dns_cache_new(
    struct loop *loop, const char *host, unsigned port, dns_cache_fn *ready, void *arg);
/* True if the caller may proceed; otherwise `ready` will be called. Old addresses are used while
 * the name is resolved again. After a failure, the next call tries again. */
bool dns_cache_ready(struct dns_cache *dns_cache);
/* "+host:port:address[,address…]"; NULL: libcurl must resolve the name itself. */
const char *dns_cache_entry(const struct dns_cache *dns_cache);
/* NULL is fine. */
void dns_cache_free(struct dns_cache *dns_cache);
