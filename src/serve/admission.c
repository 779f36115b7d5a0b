/* serve/admission.c: see admission.h.
 *
 * Fair queueing with a virtual time: each account has the number of its next start, one more than
 * its last, but never behind that of the server; the lowest is served next. These numbers are in
 * the table that the workers share. Each worker has a queue of its own and publishes its lowest
 * number; one with room for a start leaves it to the worker with a lower number, and wakes that.
 */
#include "serve/admission.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "serve/server.h"
#include "serve/workers.h"

/* More starts at once only take turns on the processors. */
enum { ADMISSION_STARTS = 32 };
/* Requests that wait, of one key and of all. */
enum { ADMISSION_KEY_MAX = 1024, ADMISSION_MAX = 8192 };

/* The other worker that has a request with a lower number; -1: none. */
static int admission_first(const struct server *s)
{
    uint64_t lowest = s->figures->next_start;
    int first = -1;
    for (unsigned i = 0; i < s->table->workers; i++) {
        uint64_t start = s->table->worker[i].next_start;
        if (i == s->worker || start == 0 || (lowest > 0 && start >= lowest))
            continue;
        lowest = start;
        first = (int)i;
    }
    return first;
}

static void admission_refuse(
    struct request *r, enum table_counter why, double wait, const char *code, const char *text)
{
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%.0f", fmax(1, ceil(wait)));
    table_count(r->server->figures, why, 1);
    r->account->row->refused++;
    request_refuse(r, 429, code, "%s", text);
    request_header(r, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
}

/* False: the server is full. */
static bool admission_try(struct request *r, void (*go)(struct request *r))
{
    struct server *s = r->server;
    struct account *a = r->account;
    double wait = 0;
    enum table_answer answer = table_reserve(s->table, s->worker, a->index, &a->key.limits,
        s->options->max_sandboxes, clock_ns(), &wait);
    if (answer == TABLE_FULL)
        return false;
    if (answer == TABLE_RATE) {
        admission_refuse(r, COUNT_REFUSED_RATE, wait, "rate",
            "this key starts sandboxes faster than it may; wait as Retry-After says");
        return true;
    }
    if (answer == TABLE_SANDBOXES) {
        admission_refuse(r, COUNT_REFUSED_SANDBOXES, 1, "sandboxes",
            "this key has as many sandboxes as it may have; end some");
        return true;
    }
    r->has_place = r->is_starting = true;
    s->starting++;
    uint64_t start = a->row->next_start, now = s->table->virtual_start;
    start = start > now ? start : now;
    a->row->next_start = start + 1;
    s->table->virtual_start = start;
    go(r);
    return true;
}

/* ---- waiting ---- */

static void admission_leave(struct request *r)
{
    struct server *s = r->server;
    *r->waiting_link = r->waiting_next;
    if (r->waiting_next)
        r->waiting_next->waiting_link = r->waiting_link;
    else
        s->waiting_end = r->waiting_link;
    r->waiting_link = NULL;
    r->account->waiting--;
    s->figures->gauges[GAUGE_WAITING]--;
}

static void admission_wait(struct request *r, void (*go)(struct request *r))
{
    struct server *s = r->server;
    if (s->options->queue_seconds <= 0 || r->account->waiting >= ADMISSION_KEY_MAX ||
        s->figures->gauges[GAUGE_WAITING] >= ADMISSION_MAX) {
        admission_refuse(r, COUNT_REFUSED_CAPACITY, 1, "capacity",
            "the server has as many sandboxes as it may have, or too many requests wait for one");
        return;
    }
    if (!s->waiting_end)
        s->waiting_end = &s->waiting;
    r->admitted = go;
    r->waiting_ns = clock_ns();
    r->waiting_next = NULL;
    r->waiting_link = s->waiting_end;
    *s->waiting_end = r;
    s->waiting_end = &r->waiting_next;
    r->account->waiting++;
    s->figures->gauges[GAUGE_WAITING]++;
    r->on_gone = admission_leave;
}

void admission_ask(struct request *r, void (*go)(struct request *r))
{
    struct server *s = r->server;
    if (s->draining) {
        request_refuse(r, 503, "draining", "the server is stopping; use another one");
        return;
    }
    if (s->starting >= ADMISSION_STARTS || s->waiting || admission_first(s) >= 0 ||
        !admission_try(r, go))
        admission_wait(r, go);
}

void admission_end(struct request *r)
{
    if (r->has_place) {
        table_release(r->server->table, r->server->worker, r->account->index);
        r->server->has_released = true;
    }
    if (r->is_starting)
        r->server->starting--;
    if (r->held_cost > 0)
        table_hold(r->account->row, r->server->worker, -r->held_cost);
    r->has_place = r->is_starting = false;
    r->held_cost = 0;
}

/* ---- serving ---- */

static struct request *admission_next(struct server *s)
{
    struct request *best = NULL;
    for (struct request *r = s->waiting; r; r = r->waiting_next)
        if (!best || r->account->row->next_start < best->account->row->next_start)
            best = r;
    return best;
}

static void admission_publish(struct server *s)
{
    const struct request *next = s->starting < ADMISSION_STARTS ? admission_next(s) : NULL;
    s->figures->next_start = next ? next->account->row->next_start + 1 : 0;
}

/* Leaves the next start to the worker that has it; false: that is this one. */
static bool admission_pass_on(struct server *s)
{
    int first = admission_first(s);
    if (first >= 0)
        worker_wake(s, (unsigned)first);
    return first >= 0;
}

static void admission_expire(struct server *s, uint64_t now_ns)
{
    struct request *next;
    for (struct request *r = s->waiting; r; r = next) {
        next = r->waiting_next;
        if (!s->draining && (double)(now_ns - r->waiting_ns) / 1e9 <= s->options->queue_seconds)
            continue;
        admission_leave(r);
        r->on_gone = NULL;
        if (s->draining)
            request_refuse(r, 503, "draining", "the server is stopping; use another one");
        else
            admission_refuse(r, COUNT_REFUSED_CAPACITY, 1, "capacity",
                "the server had no place for a sandbox in time; try again");
    }
}

void admission_serve(struct server *s, uint64_t now_ns)
{
    if (s->waiting)
        admission_expire(s, now_ns);
    admission_publish(s);
    bool has_changed = s->has_released;
    s->has_released = false;
    while (s->waiting && s->starting < ADMISSION_STARTS &&
           table_sandboxes(s->table) < s->options->max_sandboxes) {
        if (admission_pass_on(s))
            return;
        struct request *r = admission_next(s);
        void (*go)(struct request *) = r->admitted;
        admission_leave(r);
        r->on_gone = NULL;
        if (!admission_try(r, go)) {
            admission_wait(r, go); /* another worker was faster */
            return;
        }
        admission_publish(s);
        has_changed = true;
    }
    if (has_changed)
        admission_pass_on(s);
}
