/* serve/access/identify.h: whose a request is, by its key. */
#pragma once

#include <stdbool.h>

struct request;

/* Sets the request's account by its key (Authorization: Bearer, X-API-Key). False: there is none,
 * and the request was refused. */
bool account_identify(struct request *r);
/* Refuses a request whose account lacks the scope of its route. */
bool account_check_scope(struct request *r);
