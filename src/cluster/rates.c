/* cluster/rates.c: see rates.h. */
#include "cluster/rates.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/hold.h"
#include "base/json/fields.h"
#include "base/json/json.h"

enum {
    CLOCK_MS = 10000, /* how long the server's time is believed to be so much apart */
    LOOK_MS = 200,
    LOOK_MOST_MS = 1000, /* less than RATE_NEXT_MS */
    AWAY_MS = 500,
};

static const char rates_bucket[] = "droste-rates";
/* More than any limit, so that sums do not wrap. */
static const int64_t amount_most = 1000000000000000;

/* ---- the value ---- */

static bool rates_read_amount(struct json_object *o, struct rate_amount *out)
{
    out->requests = json_get_int(o, "requests", -1);
    out->tokens = json_get_int(o, "tokens", -1);
    return out->requests >= 0 && out->tokens >= 0 && out->requests <= amount_most &&
           out->tokens <= amount_most;
}

bool rates_read(const char *data, size_t len, struct rate_window *out)
{
    static const struct json_limits limits = { BUS_MESSAGE_MAX, 4, 2000 };
    cleanup_json struct json_object *o = NULL;
    *out = (struct rate_window){ 0 };
    if (json_parse(data, len, &limits, &o, NULL) < 0 || !json_object_is_type(o, json_type_object))
        return false;
    struct json_object *slices = json_get_typed(o, "slices", json_type_array);
    struct json_object *next = json_get_typed(o, "next", json_type_object);
    bool is_ok = slices && json_length(slices) <= RATE_SLICES;
    for (size_t i = 0; is_ok && i < json_length(slices); i++) {
        struct rate_slice *slice = &out->slices[out->count++];
        struct json_object *one = json_object_array_get_idx(slices, i);
        is_ok =
            json_object_is_type(one, json_type_object) && rates_read_amount(one, &slice->amount);
        slice->second = is_ok ? json_get_int(one, "second", 0) : 0;
        is_ok = is_ok && slice->second >= 0 && slice->second <= amount_most;
    }
    if (!is_ok || !next)
        return is_ok;
    const char *holder = json_get_string(next, "holder", "");
    out->next_until_ms = json_get_int(next, "until", 0);
    snprintf(out->next, sizeof out->next, "%s", holder);
    return holder[0] && strlen(holder) < RATE_HOLDER_SIZE && rates_read_amount(next, &out->wants);
}

static void rates_write_amount(struct buf *out, struct rate_amount amount)
{
    field_int(out, "requests", amount.requests);
    field_int(out, "tokens", amount.tokens);
}

void rates_write(const struct rate_window *w, struct buf *out)
{
    field_open(out, NULL, '{');
    field_open(out, "slices", '[');
    for (size_t i = 0; i < w->count; i++) {
        field_open(out, NULL, '{');
        field_int(out, "second", w->slices[i].second);
        rates_write_amount(out, w->slices[i].amount);
        field_close(out, '}');
    }
    field_close(out, ']');
    if (w->next[0]) {
        field_open(out, "next", '{');
        field_string(out, "holder", w->next);
        field_int(out, "until", w->next_until_ms);
        rates_write_amount(out, w->wants);
        field_close(out, '}');
    }
    field_close(out, '}');
}

/* ---- changes ---- */

struct rates {
    struct bus *bus;
    char holder[RATE_HOLDER_SIZE];
    int64_t least_apart_ms, most_apart_ms; /* the server's clock is so much ahead of ours */
    int64_t compared_ms;                   /* when; 0: never */
    struct rates_change *changes;
};

struct rates_change {
    struct rates *q;
    char key[HASH_TEXT_SIZE];
    uint64_t ticket;
    struct rate_ask ask;
    struct rate_slice *by;
    size_t count;
    int64_t begun_ms, sent_ms;
    struct rate_slice slice;
    bool is_granted;
    int64_t wait_ms;
    rates_done_fn *done;
    void *arg;
    struct rates_change *next;
};

static int64_t rates_clock_ms(void)
{
    return (int64_t)(hold_clock_ns() / 1000000u);
}

static void rates_change_end(struct rates_change *c, bool is_granted, int64_t wait_ms)
{
    struct rates_change **at = &c->q->changes;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->done(c->arg, c->ticket, is_granted ? &c->slice : NULL, wait_ms);
    free(c->by);
    free(c);
}

static void rates_change_on_read(void *arg, const struct bus_answer *a);

static void rates_change_read(struct rates_change *c)
{
    bus_get(c->q->bus, rates_bucket, c->key, rates_change_on_read, c);
}

static void rates_change_on_written(void *arg, const struct bus_answer *a)
{
    struct rates_change *c = arg;
    if (a->result == BUS_CONFLICT) /* another one was faster */
        rates_change_read(c);
    else
        rates_change_end(
            c, a->result == BUS_OK && c->is_granted, a->result == BUS_OK ? c->wait_ms : AWAY_MS);
}

