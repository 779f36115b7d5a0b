/* env/clouds/daytona/account.h: a Daytona account from environment variables: DAYTONA_API_KEY, or
 * DAYTONA_JWT_TOKEN with DAYTONA_ORGANIZATION_ID; DAYTONA_API_URL, DAYTONA_TARGET.
 */
#pragma once

#include <sys/queue.h>

#include "base/list.h"
#include "base/loop.h"
#include "net/rest.h"

struct daytona_account {
    struct loop *loop;
    struct rest *api;
    char *url, *secret, *target, *ca_file; /* target and ca_file may be NULL */
    const char *key_variable;
    struct list headers; /* including those with the secret */
    LIST_HEAD(daytona_sandboxes, daytona_sandbox) sandboxes;
};

/* ERROR_CONFIG if a variable is missing or has an obsolete name. */
int daytona_account_check(struct error *err);
/* The same errors. After an error there is nothing to close. */
int daytona_account_open(
    struct loop *loop, const char *ca_file, struct daytona_account *out, struct error *err);
/* Opens a client for another address of the account, as given by the API. ERROR_PROTOCOL if the
 * secret must not be sent there. */
int daytona_account_reach(
    const struct daytona_account *a, const char *url, struct rest **out, struct error *err);
void daytona_account_close(struct daytona_account *a);
