/* cli/keys.c: droste keys: creates, lists and revokes the keys of `droste serve`. */
#include "serve/access/keys.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json/fields.h"
#include "cli/cli.h"
#include "cli/options/verbs.h"
#include "cli/terminal/screen.h"

struct keys_request {
    droste *d;
    const char *path, *word; /* the word after the verb; NULL: none */
    const char *scopes, *expires;
    bool json;
};

static struct key keys_new; /* what --limit and --net have given it */

static int keys_add_limit(droste *d, const char *value, droste_error *err)
{
    static const char *const settings[] = { "memory", "cpus" };
    if (key_limit_parse(&keys_new.limits, value, err) < 0)
        return -ERROR_ARGUMENT;
    for (size_t i = 0; i < array_length(settings); i++) {
        size_t n = strlen(settings[i]);
        if (strncmp(value, settings[i], n) == 0 && value[n] == '=')
            return droste_set(d, settings[i], value + n + 1, err); /* checks it */
    }
    return 0;
}

static int keys_add_net(droste *d, const char *value, droste_error *err)
{
    return key_net_add(&keys_new, value, err) < 0 ? error_wrap(err, "--net") : 0;
}

/* ---- create ---- */

static int keys_run_create(const struct keys_request *r, struct error *err)
{
    struct key key = keys_new;
    char text[KEY_TEXT_SIZE];
    double seconds = 0;
    key.scopes = SCOPE_READ | SCOPE_SANDBOXES;
    if (r->word && strlen(r->word) >= KEY_NAME_SIZE)
        return error_set(err, ERROR_ARGUMENT, "a name has at most %d bytes", KEY_NAME_SIZE - 1);
    snprintf(key.name, sizeof key.name, "%s", r->word ? r->word : "");
    if (r->scopes && key_scopes_parse(r->scopes, &key.scopes, err) < 0)
        return -ERROR_ARGUMENT;
    if (r->expires && (!droste_parse_seconds(r->expires, &seconds) || !(seconds > 0)))
        return error_set(
            err, ERROR_ARGUMENT, "--expires %s: expected a time such as 12h or 30d", r->expires);
    if (seconds > 0)
        key.expires_ms = clock_wall_ms() + (int64_t)(seconds * 1000);
    if (keys_create(r->path, &key, text, err) < 0)
        return -(int)err->code;
    if (!r->json) {
        printf("%s\n", text);
        cli_note("this is key %s; it is shown only now, and %s has its hash", key.id, r->path);
        return 0;
    }
    cleanup_buf struct buf out = { 0 };
    field_open(&out, NULL, '{');
    field_string(&out, "id", key.id);
    field_text(&out, "name", key.name, strlen(key.name));
    field_string(&out, "key", text);
    field_close(&out, '}');
    cli_print_json(buf_text(&out));
    return 0;
}

/* ---- ls ---- */

static void keys_put(const struct key *key, bool json, struct buf *out)
{
    cleanup_buf struct buf scopes = { 0 }, limits = { 0 }, times = { 0 };
    key_scopes_print(key->scopes, &scopes);
    key_limits_print(&key->limits, &limits);
    if (json) {
        field_open(out, NULL, '{');
        field_string(out, "id", key->id);
        field_text(out, "name", key->name, strlen(key->name));
        field_string(out, "scopes", buf_text(&scopes));
        field_string(out, "limits", buf_text(&limits));
        field_open(out, "net", '[');
        for (const char *rule = NULL; (rule = key_net_next(key, rule));)
            field_string(out, NULL, rule);
        field_close(out, ']');
        field_time(out, "created", key->created_ms);
        field_time(out, "expires", key->expires_ms);
        field_close(out, '}');
        return;
    }
    field_time(&times, NULL, key->created_ms);
    buf_printf(
        out, "%s  %.10s  %-16s  %s", key->id, buf_text(&times) + 1, key->name, buf_text(&scopes));
    if (limits.len > 0)
        buf_printf(out, "  %s", buf_text(&limits));
    for (const char *rule = NULL; (rule = key_net_next(key, rule));)
        buf_printf(out, "%s%s", rule == key->net ? "  net: " : ", ", rule);
    if (key->expires_ms > 0 && key->expires_ms <= clock_wall_ms())
        buf_puts(out, "  expired");
    buf_putc(out, '\n');
}

static int keys_run_list(const struct keys_request *r, struct error *err)
{
    cleanup_buf struct buf out = { 0 };
    struct keys keys = { 0 };
    int rc = keys_read(r->path, &keys, err);
    if (rc < 0 && rc != -ERROR_NOT_FOUND)
        return rc;
    if (r->json)
        field_open(&out, NULL, '[');
    for (size_t i = 0; i < keys.count; i++)
        keys_put(&keys.rows[i], r->json, &out);
    if (r->json)
        field_close(&out, ']');
    bool is_empty = keys.count == 0;
    keys_free(&keys);
    if (buf_failed(&out))
        return error_memory(err);
    if (is_empty && !r->json)
        cli_note("there are no keys in %s; `droste keys create` makes one", r->path);
    if (r->json)
        cli_print_json(buf_text(&out));
    else
        screen_print_text(stdout, buf_text(&out));
    return 0;
}

