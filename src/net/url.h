/* net/url.h: parses base URLs. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"

struct url {
    char *base;  /* without query, fragment and trailing slash */
    char *query; /* without '?'; "" if there is none */
    char *host;  /* in brackets if IPv6 */
    char *peer;  /* the host, with the port if the URL has one: for messages */
    unsigned port;
    bool secure; /* https */
};

/* ERROR_CONFIG unless it is http:// or https:// without a user and password; `key` names where
 * those belong, such as "OPENAI_API_KEY". After an error, there is nothing to free. */
int url_parse(const char *text, const char *key, struct url *out, struct error *err);
void url_free(struct url *url);
#define cleanup_url __attribute__((cleanup(url_free)))

/* Appends text escaped for a path or query: everything but letters, digits and "-._~" as %XX, by
 * libcurl. */
void url_escape(struct buf *out, const char *text);
