/* env/clouds/daytona/account.c: reads the account's variables, and opens HTTP clients. */
#include "env/clouds/daytona/account.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"

#define CLOUD "https://app.daytona.io/api"

static const char *daytona_account_variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

static char *copy_or_null(const char *text)
{
    return text ? strdup(text) : NULL;
}

int daytona_account_check(struct error *err)
{
    bool key = daytona_account_variable("DAYTONA_API_KEY"),
         token = daytona_account_variable("DAYTONA_JWT_TOKEN");
    if (daytona_account_variable("DAYTONA_API_BASE_URL"))
        return error_set(err, ERROR_CONFIG,
            "DAYTONA_API_BASE_URL is the old name: rename it to DAYTONA_API_URL");
    if (!key && !token)
        return error_set(err, ERROR_CONFIG,
            "the environment 'daytona' needs a key: set DAYTONA_API_KEY (or DAYTONA_JWT_TOKEN and "
            "DAYTONA_ORGANIZATION_ID)");
    if (!key && !daytona_account_variable("DAYTONA_ORGANIZATION_ID"))
        return error_set(err, ERROR_CONFIG,
            "DAYTONA_JWT_TOKEN is for an organization: set DAYTONA_ORGANIZATION_ID too");
    return 0;
}

/* Reads the secret and the headers that carry it. */
static int daytona_account_take_key(struct daytona_account *a, struct error *err)
{
    const char *key = daytona_account_variable("DAYTONA_API_KEY"),
               *token = daytona_account_variable("DAYTONA_JWT_TOKEN"),
               *organization = daytona_account_variable("DAYTONA_ORGANIZATION_ID");
    a->key_variable = key ? "DAYTONA_API_KEY" : "DAYTONA_JWT_TOKEN";
    a->secret = strdup(key ? key : token);
    cleanup_free char *line = a->secret ? text_printf("Authorization: Bearer %s", a->secret) : NULL;
    if (!line)
        return error_memory(err);
    int rc = list_add(&a->headers, line, err);
    if (rc < 0 || key)
        return rc;
    cleanup_free char *whose = text_printf("X-Daytona-Organization-ID: %s", organization);
    return whose ? list_add(&a->headers, whose, err) : error_memory(err);
}

static int open_rest(
    const struct daytona_account *a, const char *url, struct rest **out, struct error *err)
{
    struct rest_options options = { .base_url = url,
        .name = "Daytona",
        .key_variable = a->key_variable,
        .secret = a->secret,
        .headers = (const char *const *)a->headers.items,
        .header_count = a->headers.count,
        .ca_file = a->ca_file };
    return rest_open(a->loop, &options, out, err);
}

static int daytona_account_fill(struct daytona_account *a, const char *ca_file, struct error *err)
{
    const char *url = daytona_account_variable("DAYTONA_API_URL"),
               *target = daytona_account_variable("DAYTONA_TARGET");
    int rc = daytona_account_check(err);
    if (rc < 0)
        return rc;
    a->url = strdup(url ? url : CLOUD);
    a->target = copy_or_null(target);
    a->ca_file = copy_or_null(ca_file);
    if (!a->url || (target && !a->target) || (ca_file && !a->ca_file))
        return error_memory(err);
    rc = daytona_account_take_key(a, err);
    return rc == 0 ? open_rest(a, a->url, &a->api, err) : rc;
}

int daytona_account_open(
    struct loop *loop, const char *ca_file, struct daytona_account *out, struct error *err)
{
    *out = (struct daytona_account){ .loop = loop };
    int rc = daytona_account_fill(out, ca_file, err);
    if (rc < 0)
        daytona_account_close(out);
    return rc;
}

int daytona_account_reach(
    const struct daytona_account *a, const char *url, struct rest **out, struct error *err)
{
    if (strncmp(a->url, "https:", 6) == 0 && strncmp(url, "https:", 6) != 0)
        return error_set(err, ERROR_PROTOCOL,
            "Daytona named an address without TLS, to which the key must not be sent: %.100s", url);
    return open_rest(a, url, out, err);
}

void daytona_account_close(struct daytona_account *a)
{
    rest_close(a->api);
    list_clear(&a->headers);
    free(a->url);
    free(a->secret);
    free(a->target);
    free(a->ca_file);
    *a = (struct daytona_account){ 0 };
}