/* ---- revoke ---- */

static int keys_run_revoke(const struct keys_request *r, struct error *err)
{
    size_t count = 0;
    int rc = keys_revoke(r->path, r->word, &count, err);
    if (rc == 0)
        printf("revoked %zu key%s\n", count, count == 1 ? "" : "s");
    return rc;
}

enum { CREATE = 1, LS = 2, REVOKE = 4 };

static const struct keys_verb {
    struct verb verb;
    int (*run)(const struct keys_request *r, struct error *err);
} keys_verbs[] = {
    { { "create", CREATE, 0, 1, "NAME", "one NAME at most" }, keys_run_create },
    { { "ls", LS, 0, 0 }, keys_run_list },
    { { "revoke", REVOKE, 1, 1, NULL, "the id or name of a key" }, keys_run_revoke },
};

static int keys_command(const struct command *self, droste *d, int argc, char **argv)
{
    const char *words[3];
    size_t count, limited = 0, opened = 0;
    struct keys_request r = { .d = d };
    cleanup_free char *path = NULL;
    struct error err = { 0 };
    const struct flag flags[] = {
        { "keys", "PATH", "The file of keys (keys.json in the data directory).", &r.path },
        { "scopes", "LIST", "What the key may do (read,sandboxes).", &r.scopes },
        { "limit", "NAME=VALUE",
            "How much of it: sandboxes=N at once, starts=N a second, memory=SIZE and cpus=N of "
            "each sandbox, device=DEVICE that a sandbox may ask for, life=TIME, idle=TIME; may be "
            "repeated.",
            NULL, NULL, keys_add_limit },
        { "net", "RULE",
            "A destination that it may open for its sandboxes, a rule of allow-net; may be "
            "repeated.",
            NULL, NULL, keys_add_net },
        { "expires", "TIME", "How long the key is valid.", &r.expires },
        { "json", NULL, "Print JSON.", NULL, &r.json },
        { 0 },
    };
    for (int i = 1; i < argc; i++) {
        limited += strncmp(argv[i], "--limit", 7) == 0;
        opened += strncmp(argv[i], "--net", 5) == 0;
    }
    int status = cli_parse(self, argc, argv, flags, d, words, array_length(words), &count);
    if (status >= 0)
        return status;
    const struct verb_flag only[] = { { "scopes", r.scopes, CREATE },
        { "limit", limited > 0, CREATE }, { "net", opened > 0, CREATE },
        { "expires", r.expires, CREATE }, { "json", r.json, CREATE | LS } };
    const struct keys_verb *verb = verb_pick(self, words, count, only, array_length(only), &status);
    if (!verb)
        return status;
    if (!r.path && keys_default_path(&path, &err) < 0)
        return cli_error(&err);
    r.path = r.path ? r.path : path;
    r.word = count > 1 ? words[1] : NULL;
    return cli_end(verb->run(&r, &err), &err, "the keys");
}

const struct command command_keys = {
    .name = "keys",
    .synopsis = "create [NAME] [--scopes LIST] [--limit NAME=VALUE ...] [--net RULE ...] | "
                "ls [--json] | revoke KEY",
    .summary = "create, list and revoke the keys of droste serve",
    .details = "  create [NAME]  print a new key, once. Programs send it as 'X-API-Key: KEY' or\n"
               "                 'Authorization: Bearer KEY'\n"
               "  ls             list the keys by id, with their scopes and limits\n"
               "  revoke KEY     revoke one by id, or all of a name; their sandboxes end\n"
               "\n"
               "The file has hashes, never keys. A server that is running reads it again when it\n"
               "changes. Scopes: read (list and describe), sandboxes, runs, metrics, admin\n"
               "(everything, with the objects of all keys). Sandboxes have the network that the\n"
               "server's --allow-net gives; --net RULE lets clients with the key ask for more\n"
               "('allow_net' in docs/serve.md).\n"
               "\n"
               "Exit status: 0, 2 usage error or no such key.\n",
    .examples = "  droste keys create ci --limit sandboxes=20 --limit starts=5\n"
                "  droste keys create agent --net api.example.com:443\n"
                "  droste keys create prometheus --scopes metrics\n"
                "  droste keys revoke ci\n",
    .settings = SETTINGS_NONE,
    .verbs = { keys_verbs, array_length(keys_verbs), sizeof *keys_verbs },
    .arguments = "KEY",
    .run = keys_command,
};
