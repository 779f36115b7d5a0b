/* cluster/ledger.c: see ledger.h. */
#include "cluster/ledger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json/fields.h"
#include "base/json/json.h"

enum { DAY_MS = 86400000, HOLD_DAYS = 2 };

static const char ledger_bucket[] = "droste-spending";
/* More than any account spends, so that sums do not wrap. */
static const uint64_t nano_most = 1000000000000000000u;

/* ---- the value ---- */

void ledger_free(struct ledger_value *v)
{
    free(v->holds);
    *v = (struct ledger_value){ 0 };
}

static struct ledger_hold *ledger_find(const struct ledger_value *v, const char *holder)
{
    for (size_t i = 0; i < v->count; i++)
        if (strcmp(v->holds[i].holder, holder) == 0)
            return &v->holds[i];
    return NULL;
}

static struct ledger_hold *ledger_add(
    struct ledger_value *v, const char *holder, uint64_t nano, int64_t day)
{
    struct ledger_hold *grown = realloc(v->holds, (v->count + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    v->holds = grown;
    struct ledger_hold *hold = &v->holds[v->count++];
    *hold = (struct ledger_hold){ .nano = nano, .day = day };
    snprintf(hold->holder, sizeof hold->holder, "%s", holder);
    v->held += nano;
    return hold;
}

static void ledger_drop(struct ledger_value *v, struct ledger_hold *hold)
{
    v->held -= hold->nano;
    *hold = v->holds[--v->count];
}

static bool ledger_read_amount(struct json_object *o, const char *name, uint64_t *out)
{
    int64_t n = json_get_int(o, name, -1);
    *out = n < 0 ? 0 : (uint64_t)n;
    return n >= 0 && *out <= nano_most;
}

bool ledger_read(const char *data, size_t len, struct ledger_value *out)
{
    static const struct json_limits limits = { BUS_MESSAGE_MAX, 4, 60000 };
    cleanup_json struct json_object *o = NULL;
    *out = (struct ledger_value){ 0 };
    if (json_parse(data, len, &limits, &o, NULL) < 0 || !json_object_is_type(o, json_type_object))
        return false;
    struct json_object *holds = json_get_typed(o, "holds", json_type_array);
    out->day = json_get_int(o, "day", -1);
    bool is_ok = out->day >= 0 && holds && ledger_read_amount(o, "spent", &out->spent);
    for (size_t i = 0; is_ok && i < json_length(holds); i++) {
        struct json_object *one = json_object_array_get_idx(holds, i);
        uint64_t nano;
        is_ok = json_object_is_type(one, json_type_object) &&
                ledger_read_amount(one, "nano", &nano) && nano <= nano_most - out->held;
        if (!is_ok)
            break;
        const char *holder = json_get_string(one, "holder", "");
        is_ok = strlen(holder) <= LEDGER_HOLDER_MAX && !ledger_find(out, holder) &&
                ledger_add(out, holder, nano, json_get_int(one, "day", 0));
    }
    if (!is_ok)
        ledger_free(out);
    return is_ok;
}

void ledger_write(const struct ledger_value *v, struct buf *out)
{
    field_open(out, NULL, '{');
    field_int(out, "day", v->day);
    field_int(out, "spent", (int64_t)v->spent);
    field_open(out, "holds", '[');
    for (size_t i = 0; i < v->count; i++) {
        field_open(out, NULL, '{');
        field_string(out, "holder", v->holds[i].holder);
        field_int(out, "nano", (int64_t)v->holds[i].nano);
        field_int(out, "day", v->holds[i].day);
        field_close(out, '}');
    }
    field_close(out, ']');
    field_close(out, '}');
}

void ledger_begin_day(struct ledger_value *v, int64_t day)
{
    if (day <= v->day)
        return;
    v->day = day;
    v->spent = 0;
    for (size_t i = v->count; i-- > 0;) {
        bool is_run = !strchr(v->holds[i].holder, '.');
        if (v->holds[i].day < (is_run ? day - HOLD_DAYS : day))
            ledger_drop(v, &v->holds[i]);
    }
}

/* What others may give back. */
static bool ledger_may_grow(const struct ledger_value *v)
{
    for (size_t i = 0; i < v->count; i++)
        if (strncmp(v->holds[i].holder, LEDGER_SPENT, strlen(LEDGER_SPENT)) != 0)
            return true;
    return false;
}

const struct ledger_hold *ledger_take(
    struct ledger_value *v, const char *holder, uint64_t limit, uint64_t asked)
{
    const struct ledger_hold *own = ledger_find(v, holder);
    uint64_t used = v->spent + v->held;
    if (own || used >= limit)
        return own;
    uint64_t left = limit - used;
    if (asked > left && ledger_may_grow(v))
        return NULL;
    return ledger_add(v, holder, asked > 0 && asked < left ? asked : left, v->day);
}

bool ledger_end(struct ledger_value *v, const char *holder, uint64_t spent)
{
    struct ledger_hold *own = ledger_find(v, holder);
    if (!own)
        return false;
    if (spent == UINT64_MAX)
        spent = own->nano;
    ledger_drop(v, own);
    v->spent += spent < nano_most - v->spent ? spent : nano_most - v->spent;
    return true;
}

static void ledger_name(const char *kind, const char *process, char out[LEDGER_HOLDER_MAX + 1])
{
    snprintf(out, LEDGER_HOLDER_MAX + 1, "%s%s", kind, process);
}

void ledger_get(const struct ledger_value *v, const char *process, uint64_t *spent, uint64_t *open)
{
    char name[LEDGER_HOLDER_MAX + 1];
    ledger_name(LEDGER_SPENT, process, name);
    const struct ledger_hold *hold = ledger_find(v, name);
    *spent = hold ? hold->nano : 0;
    ledger_name(LEDGER_OPEN, process, name);
    hold = ledger_find(v, name);
    *open = hold ? hold->nano : 0;
}

static bool ledger_replace(
    struct ledger_value *v, const char *kind, const char *process, uint64_t nano)
{
    char name[LEDGER_HOLDER_MAX + 1];
    ledger_name(kind, process, name);
    struct ledger_hold *own = ledger_find(v, name);
    if (own)
        ledger_drop(v, own);
    nano = nano < nano_most - v->held ? nano : nano_most - v->held;
    return nano == 0 || ledger_add(v, name, nano, v->day);
}

bool ledger_put(struct ledger_value *v, const char *process, uint64_t spent, uint64_t open)
{
    return ledger_replace(v, LEDGER_SPENT, process, spent) &&
           ledger_replace(v, LEDGER_OPEN, process, open);
}

/* ---- changes ---- */

struct ledger {
    struct bus *bus;
    struct ledger_change *changes;
};

struct ledger_change {
    struct ledger *l;
    char account[BUS_NAME_MAX + 1], holder[LEDGER_HOLDER_MAX + 1];
    bool settles, sets;
    uint64_t limit, open, amount; /* that is asked for, or was spent */
    double held;                  /* dollars: the amount of the answer, once the value is written */
    ledger_done_fn *done;
    void *arg;
    struct ledger_change *next;
};

static uint64_t nano_of(double dollars)
{
    return dollars < 0   ? UINT64_MAX
           : dollars > 0 ? (uint64_t)fmin(dollars * 1e9, (double)nano_most)
                         : 0;
}

static void ledger_change_end(
    struct ledger_change *c, enum bus_result result, double amount, double held)
{
    struct ledger_change **at = &c->l->changes;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    if (c->done)
        c->done(c->arg, result, amount, held);
    free(c);
}

static void ledger_change_on_read(void *arg, const struct bus_answer *a);

static void ledger_change_begin(struct ledger_change *c)
{
    bus_get(c->l->bus, ledger_bucket, c->account, ledger_change_on_read, c);
}

static void ledger_change_on_written(void *arg, const struct bus_answer *a)
{
    struct ledger_change *c = arg;
    if (a->result == BUS_CONFLICT) /* another one was faster */
        ledger_change_begin(c);
    else
        ledger_change_end(c, a->result, c->held, 0);
}

static void ledger_change_write(
    struct ledger_change *c, const struct ledger_value *v, uint64_t revision)
{
    cleanup_buf struct buf text = { 0 };
    ledger_write(v, &text);
    if (buf_failed(&text))
        ledger_change_end(c, BUS_DISCONNECTED, 0, 0);
    else
        bus_update(c->l->bus, ledger_bucket, c->account, revision, text.data, text.len,
            ledger_change_on_written, c);
}

static void ledger_change_make(struct ledger_change *c, struct ledger_value *v, uint64_t revision)
{
    size_t before = v->count;
    ledger_begin_day(v, clock_wall_ms() / DAY_MS);
    if (c->sets) {
        if (ledger_put(v, c->holder, c->amount, c->open))
            ledger_change_write(c, v, revision);
        else
            ledger_change_end(c, BUS_DISCONNECTED, 0, 0);
        return;
    }
    if (c->settles) {
        if (ledger_end(v, c->holder, c->amount))
            ledger_change_write(c, v, revision);
        else
            ledger_change_end(c, BUS_OK, 0, 0); /* it was settled before */
        return;
    }
    bool was_held = ledger_find(v, c->holder) != NULL;
    const struct ledger_hold *hold = ledger_take(v, c->holder, c->limit, c->amount);
    if (!hold) {
        ledger_change_end(c, BUS_FULL, (double)v->spent / 1e9, (double)v->held / 1e9);
        return;
    }
    c->held = (double)hold->nano / 1e9;
    if (was_held && v->count == before)
        ledger_change_end(c, BUS_OK, c->held, 0);
    else
        ledger_change_write(c, v, revision);
}

static void ledger_change_on_read(void *arg, const struct bus_answer *a)
{
    struct ledger_change *c = arg;
    struct ledger_value v = { 0 };
    bool is_new = a->result == BUS_NOT_FOUND;
    if (a->result != BUS_OK && !is_new) {
        ledger_change_end(c, a->result, 0, 0);
        return;
    }
    if (a->result == BUS_OK && !ledger_read(a->data, a->len, &v)) {
        ledger_change_end(c, BUS_REFUSED, 0, 0);
        return;
    }
    ledger_change_make(c, &v, is_new ? 0 : a->sequence);
    ledger_free(&v);
}

static void ledger_change_new(struct ledger *l, const char *account, const struct ledger_change *of,
    ledger_done_fn *done, void *arg)
{
    struct ledger_change *c = malloc(sizeof *c);
    if (!c) {
        done(arg, BUS_DISCONNECTED, 0, 0);
        return;
    }
    *c = *of;
    c->l = l;
    c->done = done;
    c->arg = arg;
    snprintf(c->account, sizeof c->account, "%s", account);
    c->next = l->changes;
    l->changes = c;
    ledger_change_begin(c);
}

void ledger_hold(struct ledger *l, const char *account, const char *holder, double limit,
    double asked, ledger_done_fn *done, void *arg)
{
    struct ledger_change c = { .limit = nano_of(limit), .amount = nano_of(asked) };
    snprintf(c.holder, sizeof c.holder, "%s", holder);
    ledger_change_new(l, account, &c, done, arg);
}

void ledger_settle(struct ledger *l, const char *account, const char *holder, double spent,
    ledger_done_fn *done, void *arg)
{
    struct ledger_change c = { .settles = true, .amount = nano_of(spent) };
    snprintf(c.holder, sizeof c.holder, "%s", holder);
    ledger_change_new(l, account, &c, done, arg);
}

void ledger_set(struct ledger *l, const char *account, const char *process, uint64_t spent,
    uint64_t open, ledger_done_fn *done, void *arg)
{
    struct ledger_change c = { .sets = true, .amount = spent, .open = open };
    snprintf(c.holder, sizeof c.holder, "%s", process);
    ledger_change_new(l, account, &c, done, arg);
}

int ledger_watch(struct ledger *l, bus_entry_fn *on_entry, void *arg, struct error *err)
{
    return bus_watch(l->bus, ledger_bucket, ">", on_entry, arg, err);
}

void ledger_forget(struct ledger *l, const void *arg)
{
    for (struct ledger_change *c = l->changes; c; c = c->next)
        if (c->arg == arg)
            c->done = NULL;
}

/* ---- opening and closing ---- */

int ledger_open(struct bus *bus, struct ledger **out, struct error *err)
{
    struct ledger *l = calloc(1, sizeof *l);
    if (!l)
        return error_memory(err);
    l->bus = bus;
    *out = l;
    return 0;
}

void ledger_make(struct ledger *l, bus_done_fn *done, void *arg)
{
    bus_bucket_make(l->bus, &(struct bus_bucket){ .name = ledger_bucket }, done, arg);
}

void ledger_close(struct ledger *l)
{
    if (!l)
        return;
    while (l->changes) {
        struct ledger_change *c = l->changes;
        l->changes = c->next;
        bus_forget(l->bus, c);
        free(c);
    }
    free(l);
}
