/* env/clouds/daytona/account.h: whose sandboxes they are, and how the service is asked: DAYTONA_API_KEY, or DAYTONA_JWT_TOKEN with
 * DAYTONA_ORGANIZATION_ID; DAYTONA_API_URL, DAYTONA_TARGET.
 */
#ifndef DROSTE_ENV_CLOUDS_DAYTONA_ACCOUNT_H
#define DROSTE_ENV_CLOUDS_DAYTONA_ACCOUNT_H

#include "base/list.h"
#include "base/loop.h"
#include "net/rest.h"

struct daytona_account {
    struct loop *loop;
    struct rest *api;
    char *url, *secret, *target, *ca_file; /* target and ca_file may be NULL */
    const char *key_variable;
    struct list headers; /* the secret's among them */
};

/* ERROR_CONFIG where a variable is missing, or has an old name. */
int daytona_account_check(struct error *err);
/* The same. After an error there is nothing to close. */
int daytona_account_open(
    struct loop *loop, const char *ca_file, struct daytona_account *out, struct error *err);
/* A service of the same account at another address, which the API has told. ERROR_PROTOCOL where the secret must not go there. */
int daytona_account_reach(
    const struct daytona_account *a, const char *url, struct rest **out, struct error *err);
void daytona_account_close(struct daytona_account *a);

#endif
