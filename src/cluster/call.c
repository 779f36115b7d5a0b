/* cluster/call.c: operations of the bus that are under way. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cluster/nats_internal.h"

enum { CALL_TICK_MS = 50 };

static void calls_on_timer(uv_timer_t *timer);

static void call_report(bus_done_fn *done, void *arg, enum bus_result result, const char *why)
{
    if (done)
        done(arg, &(struct bus_answer){ .result = result, .why = why });
}

static size_t call_find_slot(struct bus *b)
{
    for (size_t i = 0; i < b->call_count; i++) {
        size_t slot = (b->generation + i) % b->call_count;
        if (!b->calls[slot])
            return slot;
    }
    return SIZE_MAX;
}

/* Slots are doubled before more than half of them are taken, so that one is found soon. */
static bool call_make_room(struct bus *b)
{
    if (b->calls_open * 2 < b->call_count)
        return true;
    size_t count = b->call_count ? b->call_count * 2 : 64;
    if (count > BUS_CALLS_MAX * 2)
        return false;
    struct call **calls = realloc(b->calls, count * sizeof *calls);
    if (!calls)
        return false;
    memset(calls + b->call_count, 0, (count - b->call_count) * sizeof *calls);
    b->calls = calls;
    b->call_count = count;
    return true;
}

struct call *call_new(struct bus *b, int timeout_ms, void (*take)(struct call *, nats_message *),
    bus_done_fn *done, void *arg)
{
    struct call *c = call_make_room(b) ? calloc(1, sizeof *c) : NULL;
    if (!c) {
        call_report(done, arg, BUS_DISCONNECTED, "too many operations at once");
        return NULL;
    }
    c->b = b;
    c->generation = ++b->generation;
    c->slot = call_find_slot(b);
    c->deadline_ns = timeout_ms < 0 ? UINT64_MAX : clock_ns() + (uint64_t)timeout_ms * 1000000u;
    c->take = take;
    c->done = done;
    c->arg = arg;
    b->calls[c->slot] = c;
    if (b->calls_open++ == 0)
        uv_timer_start(b->timer, calls_on_timer, CALL_TICK_MS, CALL_TICK_MS);
    return c;
}

void call_free(struct call *c)
{
    if (c->subscription && c->subscription->call == c)
        c->subscription->call = NULL;
    c->b->calls[c->slot] = NULL;
    c->b->calls_open--;
    if (c->drop)
        c->drop(c->state);
    else
        free(c->state);
    free(c);
}

void call_end(struct call *c, const struct bus_answer *answer)
{
    bus_done_fn *done = c->done;
    void *arg = c->arg;
    void *state = c->state; /* of which the answer may be a part */
    void (*drop)(void *) = c->drop;
    c->state = NULL;
    c->drop = NULL;
    call_free(c);
    if (done)
        done(arg, answer);
    if (drop)
        drop(state);
    else
        free(state);
}

void call_end_as(struct call *c, enum bus_result result, const char *why)
{
    call_end(c, &(struct bus_answer){ .result = result, .why = why });
}

void call_end_early(struct call *c, enum bus_result result, const char *why)
{
    c->early = result;
    c->early_why = why;
    c->b->has_early = true;
    uv_async_send(c->b->async);
}

void call_send_from(struct call *c, const char *stem, const char *subject, const void *data,
    size_t len, const struct field *fields)
{
    char reply[96];
    snprintf(reply, sizeof reply, "%s%zx-%x", stem, c->slot, c->generation);
    if (len > BUS_MESSAGE_MAX)
        call_end_early(c, BUS_REFUSED, "the message is too large");
    else if (!bus_send_as(c->b, subject, reply, data, len, fields) && !c->renew)
        call_end_early(c, BUS_DISCONNECTED, "there is no connection to the NATS server");
}

void call_send(
    struct call *c, const char *subject, const void *data, size_t len, const struct field *fields)
{
    call_send_from(c, c->b->inbox, subject, data, len, fields);
}

static void request_take(struct call *c, nats_message *m)
{
    struct bus *b = c->b;
    const char *data = b->nats->data(m);
    if (message_status(b, m) == 503)
        call_end_as(c, BUS_NO_RESPONDERS, "no subscriber answers this subject");
    else
        call_end(c, &(struct bus_answer){
                        .why = "", .data = data ? data : "", .len = (size_t)b->nats->length(m) });
}

void bus_request(struct bus *b, const char *subject, const void *data, size_t len, int timeout_ms,
    bus_done_fn *done, void *arg)
{
    struct call *c = call_new(b, timeout_ms, request_take, done, arg);
    if (!c)
        return;
    if (bus_subject_is_ok(subject, false))
        call_send(c, subject, data, len, NULL);
    else
        call_end_early(c, BUS_REFUSED, "the subject is not valid");
}

static void ack_take(struct call *c, nats_message *m)
{
    if (message_status(c->b, m) != 0)
        call_end_as(c, BUS_NOT_FOUND, "the consumer of the message is not there");
    else
        call_end_as(c, BUS_OK, "");
}

void bus_ack(struct bus_message *m, bus_done_fn *done, void *arg)
{
    const struct message *message = (const struct message *)m;
    struct bus *b = message->b;
    const char *reply = b->nats->reply(message->nats);
    struct call *c = done ? call_new(b, BUS_TIMEOUT_MS, ack_take, done, arg) : NULL;
    if (c && reply && *reply)
        call_send(c, reply, "+ACK", 4, NULL);
    else if (c)
        call_end_early(c, BUS_REFUSED, "the message is of no stream");
    else if (!done)
        message_respond(m, "+ACK", 4);
    bus_message_free(m);
}

struct call *call_find(struct bus *b, const char *subject)
{
    size_t len = strlen(b->inbox);
    char *end;
    if (strncmp(subject, b->inbox, len) != 0)
        return NULL;
    unsigned long slot = strtoul(subject + len, &end, 16);
    if (*end != '-' || slot >= b->call_count || !b->calls[slot])
        return NULL;
    return b->calls[slot]->generation == strtoul(end + 1, NULL, 16) ? b->calls[slot] : NULL;
}

void calls_sweep(struct bus *b, uint64_t now_ns)
{
    b->has_early = false;
    for (size_t i = 0; i < b->call_count && b->calls_open > 0; i++) {
        struct call *c = b->calls[i];
        if (c && c->early != BUS_OK)
            call_end_as(c, c->early, c->early_why);
        else if (c && c->deadline_ns < now_ns && c->renew)
            c->renew(c);
        else if (c && c->deadline_ns < now_ns)
            call_end_as(c, BUS_TIMEOUT, "there was no answer in time");
    }
    if (b->calls_open == 0)
        uv_timer_stop(b->timer);
}

static void calls_on_timer(uv_timer_t *timer)
{
    calls_sweep(timer->data, clock_ns());
}
