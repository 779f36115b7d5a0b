/* lm/provider.h: providers in one table: names, servers, keys and dialects. */
#pragma once

#include "lm/dialect.h"

struct provider {
    const char *name;  /* the prefix before the slash */
    const char *alias; /* another prefix; NULL: none */
    const char *title; /* in errors */
    const struct dialect *dialect;
    const char *url;                /* of its own server; NULL: depends on the customer */
    const char *path, *stream_path; /* appended to the URL; "{}" is the model; NULL: as the other */
    const char *url_variable, *key_variable;
    const char *key_header; /* header up to the key, as in "Authorization: Bearer " */
    bool needs_key;         /* its own server requires one */
    bool new_limit_name;    /* see struct dialect_style */
    bool has_vendors;       /* model names may begin with other providers' names */
    size_t account;         /* in lm_options */
};

/* Splits "PROVIDER/MODEL"; *rest is the model. Names without a known provider are OpenAI's if
 * there is no slash or a base URL is set; otherwise ERROR_CONFIG with a list of providers. */
int provider_find(const struct lm_options *options, const char *model, const struct provider **out,
    const char **rest, struct error *err);
/* The name of a provider, by index; NULL after the last. */
const char *provider_name_at(size_t i);
/* The provider before the first slash; NULL: unknown, or no slash. */
const struct provider *provider_named(const char *model);
/* True if this server's model names may begin with another provider's name. */
bool provider_has_vendors(const struct provider *p, const struct lm_options *options);
/* The server and its key; "" if not set. */
struct lm_account provider_account(const struct provider *p, const struct lm_options *options);
