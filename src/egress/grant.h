/* egress/grant.h: what one session has of a policy: an authority of its own, and placeholders. */
#pragma once

#include "egress/policy.h"

struct egress_grant {
    unsigned references;
    struct egress_policy *policy;
    struct egress_authority *authority; /* NULL: the proxy ends no TLS */
    char (*placeholders)[PLACEHOLDER_SIZE];
};

/* *out is NULL if the policy is. */
int egress_grant_new(struct egress_policy *policy, struct egress_grant **out, struct error *err);
/* A further reference; NULL is fine. */
struct egress_grant *egress_grant_hold(struct egress_grant *grant);
void egress_grant_release(struct egress_grant *grant);
/* Appends the certificates that the guest is to trust, as PEM. */
void egress_grant_print(const struct egress_grant *grant, struct buf *out);
