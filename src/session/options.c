/* session/options.c: defaults and validation of session options, and their encoding in HELLO. */
#include "session/options.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "base/json/json.h"

void session_options_init(struct session_options *o)
{
    *o = (struct session_options){
        .spec = { .isolation = ISOLATION_AUTO, .limits = jail_default_limits },
        .timeout = 0,
        .execute_timeout = 0,
        .grace = 2,
        .stall = 60, /* C code that holds the GIL is slow, not hostile */
        .output_limit = 1u << 20,
        .results_limit = BUNDLES_BYTES,
        .result_size = BUNDLES_BYTES,
    };
}

int session_check_timeout(double seconds, double cap, struct error *err)
{
    if (cap <= 0 || (seconds > 0 && seconds <= cap))
        return 0;
    if (seconds > 0)
        return error_set(err, ERROR_ARGUMENT,
            "execute-timeout is %g s, but execute-timeout-cap allows at most %g s; change one of "
            "them",
            seconds, cap);
    return error_set(err, ERROR_ARGUMENT,
        "execute-timeout is 0 (no limit), but execute-timeout-cap allows at most %g s; give a "
        "limit, or set execute-timeout-cap to 0",
        cap);
}

int session_check_custom(
    const struct session_options *o, const char *environment, struct error *err)
{
    const struct {
        const char *setting;
        bool asked;
    } of_the_guest[] = {
        { "rules", o->rules },
        { "setup-each", o->setup && o->setup_each },
        { "env-var", o->variables && o->variables->count > 0 },
        { "tools", o->tools || o->source_count > 0 },
        { "tool-data", o->datum_count > 0 },
        { "helpers", o->no_helpers },
        { "literal-grep", o->literal_grep },
        { "restore-name", o->restored && o->restored->count > 0 },
        { "python", o->spec.python },
        { "packages", o->packages },
    };
    for (size_t i = 0; i < array_length(of_the_guest); i++)
        if (of_the_guest[i].asked)
            return error_set(err, ERROR_UNSUPPORTED,
                "the environment '%.40s' executes code itself and does not support '%s'; the "
                "program that registered it must provide what its code needs",
                environment, of_the_guest[i].setting);
    return 0;
}

/* Appends a member to an open object. */
static void put_key_text(struct buf *head, const char *key, size_t len)
{
    bool first = head->len == 0 || head->data[head->len - 1] == '{';
    buf_puts(head, first ? "" : ",");
    json_append_string(head, key, len);
    buf_putc(head, ':');
}

static void put_key(struct buf *head, const char *key)
{
    put_key_text(head, key, strlen(key));
}

static void put_list(struct buf *head, const char *key, const char *const *words, size_t count)
{
    put_key(head, key);
    buf_putc(head, '[');
    for (size_t i = 0; i < count; i++) {
        buf_puts(head, i ? "," : "");
        json_append_string(head, words[i], strlen(words[i]));
    }
    buf_putc(head, ']');
}

void session_write_fields(const struct schema *answer, struct buf *head)
{
    size_t count = 0;
    const char *const *fields = answer ? schema_names(answer, &count) : NULL;
    put_list(head, "output_fields", fields, count);
}

/* The paths of the workspace and its contents in the guest. */
static void options_put_workspace(const struct workspace *w, const char *at, struct buf *head)
{
    const struct staged *staged = workspace_staged(w);
    cleanup_buf struct buf path = { 0 };
    buf_puts(&path, at);
    if (staged->repo)
        buf_printf(&path, "/%s", staged->repo);
    put_key(head, "cwd");
    json_append_string(head, buf_text(&path), path.len);
    put_key(head, "workspace");
    buf_puts(head, "{\"root\":");
    json_append_string(head, at, strlen(at));
    buf_puts(head, ",\"repo\":");
    json_append_string(head, buf_text(&path), path.len);
    buf_puts(head, ",\"paths\":[");
    for (size_t i = 0; i < staged->paths.count; i++) {
        buf_clear(&path);
        buf_printf(&path, "%s/%s", at, staged->paths.items[i]);
        buf_puts(head, i ? "," : "");
        json_append_string(head, buf_text(&path), path.len);
    }
    buf_puts(head, "]}");
}

/* In the sandbox's own /tmp, where it costs nobody else anything to change it. */
#define TRUSTED_FILE "/tmp/.droste-certificates.pem"

static void options_put_variable(
    struct buf *head, const char *name, size_t name_len, const char *value)
{
    put_key_text(head, name, name_len);
    json_append_string(head, value, strlen(value));
}

/* Clients find the proxy by these. Not that of SOCKS: httpx fails without a further package. What a
 * server of the sandbox's own is called goes past it, unless a rule lists that address. */