/* What is no window counts as one that was used up just now. */
static void rates_change_reset(const struct rates_change *c, struct rate_window *w, int64_t ms)
{
    *w = (struct rate_window){ 0 };
    rate_add(w, &(struct rate_slice){ ms / 1000 + 1, c->ask.limit });
}

static void rates_change_on_read(void *arg, const struct bus_answer *a)
{
    struct rates_change *c = arg;
    struct rates *q = c->q;
    cleanup_buf struct buf text = { 0 };
    struct rate_window w = { 0 };
    int64_t now_ms = rates_clock_ms() + q->least_apart_ms;
    int64_t end_ms = c->begun_ms + RATE_LEASE_MS + q->most_apart_ms;
    if (a->result != BUS_OK && a->result != BUS_NOT_FOUND) {
        rates_change_end(c, false, AWAY_MS);
        return;
    }
    if (a->result == BUS_OK && !rates_read(a->data, a->len, &w))
        rates_change_reset(c, &w, end_ms);
    for (size_t i = 0; i < c->count; i++)
        rate_change(&w, &c->by[i]);
    bool asks = c->ask.most.requests > 0;
    c->is_granted = asks && rate_take(&w, now_ms, end_ms, &c->ask, &c->slice);
    if (asks && !c->is_granted) {
        c->wait_ms = rate_wait_ms(&w, now_ms, &c->ask);
        c->wait_ms = c->wait_ms < LOOK_MS        ? LOOK_MS
                     : c->wait_ms > LOOK_MOST_MS ? LOOK_MOST_MS
                                                 : c->wait_ms;
    }
    if (!c->is_granted && c->count == 0 && strcmp(w.next, q->holder) != 0) {
        rates_change_end(c, false, c->wait_ms);
        return;
    }
    rates_write(&w, &text);
    if (buf_failed(&text))
        rates_change_end(c, false, AWAY_MS);
    else
        bus_update(q->bus, rates_bucket, c->key, a->result == BUS_OK ? a->sequence : 0, text.data,
            text.len, rates_change_on_written, c);
}

/* ---- the server's time ---- */

static void rates_on_time(void *arg, const struct bus_answer *a)
{
    struct rates_change *c = arg;
    struct rates *q = c->q;
    int64_t now_ms = rates_clock_ms();
    if (a->result != BUS_OK || a->stored_ms <= 0) {
        rates_change_end(c, false, AWAY_MS);
        return;
    }
    q->least_apart_ms = a->stored_ms - now_ms;
    q->most_apart_ms = a->stored_ms - c->sent_ms + 1;
    q->compared_ms = now_ms;
    rates_change_read(c);
}

static void rates_on_time_stored(void *arg, const struct bus_answer *a)
{
    struct rates_change *c = arg;
    if (a->result == BUS_OK)
        bus_get(c->q->bus, rates_bucket, "time", rates_on_time, c);
    else
        rates_change_end(c, false, AWAY_MS);
}

void rates_take(struct rates *q, const char *model, uint64_t ticket, const struct rate_ask *ask,
    const struct rate_slice *changes, size_t count, rates_done_fn *done, void *arg)
{
    struct rates_change *c = calloc(1, sizeof *c);
    struct rate_slice *by = calloc(count + 1, sizeof *by);
    if (!c || !by || hash_sha256(model, strlen(model), c->key, NULL) < 0) {
        free(c);
        free(by);
        done(arg, ticket, NULL, AWAY_MS);
        return;
    }
    memcpy(by, changes, count * sizeof *by);
    c->q = q;
    c->ticket = ticket;
    c->ask = *ask;
    c->ask.holder = q->holder;
    c->by = by;
    c->count = count;
    c->begun_ms = c->sent_ms = rates_clock_ms();
    c->done = done;
    c->arg = arg;
    c->next = q->changes;
    q->changes = c;
    if (q->compared_ms > 0 && c->begun_ms - q->compared_ms < CLOCK_MS)
        rates_change_read(c);
    else
        bus_put(q->bus, rates_bucket, "time", "", 0, rates_on_time_stored, c);
}

/* ---- opening and closing ---- */

int rates_open(struct bus *bus, const char *holder, struct rates **out, struct error *err)
{
    struct rates *q = calloc(1, sizeof *q);
    if (!q)
        return error_memory(err);
    q->bus = bus;
    snprintf(q->holder, sizeof q->holder, "%s", holder);
    *out = q;
    return 0;
}

void rates_make(struct rates *q, bus_done_fn *done, void *arg)
{
    bus_bucket_make(q->bus, &(struct bus_bucket){ .name = rates_bucket }, done, arg);
}

void rates_close(struct rates *q)
{
    if (!q)
        return;
    while (q->changes) {
        struct rates_change *c = q->changes;
        q->changes = c->next;
        bus_forget(q->bus, c);
        free(c->by);
        free(c);
    }
    free(q);
}
