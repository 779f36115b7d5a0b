/* serve/access/spending.h: what models may cost a key on a day of UTC (its limit `cost`).
 *
 * A run holds the most that it may cost until it ends, so that runs at the same time cannot exceed
 * the limit together. A request that is passed on to a provider has no such bound: the limit then
 * is exceeded by the requests that are under way when it is reached.
 */
#pragma once

#include <stdbool.h>

struct account;
struct request;
struct server;

/* False: the key has spent, or its runs hold, what it may; the request was refused (429). */
bool spending_check(struct request *r);
/* Holds `asked` dollars (0: all that is left), or what is left if that is less, for the request:
 * r->held_cost; without a limit nothing. False: nothing is left, and the request was refused. */
bool spending_hold(struct request *r, double asked);
/* The same without a request: what is held, which the caller gives back with table_hold; 0: the
 * account has no limit; negative: nothing is left. */
double spending_take(struct server *s, struct account *account, double asked);