static void options_put_proxy(const struct egress_grant *grant, struct buf *head)
{
    const struct egress_policy *policy = grant->policy;
    static const char *const trusts[] = { "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
        "PIP_CERT", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS", "AWS_CA_BUNDLE" };
    static const char *const names[] = { "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY",
        "all_proxy", "ALL_PROXY" };
    static const char *const own[] = { "127.0.0.1", "::1" };
    struct egress_address address;
    cleanup_buf struct buf url = { 0 }, past = { 0 };
    buf_printf(&url, "http://127.0.0.1:%d", EGRESS_PORT);
    buf_puts(&past, "localhost");
    for (size_t i = 0; i < array_length(own); i++)
        if (egress_address_parse(own[i], &address) && !egress_policy_lists(policy, &address, 0))
            buf_printf(&past, ",%s", own[i]);
    for (size_t i = 0; i < array_length(names); i++)
        options_put_variable(head, names[i], strlen(names[i]), buf_text(&url));
    options_put_variable(head, "no_proxy", strlen("no_proxy"), buf_text(&past));
    options_put_variable(head, "NO_PROXY", strlen("NO_PROXY"), buf_text(&past));
    options_put_variable(head, "NODE_USE_ENV_PROXY", strlen("NODE_USE_ENV_PROXY"), "1");
    for (size_t i = 0; i < array_length(trusts); i++)
        options_put_variable(head, trusts[i], strlen(trusts[i]), TRUSTED_FILE);
    for (size_t i = 0; i < egress_policy_secret_count(policy); i++) {
        const char *name = egress_policy_secret(policy, i)->name;
        options_put_variable(head, name, strlen(name), grant->placeholders[i]);
    }
}

/* The certificates that its programs are to trust. */
static void options_put_trusted(const struct egress_grant *grant, struct buf *head)
{
    cleanup_buf struct buf text = { 0 };
    egress_grant_print(grant, &text);
    head->failed = head->failed || buf_failed(&text);
    put_key(head, "trusted");
    json_append_string(head, buf_text(&text), text.len);
    put_key(head, "trusted_file");
    json_append_string(head, TRUSTED_FILE, strlen(TRUSTED_FILE));
}

/* The user's come last: of two with one name, they apply. */
void session_write_variables(
    const struct session_options *o, const struct egress_grant *grant, struct buf *head)
{
    if (!grant && !(o->variables && o->variables->count > 0))
        return;
    put_key(head, "env");
    buf_putc(head, '{');
    if (grant)
        options_put_proxy(grant, head);
    for (size_t i = 0; o->variables && i < o->variables->count; i++) {
        const char *name = o->variables->items[i], *value = strchr(name, '=') + 1;
        options_put_variable(head, name, (size_t)(value - name) - 1, value);
    }
    buf_putc(head, '}');
}

void session_write_hello(const struct session_options *o, const struct egress_grant *grant,
    const char *volume, const char *workspace, struct buf *head)
{
    size_t count = 0;
    if (o->answer)
        schema_names(o->answer, &count);
    buf_putc(head, '{');
    if (count > 0)
        session_write_fields(o->answer, head);
    session_write_variables(o, grant, head);
    if (grant)
        options_put_trusted(grant, head);
    if (o->no_helpers) {
        put_key(head, "helpers");
        buf_puts(head, "false");
    }
    if (o->literal_grep) {
        put_key(head, "literal_grep");
        buf_puts(head, "true");
    }
    if (o->restored && o->restored->count > 0)
        put_list(head, "restored", (const char *const *)o->restored->items, o->restored->count);
    if (o->packages) {
        put_key(head, "packages");
        json_append_string(head, o->packages, strlen(o->packages));
    }
    if (volume) {
        put_key(head, "volume");
        json_append_string(head, volume, strlen(volume));
    }
    if (workspace)
        options_put_workspace(o->spec.workspace, workspace, head);
    if (o->rules) {
        put_key(head, "rules");
        buf_putc(head, '{');
        put_list(head, "allow", o->allow_imports, o->allow_import_count);
        put_list(head, "read", o->spec.read_paths, o->spec.read_path_count);
        if (o->no_standard_imports) {
            put_key(head, "standard");
            buf_puts(head, "false");
        }
        buf_putc(head, '}');
    }
    if (o->tools) {
        put_key(head, "tools");
        buf_puts(head, o->tools);
    }
    if (head->len == 1) {
        buf_clear(head); /* saves the guest from decoding an empty object */
        return;
    }
    buf_putc(head, '}');
}

char *session_directory(const struct session_options *o, const char *workspace)
{
    const char *repo = workspace ? workspace_staged(o->spec.workspace)->repo : NULL;
    if (!workspace)
        return NULL;
    return repo ? text_printf("%s/%s", workspace, repo) : strdup(workspace);
}
