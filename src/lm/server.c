/* lm/server.c: see server.h. */
#include "lm/server.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lm/provider.h"
#include "net/url.h"

#define RESPONSE_LIMIT ((size_t)64 << 20)

static bool same_host(const struct url *url, const char *other)
{
    struct url parsed;
    if (!other || url_parse(other, "", &parsed, NULL) < 0)
        return false;
    bool same = strcasecmp(url->host, parsed.host) == 0;
    url_free(&parsed);
    return same;
}

static void add_query(struct buf *out, const char *query)
{
    if (!query[0])
        return;
    buf_putc(out, strchr(buf_text(out), '?') ? '&' : '?');
    buf_puts(out, query);
}

/* The base URL, the provider's path with the model for "{}", and the queries of both. */
static int make_url(struct server *s, const struct url *url, const char *path, struct error *err)
{
    cleanup_buf struct buf before = { 0 }, after = { 0 };
    const char *model = strstr(path, "{}");
    s->model_in_url = model != NULL;
    buf_puts(model ? &before : &after, url->base);
    buf_append(&before, path, model ? (size_t)(model - path) : 0);
    buf_puts(&after, model ? model + 2 : path);
    add_query(&after, url->query);
    s->url_before = buf_steal(&before);
    s->url_after = buf_steal(&after);
    return s->url_before && s->url_after ? 0 : error_memory(err);
}

/* Azure has two interfaces: one like OpenAI's, and an older one with a version and the
 * deployment in the URL. */
static int make_azure_path(const struct lm_options *options, struct buf *path, struct error *err)
{
    const char *version = options->azure_version;
    if (version[strspn(version, "0123456789abcdefghijklmnopqrstuvwxyz-")] != '\0')
        return error_set(err, ERROR_CONFIG,
            "'%.40s' is not a version of Azure's API: it looks like 2024-10-21", version);
    buf_printf(path, "/openai/deployments/{}/chat/completions?api-version=%s", version);
    return 0;
}

static int make_urls(
    struct server *s, const struct url *url, const struct lm_options *options, struct error *err)
{
    const struct provider *p = s->provider;
    cleanup_buf struct buf path = { 0 };
    bool versioned = options->azure_version && options->azure_version[0];
    int rc = 0;
    if (strcmp(p->name, "azure") == 0 && versioned)
        rc = make_azure_path(options, &path, err);
    else
        buf_puts(&path, s->style.stream && p->stream_path ? p->stream_path : p->path);
    if (rc < 0)
        return rc;
    return buf_failed(&path) ? error_memory(err) : make_url(s, url, path.data, err);
}

static int server_open_http(struct server *s, struct loop *loop, const struct lm_options *options,
    const struct url *url, struct error *err)
{
    bool own_ca = options->ca_file && options->ca_file[0];
    s->peer = strdup(url->peer);
    s->ca_file = own_ca ? strdup(options->ca_file) : NULL;
    if (!s->peer || (own_ca && !s->ca_file))
        return error_memory(err);
    struct http_options http = {
        .host = url->host,
        .port = url->port,
        .peer = s->peer,
        .connect_options.ca_file = s->ca_file,
        .codes = { ERROR_MODEL_CONNECT, ERROR_MODEL_CUT, ERROR_MODEL_STALL, ERROR_MODEL_REPLY },
        .connections = options->concurrency,
        .connect_timeout = options->connect_timeout,
        .first_timeout = options->first_timeout,
        .stall_timeout = options->stall_timeout,
        .response_limit = RESPONSE_LIMIT,
    };
    return http_open(loop, &http, &s->http, err);
}

static int refuse_without_key(
    const struct provider *p, const struct lm_options *options, struct error *err)
{
    const char *base_url = options->openai.base_url;
    bool other = p->account != offsetof(struct lm_options, openai) && base_url && base_url[0];
    return error_set(err, ERROR_CONFIG, "no API key for %s: set %s%s", p->title, p->key_variable,
        other ? ", or put openai/ before the name to use the server at base-url"
        : p->account == offsetof(struct lm_options, openai)
            ? ", or the base URL of a server that needs no key"
            : "");
}

/* A line break in a key would inject a header. */
static int server_take_key(struct server *s, const char *key, bool needed,
    const struct lm_options *options, struct error *err)
{
    const struct provider *p = s->provider;
    s->key = strdup(key);
    if (!s->key)
        return error_memory(err);
    if (s->key[0] == '\0')
        return needed ? refuse_without_key(p, options, err) : 0;
    for (const unsigned char *c = (const unsigned char *)s->key; *c; c++)
        if (*c <= ' ' || *c >= 0x7F)
            return error_set(err, ERROR_CONFIG,
                "the API key contains a space or a character that keys do not have: check %s",
                p->key_variable);
    cleanup_buf struct buf header = { 0 };
    buf_printf(&header, "%s%s", p->key_header, s->key);
    s->key_header = buf_steal(&header);
    return s->key_header ? 0 : error_memory(err);
}

void server_close(struct server *s)
{
    http_close(s->http);
    free(s->url_before);
    free(s->url_after);
    free(s->url);
    free(s->peer);
    free(s->ca_file);
    free(s->key);
    free(s->key_header);
    free(s);
}

static int server_fill(
    struct server *s, struct loop *loop, const struct lm_options *options, struct error *err)
{
    const struct provider *p = s->provider;
    struct lm_account account = provider_account(p, options);
    cleanup_url struct url url = { 0 };
    int rc;
    if (!account.base_url[0] && !p->url)
        return error_set(err, ERROR_CONFIG,
            "no server for %s: set %s, as in https://NAME.openai."
            "azure.com",
            p->title, p->url_variable);
    s->url = strdup(account.base_url[0] ? account.base_url : p->url);
    if (!s->url)
        return error_memory(err);
    if ((rc = url_parse(s->url, p->key_variable, &url, err)) < 0)
        return rc;
    bool own_service = !p->url || same_host(&url, p->url);
    s->style = (struct dialect_style){ options->stream, p->new_limit_name && own_service };
    if ((rc = server_take_key(s, account.api_key, p->needs_key && own_service, options, err)) < 0 ||
        (rc = server_open_http(s, loop, options, &url, err)) < 0)
        return rc;
    return make_urls(s, &url, options, err);
}

int server_open(
    struct loop *loop, const struct lm_options *options, struct server **out, struct error *err)
{
    struct server *s = calloc(1, sizeof *s);
    const char *rest;
    if (!s)
        return error_memory(err);
    int rc = provider_find(options, options->model, &s->provider, &rest, err);
    if (rc == 0)
        rc = server_fill(s, loop, options, err);
    if (rc < 0) {
        server_close(s);
        return rc;
    }
    *out = s;
    return 0;
}
