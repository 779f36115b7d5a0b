/* egress/grant.c: see grant.h. */
#include "egress/grant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/random.h"

static int grant_make_placeholders(struct egress_grant *grant, struct error *err)
{
    size_t count = egress_policy_secret_count(grant->policy);
    char digits[RANDOM_HEX_MAX + 1];
    grant->placeholders = calloc(count + 1, sizeof *grant->placeholders);
    if (!grant->placeholders)
        return error_memory(err);
    for (size_t i = 0; i < count; i++) {
        int rc = random_hex(digits, RANDOM_HEX_MAX, err);
        if (rc < 0)
            return rc;
        snprintf(grant->placeholders[i], PLACEHOLDER_SIZE, "placeholder-%s", digits);
    }
    /* One secret may be bound to several places: the guest has one text for it. */
    for (size_t i = 1; i < count; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(egress_policy_secret(grant->policy, i)->name,
                    egress_policy_secret(grant->policy, k)->name) == 0)
                memcpy(grant->placeholders[i], grant->placeholders[k], PLACEHOLDER_SIZE);
    return 0;
}

int egress_grant_new(struct egress_policy *policy, struct egress_grant **out, struct error *err)
{
    *out = NULL;
    if (!policy)
        return 0;
    struct egress_grant *grant = calloc(1, sizeof *grant);
    if (!grant)
        return error_memory(err);
    grant->references = 1;
    grant->policy = egress_policy_hold(policy);
    int rc = grant_make_placeholders(grant, err);
    if (rc == 0 && egress_policy_ends_any(policy))
        rc = egress_authority_new(&grant->authority, err);
    if (rc < 0)
        egress_grant_release(grant);
    else
        *out = grant;
    return rc;
}

struct egress_grant *egress_grant_hold(struct egress_grant *grant)
{
    if (grant)
        grant->references++;
    return grant;
}

void egress_grant_release(struct egress_grant *grant)
{
    if (!grant || --grant->references > 0)
        return;
    egress_authority_free(grant->authority);
    egress_policy_release(grant->policy);
    free(grant->placeholders);
    free(grant);
}

void egress_grant_print(const struct egress_grant *grant, struct buf *out)
{
    egress_trust_print(egress_policy_trusted(grant->policy), out);
    if (grant->authority)
        egress_authority_print(grant->authority, out);
}
