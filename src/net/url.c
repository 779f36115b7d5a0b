/* net/url.c: uses libcurl's parser, so that what is checked is what is sent. */
#include "net/url.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static void cleanup_curl_url(CURLU **url)
{
    curl_url_cleanup(*url);
}

static void cleanup_curl_text(char **text)
{
    curl_free(*text);
}
#define cleanup_handle __attribute__((cleanup(cleanup_curl_url)))
#define cleanup_text   __attribute__((cleanup(cleanup_curl_text)))

/* NULL if absent. curl_free. */
static char *url_part(CURLU *url, CURLUPart which, unsigned flags)
{
    char *text = NULL;
    return curl_url_get(url, which, &text, flags) == CURLUE_OK ? text : NULL;
}

static int url_check(CURLU *url, const char *text, const char *key, struct error *err)
{
    cleanup_text char *scheme = NULL, *user = NULL, *password = NULL;
    if (curl_url_set(url, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK)
        scheme = url_part(url, CURLUPART_SCHEME, 0);
    if (!scheme || (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0))
        return error_set(err, ERROR_CONFIG,
            "the base URL '%.100s' is not a URL like http://host:port/v1 or https://host/v1", text);
    user = url_part(url, CURLUPART_USER, 0);
    password = url_part(url, CURLUPART_PASSWORD, 0);
    if (user || password)
        return error_set(err, ERROR_CONFIG,
            "the base URL must not contain a user or a password: give the key as %s", key);
    return 0;
}

static int url_fill(CURLU *url, struct url *out, struct error *err)
{
    cleanup_text char *host = url_part(url, CURLUPART_HOST, 0),
                      *given = url_part(url, CURLUPART_PORT, 0),
                      *port = url_part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT),
                      *query = url_part(url, CURLUPART_QUERY, 0),
                      *scheme = url_part(url, CURLUPART_SCHEME, 0), *whole = NULL;
    if (curl_url_set(url, CURLUPART_QUERY, NULL, 0) == CURLUE_OK &&
        curl_url_set(url, CURLUPART_FRAGMENT, NULL, 0) == CURLUE_OK)
        whole = url_part(url, CURLUPART_URL, 0);
    if (!host || !port || !scheme || !whole)
        return error_memory(err);
    size_t n = strlen(whole);
    while (n > 0 && whole[n - 1] == '/')
        n--;
    out->base = text_copy(whole, n);
    out->query = strdup(query ? query : "");
    out->host = strdup(host);
    out->peer = given ? text_printf("%s:%s", host, given) : strdup(host);
    out->port = (unsigned)strtoul(port, NULL, 10);
    out->secure = strcmp(scheme, "https") == 0;
    return out->base && out->query && out->host && out->peer ? 0 : error_memory(err);
}

int url_parse(const char *text, const char *key, struct url *out, struct error *err)
{
    cleanup_handle CURLU *url = curl_url();
    *out = (struct url){ 0 };
    if (!url)
        return error_memory(err);
    int rc = url_check(url, text, key, err);
    if (rc == 0)
        rc = url_fill(url, out, err);
    if (rc < 0)
        url_free(out);
    return rc;
}

void url_free(struct url *url)
{
    free(url->base);
    free(url->query);
    free(url->host);
    free(url->peer);
    *url = (struct url){ 0 };
}

void url_escape(struct buf *out, const char *text)
{
    cleanup_text char *escaped = curl_easy_escape(NULL, text, 0);
    if (escaped)
        buf_puts(out, escaped);
    else
        out->failed = true;
}
