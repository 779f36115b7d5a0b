/* lm/provider.h: whose models there are: names, servers, keys and dialects, as one table. */
#ifndef DROSTE_LM_PROVIDER_H
#define DROSTE_LM_PROVIDER_H

#include "lm/dialect.h"

struct provider {
    const char *name;  /* what stands before the slash */
    const char *alias; /* that may stand there too; NULL: none */
    const char *title; /* in errors */
    const struct dialect *dialect;
    const char *url;                /* of its own server; NULL: each customer has one */
    const char *path, *stream_path; /* behind the URL; "{}" is the model; NULL: as the other */
    const char *url_variable, *key_variable;
    const char *key_header; /* what stands before the key, as in "Authorization: Bearer " */
    bool needs_key;         /* with its own server */
    bool new_limit_name;    /* see struct dialect_style */
    bool has_vendors;       /* its models' names begin with other providers' */
    size_t account;         /* in lm_options */
};

/* Splits "PROVIDER/MODEL"; *rest is the model. A name without a provider is OpenAI's, and so is one
 * whose first word is no provider's while an OpenAI-compatible server is given. ERROR_CONFIG with
 * the list of providers otherwise. */
int provider_find(const struct lm_options *options, const char *model, const struct provider **out,
    const char **rest, struct error *err);
/* The provider whose name stands before the first slash; NULL: none, or no slash. */
const struct provider *provider_named(const char *model);
/* True if a model of this server's may have a name that begins with another provider's. */
bool provider_has_vendors(const struct provider *p, const struct lm_options *options);
/* Where its server is, and the key for it; both "" where nobody said. */
struct lm_account provider_account(const struct provider *p, const struct lm_options *options);

#endif
