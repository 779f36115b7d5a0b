/* serve/access/spending.c: see spending.h.
 *
 * The sums are in the table that workers share. That of a day begins with what the record says, so
 * that a server that starts again continues it; requests that were passed on are not recorded. In a
 * cluster, the ledger of all nodes says it (queue/spending.c).
 */
#include "serve/access/spending.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#include "serve/http/request.h"
#include "serve/queue/queue.h"

enum { DAY_SECONDS = 86400 };

static int spending_add_run(void *arg, const droste_record_run *run, droste_error *err)
{
    if (run->ended_ms > 0 && run->cost > 0)
        *(double *)arg += run->cost;
    return 0;
}

/* What the runs that began on this day have cost. */
static double spending_recorded(struct server *s, const char *account, int64_t day)
{
    double sum = 0;
    droste_record_filter filter = { .account = account, .since_ms = day * DAY_SECONDS * 1000 };
    if (server_record(s, NULL))
        droste_record_list(s->record, &filter, spending_add_run, &sum, NULL);
    return sum;
}

/* Dollars. */
static double spending_left(struct server *s, struct account *account)
{
    struct table_account *row = account->row;
    int64_t day = time(NULL) / DAY_SECONDS;
    const char *key = account->key.id;
    if (row->day != day)
        table_begin_day(s->table, row, day, s->queue ? 0 : spending_recorded(s, key, day));
    double elsewhere = s->queue ? queue_spent_elsewhere(s->queue, key, day) : 0;
    return account->key.limits.cost - table_spent(row) - elsewhere;
}

static bool spending_refuse(struct request *r, int64_t now)
{
    char seconds[24];
    snprintf(seconds, sizeof seconds, "%lld", (long long)(DAY_SECONDS - now % DAY_SECONDS));
    r->account->row->refused++;
    table_count(r->server->figures, COUNT_REFUSED_COST, 1);
    request_refuse(r, 429, "cost",
        "models have cost this key %.4g dollars today, with what its runs may still cost; it may "
        "spend %.4g a day (UTC)",
        r->account->key.limits.cost - spending_left(r->server, r->account),
        r->account->key.limits.cost);
    request_header(r, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    return false;
}

/* True: the request was refused, because a node that has just started has not read the ledger. */
static bool spending_is_unknown(struct request *r)
{
    const struct run_queue *q = r->server->queue;
    if (!q || q->knows_spending || r->account->key.limits.cost <= 0)
        return false;
    request_refuse(r, 503, "unavailable", "the node has not read yet what this key has spent");
    request_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    return true;
}

bool spending_check(struct request *r)
{
    if (spending_is_unknown(r))
        return false;
    return r->account->key.limits.cost <= 0 || spending_left(r->server, r->account) > 0 ||
           spending_refuse(r, time(NULL));
}

double spending_take(struct server *s, struct account *account, double asked)
{
    if (account->key.limits.cost <= 0)
        return 0;
    bool is_unknown = s->queue && !s->queue->knows_spending;
    double left = is_unknown ? 0 : spending_left(s, account);
    if (left <= 0)
        return -1;
    double held = asked > 0 ? fmin(asked, left) : left;
    table_hold(account->row, s->worker, held);
    return held;
}

bool spending_hold(struct request *r, double asked)
{
    if (spending_is_unknown(r))
        return false;
    r->held_cost = spending_take(r->server, r->account, asked);
    if (r->held_cost >= 0)
        return true;
    r->held_cost = 0;
    return spending_refuse(r, time(NULL));
}
