/* env/local/pool.c: refills the pool when the loop is idle.
 *
 * The pool keeps one kind at a time, the one requested last. Refilling waits a moment, so that the
 * first cell of the session that took a member runs first, and creates one member at a time.
 */
#include "env/local/pool.h"

#include <stdlib.h>
#include <string.h>

enum {
    REFILL_DELAY_MS = 2,
    REFILL_NEXT_MS = 1, /* with 0, libuv would make all of them before it serves anything else */
};

struct member {
    struct member *next;
    struct pool *pool;
    struct sandbox *sandbox;
    const struct zygote *zygote;
    struct jail_limits limits;
};

struct pool {
    pool_make_fn *make;
    pool_close_fn *close;
    void *arg;
    struct timer *refill;
    struct member *members;
    struct zygote *zygote; /* of the kind that is kept; NULL: none */
    struct jail_limits limits;
    unsigned wanted;
};

static void unlink_member(struct member *m)
{
    for (struct member **at = &m->pool->members; *at; at = &(*at)->next) {
        if (*at != m)
            continue;
        *at = m->next;
        return;
    }
}

/* A member must not send anything before its first message; one that does is broken. */
static bool member_bytes(void *arg, const char *data, size_t len)
{
    return true;
}

static void member_output(void *arg, int stream, const char *data, size_t len)
{
}

static void member_ended(void *arg, const struct sandbox_exit *how)
{
    struct member *m = arg;
    unlink_member(m);
    /* The zygote cannot clone any more; the next open reports why. */
    m->pool->wanted = 0;
    m->pool->close(m->sandbox);
    free(m);
}

static const struct sandbox_events member_events = { member_bytes, member_output, member_ended };

static bool is_kind(
    const struct member *m, const struct zygote *z, const struct jail_limits *limits)
{
    return m->zygote == z && memcmp(&m->limits, limits, sizeof *limits) == 0;
}

/* Members of all kinds. */
static unsigned pool_size(const struct pool *p)
{
    unsigned n = 0;
    for (const struct member *m = p->members; m; m = m->next)
        n++;
    return n;
}

static void pool_refill(void *arg)
{
    struct pool *p = arg;
    struct error err = { 0 };
    if (!p->zygote || pool_size(p) >= p->wanted)
        return;
    struct member *m = calloc(1, sizeof *m);
    if (!m)
        return;
    *m = (struct member){ .pool = p, .zygote = p->zygote, .limits = p->limits };
    if (p->make(p->arg, p->zygote, &p->limits, &member_events, m, &m->sandbox, &err) < 0) {
        free(m); /* the next open reports why */
        p->wanted = 0;
        return;
    }
    m->next = p->members;
    p->members = m;
    if (pool_size(p) < p->wanted)
        timer_start(p->refill, REFILL_NEXT_MS, 0);
}

int pool_open(struct loop *loop, pool_make_fn *make, pool_close_fn *close, void *arg,
    struct pool **out, struct error *err)
{
    struct pool *p = calloc(1, sizeof *p);
    if (!p)
        return error_memory(err);
    *p = (struct pool){ .make = make, .close = close, .arg = arg };
    p->refill = timer_new(loop, pool_refill, p);
    if (!p->refill) {
        free(p);
        return error_memory(err);
    }
    *out = p;
    return 0;
}

static void pool_drop(struct member *m)
{
    unlink_member(m);
    m->pool->close(m->sandbox);
    free(m);
}

void pool_close(struct pool *p)
{
    if (!p)
        return;
    while (p->members)
        pool_drop(p->members);
    timer_free(p->refill);
    free(p);
}

void pool_forget(struct pool *p, const struct zygote *z)
{
    for (struct member *m = p->members, *next; m; m = next) {
        next = m->next;
        if (m->zygote == z)
            pool_drop(m);
    }
    if (p->zygote == z)
        p->zygote = NULL;
}

struct sandbox *pool_take(struct pool *p, const struct zygote *z, const struct jail_limits *limits)
{
    for (struct member *m = p->members; m; m = m->next) {
        struct sandbox *s = m->sandbox;
        if (!is_kind(m, z, limits))
            continue;
        unlink_member(m);
        free(m);
        return s;
    }
    return NULL;
}

void pool_keep(struct pool *p, struct zygote *z, const struct jail_limits *limits, unsigned wanted)
{
    unsigned kept = 0;
    for (struct member *m = p->members, *next; m; m = next) {
        next = m->next;
        if (!is_kind(m, z, limits) || kept++ >= wanted)
            pool_drop(m);
    }
    p->zygote = z;
    p->limits = *limits;
    p->wanted = wanted;
    if (pool_size(p) < wanted)
        timer_start(p->refill, REFILL_DELAY_MS, 0);
}
