/* net/url.h: the base URL of a server, taken apart. */
#ifndef DROSTE_NET_URL_H
#define DROSTE_NET_URL_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/error.h"

struct url {
    char *base;  /* without query and fragment, and without a slash at its end */
    char *query; /* without its '?'; "" where there is none */
    char *host;  /* in brackets if IPv6 */
    char *peer;  /* the host, with the port where the URL has one: for people */
    unsigned port;
    bool secure; /* https */
};

/* ERROR_CONFIG for what is neither http:// nor https://, or holds a user or a password, which belong elsewhere:
 * `key` says where, such as "OPENAI_API_KEY". After an error there is nothing to free. */
int url_parse(const char *text, const char *key, struct url *out, struct error *err);
void url_free(struct url *url);
#define cleanup_url __attribute__((cleanup(url_free)))

/* Appends text as it may stand in a path or a query: all but letters, digits and "-._~" as %XX,
 * by libcurl. */
void url_escape(struct buf *out, const char *text);

#endif
