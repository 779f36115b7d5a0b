/* serve/queue/spending.c: what requests outside of the queue spend, in the ledger of the cluster.
 *
 * The ledger of a key (cluster/ledger.h) has what the direct requests of each process have spent on
 * the day, and what those under way may still spend; both stay until the end of the day if the
 * process ends. A node writes it when it has changed, up to a tick later, and subtracts what the
 * ledger has of all others from what its requests may spend. So queued runs, which ask the ledger
 * first, do not exceed the limit; requests of several nodes that begin within a tick may.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cluster/ledger.h"
#include "serve/queue/queue.h"

enum { DAY_MS = 86400000 };

struct queue_spending {
    char key[KEY_ID_SIZE];
    uint64_t elsewhere;   /* nanodollars of the day that are not this process's */
    uint64_t spent, open; /* those that are, as the ledger has them */
    int64_t day;
    bool is_writing;
    struct queue_spending *next;
};

static struct queue_spending *queue_spending_find(const struct run_queue *q, const char *key)
{
    struct queue_spending *one = q->spending;
    while (one && strcmp(one->key, key) != 0)
        one = one->next;
    return one;
}

static struct queue_spending *queue_spending_add(struct run_queue *q, const char *key)
{
    struct queue_spending *one = queue_spending_find(q, key);
    if (one || strlen(key) >= sizeof one->key || !(one = calloc(1, sizeof *one)))
        return one;
    snprintf(one->key, sizeof one->key, "%s", key);
    one->next = q->spending;
    return q->spending = one;
}

static void queue_on_spending(void *arg, const struct bus_entry *entry)
{
    struct run_queue *q = arg;
    struct ledger_value v = { 0 };
    if (!entry->key)
        q->knows_spending = true;
    if (!entry->key || !entry->data || !ledger_read(entry->data, entry->len, &v))
        return;
    struct queue_spending *one = queue_spending_add(q, entry->key);
    if (one) {
        ledger_begin_day(&v, clock_wall_ms() / DAY_MS);
        ledger_get(&v, q->owner, &one->spent, &one->open);
        one->elsewhere = v.spent + v.held - one->spent - one->open;
        one->day = v.day;
    }
    ledger_free(&v);
}

int queue_spending_watch(struct run_queue *q, struct error *err)
{
    return ledger_watch(q->ledger, queue_on_spending, q, err);
}

double queue_spent_elsewhere(const struct run_queue *q, const char *key, int64_t day)
{
    const struct queue_spending *one = queue_spending_find(q, key);
    return one && one->day >= day ? (double)one->elsewhere / 1e9 : 0;
}

/* Until the watch has what was written, or is to be tried again. */
static void queue_on_spending_written(void *arg, enum bus_result result, double amount, double held)
{
    struct queue_spending *one = arg;
    one->is_writing = false;
}

static void queue_spending_write(struct run_queue *q, const struct table_account *row)
{
    const struct account *account = account_by_id(&q->s->accounts, row->id);
    int64_t day = clock_wall_ms() / DAY_MS;
    uint64_t spent = row->day == day ? row->day_nanodollars : 0, open = table_held(row);
    if (!account || account->key.limits.cost <= 0 || row->day == 0)
        return;
    struct queue_spending *one = queue_spending_add(q, row->id);
    if (!one || one->is_writing || (one->day >= day && one->spent == spent && one->open == open))
        return;
    one->is_writing = true;
    ledger_set(q->ledger, row->id, q->owner, spent, open, queue_on_spending_written, one);
}

void queue_spending_tick(struct run_queue *q)
{
    const struct table *t = q->s->table;
    for (int i = 0; q->knows_spending && i < TABLE_ACCOUNTS && t->accounts[i].id[0]; i++)
        queue_spending_write(q, &t->accounts[i]);
}

void queue_spending_free(struct run_queue *q)
{
    while (q->spending) {
        struct queue_spending *one = q->spending;
        q->spending = one->next;
        ledger_forget(q->ledger, one);
        free(one);
    }
}
