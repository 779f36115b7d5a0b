/* serve/spending.c: see spending.h.
 *
 * The sums are in the table that workers share. That of a day begins with what the record says, so
 * that a server that starts again continues it; requests that were passed on are not recorded.
 */
#include "serve/spending.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#include "serve/server.h"

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
    if (s->record || droste_record_open(s->d, &s->record, NULL) == 0)
        if (s->record)
            droste_record_list(s->record, &filter, spending_add_run, &sum, NULL);
    return sum;
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
        table_spent(r->account->row), r->account->key.limits.cost);
    request_header(r, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    return false;
}

/* Dollars; negative: refused. */
static double spending_left(struct request *r)
{
    struct table_account *row = r->account->row;
    int64_t now = time(NULL), day = now / DAY_SECONDS;
    if (row->day != day)
        table_begin_day(
            r->server->table, row, day, spending_recorded(r->server, r->account->key.id, day));
    double left = r->account->key.limits.cost - table_spent(row);
    if (left > 0)
        return left;
    spending_refuse(r, now);
    return -1;
}

bool spending_check(struct request *r)
{
    return r->account->key.limits.cost <= 0 || spending_left(r) > 0;
}

bool spending_hold(struct request *r, double asked)
{
    if (r->account->key.limits.cost <= 0)
        return true;
    double left = spending_left(r);
    if (left <= 0)
        return false;
    r->held_cost = asked > 0 ? fmin(asked, left) : left;
    table_hold(r->account->row, r->server->worker, r->held_cost);
    return true;
}
