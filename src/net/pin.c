/* net/pin.c: see pin.h. */
#include "net/pin.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"

#define PIN_FRESH_SECONDS  60.0
#define PIN_ADDRESSES_MOST 8

struct lookup {
    uv_getaddrinfo_t uv; /* first: the request outlives a pin that is freed while it runs */
    struct pin *pin;     /* NULL then */
};

struct pin {
    struct loop *loop;
    char *host;
    unsigned port;
    pin_fn *ready;
    void *arg;
    char *entry;
    uint64_t looked_ns; /* when `entry` was last confirmed */
    struct lookup *lookup;
};

struct pin *pin_new(struct loop *loop, const char *host, unsigned port, pin_fn *ready, void *arg)
{
    struct pin *pin = calloc(1, sizeof *pin);
    if (!pin || !(pin->host = strdup(host))) {
        free(pin);
        return NULL;
    }
    pin->loop = loop;
    pin->port = port;
    pin->ready = ready;
    pin->arg = arg;
    return pin;
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

/* NULL if there is no address to name. The '+' lets libcurl's cache forget the entry in time. */
static char *make_entry(const struct pin *pin, const struct addrinfo *list)
{
    struct buf b = { 0 };
    buf_printf(&b, "+%s:%u", pin->host, pin->port);
    size_t bare = b.len;
    int count = 0;
    for (const struct addrinfo *a = list; a && count < PIN_ADDRESSES_MOST; a = a->ai_next)
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
    struct pin *pin = lookup->pin;
    free(lookup);
    if (pin) {
        bool waited_for = !pin->entry;
        char *entry = status == 0 ? make_entry(pin, list) : NULL;
        pin->lookup = NULL;
        if (entry) { /* else the old addresses are better than none */
            free(pin->entry);
            pin->entry = entry;
        }
        if (pin->entry)
            pin->looked_ns = clock_ns();
        if (waited_for)
            pin->ready(pin->arg, entry ? NULL : status < 0 ? uv_strerror(status) : "no address");
    }
    uv_freeaddrinfo(list);
}

static bool lookup_start(struct pin *pin)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup)
        return false;
    lookup->pin = pin;
    if (uv_getaddrinfo(&pin->loop->uv, &lookup->uv, lookup_done, pin->host, NULL, &hints) < 0) {
        free(lookup);
        return false;
    }
    pin->lookup = lookup;
    return true;
}

bool pin_ready(struct pin *pin)
{
    if (pin->entry && clock_seconds_since(pin->looked_ns) < PIN_FRESH_SECONDS)
        return true;
    if (!pin->lookup && !lookup_start(pin))
        return true;
    return pin->entry != NULL;
}

const char *pin_entry(const struct pin *pin)
{
    return pin->entry;
}

void pin_free(struct pin *pin)
{
    if (!pin)
        return;
    if (pin->lookup) {
        pin->lookup->pin = NULL;
        uv_cancel((uv_req_t *)&pin->lookup->uv);
    }
    free(pin->host);
    free(pin->entry);
    free(pin);
}
