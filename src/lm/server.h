/* lm/server.h: a provider's server, as the options of a model configure it: its address, the key
 * that is sent to it, and the connections. Only src/lm includes this file.
 */
#pragma once

#include "lm/call.h"
#include "lm/dialect.h"
#include "net/http.h"

struct provider;

struct server {
    const struct provider *provider;
    struct http *http;
    /* The URL is the first, the model, and the second; without `model_in_url` only the second. */
    char *url_before, *url_after;
    bool model_in_url;
    char *url; /* as configured, for messages */
    char *peer, *key, *key_header;
    char *ca_file; /* NULL: the system's */
    struct dialect_style style;
};

/* The model's name for a server is that behind the provider's (provider_find).
 * ERROR_CONFIG: no such provider, no key, a bad URL. */
int server_open(
    struct loop *loop, const struct lm_options *options, struct server **out, struct error *err);
/* NULL is not allowed. All transfers must have ended. */
void server_close(struct server *s);
