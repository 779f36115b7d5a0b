/* serve/access/admission.c: see admission.h.
 *
 * Fair queueing with a virtual time: each account has the number of its next start, one more than
 * its last, but never behind that of the server; the lowest is served next. These numbers are in
 * the table that the workers share. Each worker has a queue of its own and publishes its lowest
 * number; one with room for a start leaves it to the worker with a lower number, and wakes that.
 */
#include "serve/access/admission.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "base/clock.h"
#include "serve/http/request.h"
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
    struct admission *a, enum table_counter why, double wait, const char *code, const char *text)
{
    table_count(a->server->figures, why, 1);
    a->account->row->refused++;
    a->refuse(a, 429, code, text, fmax(1, ceil(wait)));
}

static void admission_refuse_draining(struct admission *a)
{
    a->refuse(a, 503, "draining", "the server is stopping; use another one", 0);
}

/* False: the server is full. */
static bool admission_try(struct admission *a)
{
    struct server *s = a->server;
    struct account *account = a->account;
    double wait = 0;
    enum table_answer answer = table_reserve(s->table, s->worker, account->index,
        &account->key.limits, s->options->max_sandboxes, clock_ns(), &wait);
    if (answer == TABLE_FULL)
        return false;
    if (answer == TABLE_RATE) {
        admission_refuse(a, COUNT_REFUSED_RATE, wait, "rate",
            "this key starts sandboxes faster than it may; wait as Retry-After says");
        return true;
    }
    if (answer == TABLE_SANDBOXES) {
        admission_refuse(a, COUNT_REFUSED_SANDBOXES, 1, "sandboxes",
            "this key has as many sandboxes as it may have; end some");
        return true;
    }
    a->has_place = a->is_starting = true;
    s->starting++;
    uint64_t start = account->row->next_start, now = s->table->virtual_start;
    start = start > now ? start : now;
    account->row->next_start = start + 1;
    s->table->virtual_start = start;
    a->go(a);
    return true;
}

/* ---- waiting ---- */

static void admission_unqueue(struct admission *a)
{
    struct server *s = a->server;
    *a->link = a->next;
    if (a->next)
        a->next->link = a->link;
    else
        s->waiting_end = a->link;
    a->link = NULL;
    a->account->waiting--;
    s->figures->gauges[GAUGE_WAITING]--;
}

static void admission_wait(struct admission *a)
{
    struct server *s = a->server;
    if (s->options->queue_seconds <= 0 || a->account->waiting >= ADMISSION_KEY_MAX ||
        s->figures->gauges[GAUGE_WAITING] >= ADMISSION_MAX) {
        admission_refuse(a, COUNT_REFUSED_CAPACITY, 1, "capacity",
            "the server has as many sandboxes as it may have, or too many requests wait for one");
        return;
    }
    if (!s->waiting_end)
        s->waiting_end = &s->waiting;
    a->since_ns = clock_ns();
    a->next = NULL;
    a->link = s->waiting_end;
    *s->waiting_end = a;
    s->waiting_end = &a->next;
    a->account->waiting++;
    s->figures->gauges[GAUGE_WAITING]++;
}

void admission_seek(struct admission *a)
{
    struct server *s = a->server;
    if (s->draining)
        admission_refuse_draining(a);
    else if (s->starting >= ADMISSION_STARTS || s->waiting || admission_first(s) >= 0 ||
             !admission_try(a))
        admission_wait(a);
}

void admission_settle(struct admission *a)
{
    if (a->is_starting)
        a->server->starting--;
    a->is_starting = false;
}

void admission_leave(struct admission *a)
{
    if (a->link)
        admission_unqueue(a);
    if (a->has_place) {
        table_release(a->server->table, a->server->worker, a->account->index);
        a->server->has_released = true;
    }
    a->has_place = false;
    admission_settle(a);
}

/* ---- requests ---- */

static struct request *admission_request(struct admission *a)
{
    return (struct request *)((char *)a - offsetof(struct request, admission));
}

static void admission_go_request(struct admission *a)
{
    struct request *r = admission_request(a);
    r->on_gone = NULL;
    r->admitted(r);
}

static void admission_refuse_request(
    struct admission *a, unsigned status, const char *code, const char *text, double wait)
{
    struct request *r = admission_request(a);
    char seconds[16];
    r->on_gone = NULL;
    snprintf(seconds, sizeof seconds, "%.0f", wait);
    request_refuse(r, status, code, "%s", text);
    if (wait > 0)
        request_header(r, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
}

static void admission_on_gone(struct request *r)
{
    admission_leave(&r->admission);
}

void admission_ask(struct request *r, void (*go)(struct request *r))
{
    struct admission *a = &r->admission;
    a->server = r->server;
    a->account = r->account;
    a->go = admission_go_request;
    a->refuse = admission_refuse_request;
    r->admitted = go;
    admission_seek(a);
    if (a->link)
        r->on_gone = admission_on_gone;
}

void admission_end(struct request *r)
{
    if (r->admission.server)
        admission_leave(&r->admission);
    if (r->held_cost > 0)
        table_hold(r->account->row, r->server->worker, -r->held_cost);
    r->held_cost = 0;
}

/* ---- serving ---- */

static struct admission *admission_next(struct server *s)
{
    struct admission *best = NULL;
    for (struct admission *a = s->waiting; a; a = a->next)
        if (!best || a->account->row->next_start < best->account->row->next_start)
            best = a;
    return best;
}

static void admission_publish(struct server *s)
{
    const struct admission *next = s->starting < ADMISSION_STARTS ? admission_next(s) : NULL;
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
    struct admission *next;
    for (struct admission *a = s->waiting; a; a = next) {
        next = a->next;
        if (!s->draining && (double)(now_ns - a->since_ns) / 1e9 <= s->options->queue_seconds)
            continue;
        admission_unqueue(a);
        if (s->draining)
            admission_refuse_draining(a);
        else
            admission_refuse(a, COUNT_REFUSED_CAPACITY, 1, "capacity",
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
        struct admission *a = admission_next(s);
        admission_unqueue(a);
        if (!admission_try(a)) {
            admission_wait(a); /* another worker was faster */
            return;
        }
        admission_publish(s);
        has_changed = true;
    }
    if (has_changed)
        admission_pass_on(s);
}
