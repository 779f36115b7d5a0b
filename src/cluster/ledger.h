/* cluster/ledger.h: what the nodes of a cluster may spend together, out of one limit a day.
 *
 * The ledger of an account is a value in the bucket droste-spending: the day, what was spent on it,
 * and what each holder (a run) holds, which is the most that it may still spend. A holder takes its
 * hold before it spends, and gives it back with what it has spent. Each change is written upon the
 * revision that was read, so what was spent and what is held together never exceed the limit,
 * however many nodes change it at once.
 *
 * A hold has its holder's name. The node that continues the run of a dead one finds the hold, and
 * to take or to settle one twice is the same as once.
 *
 * Days are those of the writing node's clock; they only advance. Where a clock is a day ahead,
 * the day's limit begins so much too early, once. Holds without an end are dropped after two days.
 */
#pragma once

#include "base/buf.h"
#include "cluster/bus.h"

struct ledger;

/* result BUS_OK: `amount` dollars are held, or were settled; BUS_FULL: too little is left,
 * `amount` was spent, and `held` is held by others; another: it may or may not be done. */
typedef void ledger_done_fn(void *arg, enum bus_result result, double amount, double held);

int ledger_open(struct bus *bus, struct ledger **out, struct error *err);
#define LEDGER_ALL (-1.0)

/* Makes the bucket. */
void ledger_make(struct ledger *l, bus_done_fn *done, void *arg);
/* Calls no `done` of what is under way. NULL is fine. */
void ledger_close(struct ledger *l);

/* Holds `asked` dollars (0: all that is left) of `limit`. If less is left, it holds that, once no
 * other hold may come back. */
void ledger_hold(struct ledger *l, const char *account, const char *holder, double limit,
    double asked, ledger_done_fn *done, void *arg);
/* The holder has spent this, or all that it held, and holds nothing more. */
void ledger_settle(struct ledger *l, const char *account, const char *holder, double spent,
    ledger_done_fn *done, void *arg);
/* What a process has spent and holds from now on, in nanodollars, whatever it had. */
void ledger_set(struct ledger *l, const char *account, const char *process, uint64_t spent,
    uint64_t open, ledger_done_fn *done, void *arg);
/* Watches the values of all accounts, by their names. */
int ledger_watch(struct ledger *l, bus_entry_fn *on_entry, void *arg, struct error *err);
/* What is under way with this argument calls nothing more. */
void ledger_forget(struct ledger *l, const void *arg);

/* ---- the value ---- */

/* A holder is a run's id, or one of these and a word of a process: what requests outside of the
 * queue have spent there on the day, and what those under way may still spend. */
#define LEDGER_SPENT "spent."
#define LEDGER_OPEN  "open."
enum { LEDGER_HOLDER_MAX = 64 };

struct ledger_hold {
    char holder[LEDGER_HOLDER_MAX + 1];
    uint64_t nano; /* dollars * 1e-9 */
    int64_t day;
};

struct ledger_value {
    int64_t day;
    uint64_t spent, held;
    struct ledger_hold *holds;
    size_t count;
};

/* Not trusted. False: it is no ledger, or there is not enough memory. */
bool ledger_read(const char *data, size_t len, struct ledger_value *out);
void ledger_write(const struct ledger_value *v, struct buf *out);
void ledger_free(struct ledger_value *v);
/* Another day begins, if it is later; what processes have is of one day. */
void ledger_begin_day(struct ledger_value *v, int64_t day);
/* The holder's hold; NULL: too little is left, or there is not enough memory. */
const struct ledger_hold *ledger_take(
    struct ledger_value *v, const char *holder, uint64_t limit, uint64_t asked);
/* Nanodollars of a process. */
void ledger_get(const struct ledger_value *v, const char *process, uint64_t *spent, uint64_t *open);
/* False: there is not enough memory. */
bool ledger_put(struct ledger_value *v, const char *process, uint64_t spent, uint64_t open);
/* `spent` UINT64_MAX: all that it held. False: it holds nothing. */
bool ledger_end(struct ledger_value *v, const char *holder, uint64_t spent);
