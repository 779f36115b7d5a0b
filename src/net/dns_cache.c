/* net/dns_cache.c: resolves names with libuv, for CURLOPT_RESOLVE. */
#include "net/dns_cache.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"

#define DNS_CACHE_FRESH_SECONDS  60.0
#define DNS_CACHE_ADDRESSES_MOST 8

struct lookup {
    uv_getaddrinfo_t uv;         /* first: the request outlives a cache that is freed meanwhile */
    struct dns_cache *dns_cache; /* then NULL */
};

struct dns_cache {
    struct loop *loop;
    char *host;
    unsigned port;
    dns_cache_fn *ready;
    void *arg;
    char *entry;
    uint64_t looked_ns; /* when `entry` was last confirmed */
    struct lookup *lookup;
};

struct dns_cache *dns_cache_new(
    struct loop *loop, const char *host, unsigned port, dns_cache_fn *ready, void *arg)
{
    struct dns_cache *dns_cache = calloc(1, sizeof *dns_cache);
    if (!dns_cache || !(dns_cache->host = strdup(host))) {
        free(dns_cache);
        return NULL;
    }
    dns_cache->loop = loop;
    dns_cache->port = port;
    dns_cache->ready = ready;
    dns_cache->arg = arg;
    return dns_cache;
}

static void append_address(struct buf *b, const struct sockaddr *address, char separator)
{
    char text[INET6_ADDRSTRLEN];
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        if (inet_ntop(AF_INET, &in->sin_addr, text, sizeof text))
            buf_printf(b, "%c%s", separator, text);
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)address;
        if (inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text))
            buf_printf(b, "%c[%s]", separator, text);
    }
}

/* NULL without addresses. The '+' lets libcurl's cache expire the entry. */
static char *dns_cache_make_entry(const struct dns_cache *dns_cache, const struct addrinfo *list)
{
    struct buf b = { 0 };
    buf_printf(&b, "+%s:%u", dns_cache->host, dns_cache->port);
    size_t bare = b.len;
    int count = 0;
    for (const struct addrinfo *a = list; a && count < DNS_CACHE_ADDRESSES_MOST; a = a->ai_next)
        append_address(&b, a->ai_addr, count++ ? ',' : ':');
    if (b.len == bare) {
        buf_free(&b);
        return NULL;
    }
    return buf_steal(&b);
}

static void lookup_done(uv_getaddrinfo_t *uv, int status, struct addrinfo *list)
{
    struct lookup *lookup = (struct lookup *)uv;
    struct dns_cache *dns_cache = lookup->dns_cache;
    free(lookup);
    if (dns_cache) {
        bool waited_for = !dns_cache->entry;
        char *entry = status == 0 ? dns_cache_make_entry(dns_cache, list) : NULL;
        dns_cache->lookup = NULL;
        if (entry) { /* otherwise the old addresses are kept */
            free(dns_cache->entry);
            dns_cache->entry = entry;
        }
        if (dns_cache->entry)
            dns_cache->looked_ns = clock_ns();
        if (waited_for)
            dns_cache->ready(dns_cache->arg, entry        ? NULL
                                             : status < 0 ? uv_strerror(status)
                                                          : "no address");
    }
    uv_freeaddrinfo(list);
}

static bool lookup_start(struct dns_cache *dns_cache)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup)
        return false;
    lookup->dns_cache = dns_cache;
    if (uv_getaddrinfo(
            &dns_cache->loop->uv, &lookup->uv, lookup_done, dns_cache->host, NULL, &hints) < 0) {
        free(lookup);
        return false;
    }
    dns_cache->lookup = lookup;
    return true;
}

bool dns_cache_ready(struct dns_cache *dns_cache)
{
    if (dns_cache->entry && clock_seconds_since(dns_cache->looked_ns) < DNS_CACHE_FRESH_SECONDS)
        return true;
    if (!dns_cache->lookup && !lookup_start(dns_cache))
        return true;
    return dns_cache->entry != NULL;
}

const char *dns_cache_entry(const struct dns_cache *dns_cache)
{
    return dns_cache->entry;
}

void dns_cache_free(struct dns_cache *dns_cache)
{
    if (!dns_cache)
        return;
    if (dns_cache->lookup) {
        dns_cache->lookup->dns_cache = NULL;
        uv_cancel((uv_req_t *)&dns_cache->lookup->uv);
    }
    free(dns_cache->host);
    free(dns_cache->entry);
    free(dns_cache);
}
