/* api/secrets.h: values of secrets for the network of sandboxes, read once and kept in memory. */
#pragma once

#include "base/error.h"

struct droste;
struct egress_policy;
struct settings;
struct secret_value;

/* Adds the settings' secrets, with their values, to a policy; NULL: there is none. */
int api_add_secrets(
    struct droste *d, const struct settings *s, struct egress_policy *policy, struct error *err);
/* Overwrites the values. */
void api_secrets_free(struct secret_value *first);
