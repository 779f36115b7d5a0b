/* cli/remote/exec.c: droste exec --server: one cell in a new sandbox of a server. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/os/file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/remote/remote.h"
#include "cli/transfer.h"

struct remote_cell {
    struct remote *r;
    const struct remote_exec *e;
    char *sandbox; /* its path */
    struct json_object *result;
};

/* ---- the settings of the command line ---- */

struct json_object *remote_options(const struct list *settings)
{
    struct json_object *options = json_object_new_object();
    for (size_t i = 0; options && i + 1 < settings->count; i += 2) {
        const char *name = settings->items[i], *value = settings->items[i + 1];
        struct json_object *had = NULL;
        if (strcmp(name, "context") == 0)
            continue;
        if (!json_object_object_get_ex(options, name, &had)) {
            json_put_text(options, name, value);
            continue;
        }
        struct json_object *all = json_object_is_type(had, json_type_array)
                                      ? json_object_get(had)
                                      : json_object_new_array();
        if (!json_object_is_type(had, json_type_array))
            json_object_array_add(all, json_object_get(had));
        json_object_array_add(all, json_object_new_string(value));
        json_put(options, name, all);
    }
    return options;
}

static int cell_open_source(const char *path, struct error *err)
{
    if (strcmp(path, "-") == 0)
        return dup(STDIN_FILENO);
    return file_open(path, O_RDONLY, 0, "the context", err);
}

/* NAME=PATH, or PATH: `context`. */
static int cell_put_context(struct remote_cell *c, const char *context, struct error *err)
{
    const char *equals = context[0] == '/' ? NULL : strchr(context, '=');
    cleanup_free char *name =
        equals ? text_copy(context, (size_t)(equals - context)) : strdup("context");
    cleanup_free char *before = text_printf("%s/variables/", c->sandbox);
    cleanup_free char *path = name && before ? remote_path(before, name, "") : NULL;
    cleanup_fd int fd = path ? cell_open_source(equals ? equals + 1 : context, err) : -1;
    const char *const query[] = { "kind", "auto", NULL };
    if (!path)
        return error_memory(err);
    if (fd < 0)
        return -1;
    return remote_ask(c->r,
        &(struct remote_request){
            .method = "PUT", .path = path, .query = query, .file = fd, .has_file = true },
        err);
}

static int cell_put_contexts(struct remote_cell *c, const struct list *settings, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i + 1 < settings->count; i += 2)
        if (strcmp(settings->items[i], "context") == 0)
            rc = cell_put_context(c, settings->items[i + 1], err);
    return rc;
}

/* ---- files ---- */

/* LOCAL:PATH or PATH:LOCAL, at the last colon. */
static int cell_split(
    const char *flag, const char *word, char **first, const char **second, struct error *err)
{
    *first = strdup(word);
    char *colon = *first ? strrchr(*first, ':') : NULL;
    if (!*first)
        return error_memory(err);
    if (!colon || colon == *first || colon[1] == '\0')
        return error_set(
            err, ERROR_ARGUMENT, "--%s %.160s: give it as in the help: FROM:TO", flag, word);
    *colon = '\0';
    *second = colon + 1;
    return 0;
}

static int cell_put_file(struct remote_cell *c, const char *word, struct error *err)
{
    cleanup_free char *local = NULL;
    const char *path = NULL;
    int rc = cell_split("put", word, &local, &path, err);
    cleanup_fd int fd = rc == 0 ? file_open(local, O_RDONLY, 0, "the file", err) : -1;
    cleanup_free char *target = text_printf("%s/files", c->sandbox);
    const char *const query[] = { "path", path, NULL };
    if (fd < 0)
        return rc < 0 ? rc : -1;
    return remote_ask(c->r,
        &(struct remote_request){
            .method = "PUT", .path = target, .query = query, .file = fd, .has_file = true },
        err);
}

static int cell_get_file(struct remote_cell *c, const char *word, struct error *err)
{
    cleanup_free char *path = NULL;
    const char *local = NULL;
    cleanup_free char *target = text_printf("%s/files", c->sandbox);
    int rc = cell_split("get", word, &path, &local, err);
    const char *const query[] = { "path", path, NULL };
    if (rc < 0)
        return rc;
    return remote_fetch(c->r,
        &(struct remote_request){ .method = "GET", .path = target, .query = query }, local, err);
}

/* ---- the cell ---- */

static int cell_create(struct remote_cell *c, const struct list *settings, struct error *err)
{
    cleanup_json struct json_object *body = json_object_new_object(), *made = NULL;
    json_put(body, "options", remote_options(settings));
    int rc = remote_ask_json(c->r,
        &(struct remote_request){
            .method = "POST", .path = "/v1/sandboxes", .json = body, .creates = true },
        &made, err);
    if (rc == 0)
        c->sandbox = remote_path("/v1/sandboxes/", json_get_string(made, "id", ""), "");
    return rc < 0 || c->sandbox ? rc : error_memory(err);
}

static int cell_on_event(void *arg, const char *kind, struct json_object *data, struct error *err)
{
    struct remote_cell *c = arg;
    if (strcmp(kind, "output") == 0 && !c->e->json) {
        bool is_out = strcmp(json_get_string(data, "stream", ""), "stdout") == 0;
        struct json_object *text = json_get_typed(data, "text", json_type_string);
        cli_print(is_out ? stdout : stderr, json_object_get_string(text),
            (size_t)json_object_get_string_len(text));
        cli_flush(is_out ? stdout : stderr);
    } else if (strcmp(kind, "error") == 0) {
        return error_set(err, ERROR_LOST, "%.1500s", json_get_string(data, "message", ""));
    } else if (strcmp(kind, "result") == 0) {
        c->result = json_object_get(data);
        return 1;
    }
    return 0;
}

static int cell_execute(
    struct remote_cell *c, const char *code, size_t len, bool is_shown, struct error *err)
{
    cleanup_json struct json_object *body = json_object_new_object();
    cleanup_free char *path = text_printf("%s/execute", c->sandbox);
    json_put_string(body, "code", code, len);
    json_put(body, "stream", json_object_new_boolean(true));
    json_put(body, "echo", json_object_new_boolean(is_shown));
    const struct remote_request q = { .method = "POST", .path = path, .json = body };
    json_object_put(c->result);
    c->result = NULL;
    int rc = path ? remote_follow(c->r, &q, cell_on_event, c, err) : error_memory(err);
    return rc == 0 && !c->result ? error_set(err, ERROR_LOST, "the cell's stream ended early") : rc;
}

/* sys.argv, as of a script. */
static int cell_set_arguments(struct remote_cell *c, struct error *err)
{
    cleanup_json struct json_object *all = json_object_new_array();
    cleanup_buf struct buf code = { 0 };
    if (!c->e->argv[1] && strcmp(c->e->argv[0], "-c") == 0)
        return 0; /* as it is */
    for (size_t i = 0; c->e->argv[i]; i++)
        json_object_array_add(all, json_object_new_string(c->e->argv[i]));
    size_t len = 0;
    const char *text = json_text(all, &len);
    buf_puts(&code, "__import__('sys').argv = __import__('json').loads(__import__('base64')."
                    "b64decode('");
    json_append_base64(&code, text, len);
    buf_puts(&code, "'))");
    return buf_failed(&code) ? error_memory(err)
                             : cell_execute(c, buf_text(&code), code.len, false, err);
}

static int cell_do(struct remote_cell *c, const struct list *settings, struct error *err)
{
    const struct transfer *files = c->e->files;
    int rc = cell_create(c, settings, err);
    if (rc == 0)
        rc = cell_put_contexts(c, settings, err);
    for (size_t i = 0; rc == 0 && i < files->puts.count; i++)
        rc = cell_put_file(c, files->puts.items[i], err);
    if (rc == 0)
        rc = cell_set_arguments(c, err);
    if (rc == 0)
        rc = cell_execute(c, c->e->code, c->e->len, false, err);
    for (size_t i = 0; rc == 0 && i < files->gets.count; i++)
        rc = cell_get_file(c, files->gets.items[i], err);
    return rc;
}

/* ---- its result ---- */

/* sys.exit(): its status, as of a script; -1: the code did not call it. */
static int cell_exit_status(struct json_object *error)
{
    const char *message = json_get_string(error, "message", "");
    char *end = NULL;
    if (strcmp(json_get_string(error, "type", ""), "SystemExit") != 0)
        return -1;
    long status = strtol(message, &end, 10);
    if (message[0] == '\0' || strcmp(message, "None") == 0)
        return EXIT_FINE;
    return *end == '\0' ? (int)(status & 255) : EXIT_RAISED;
}

static int cell_print(struct remote_cell *c)
{
    struct json_object *error = json_get_typed(c->result, "error", json_type_object);
    struct json_object *submit = json_get_typed(c->result, "submit", json_type_object);
    int exits = cell_exit_status(error);
    const char *status = json_get_string(c->result, "status", "");
    const char *traceback = json_get_string(error, "traceback", NULL);
    const char *killed = json_get_string(c->result, "killed", NULL);
    if (c->e->json) {
        cli_print_json(json_text(c->result, NULL));
    } else {
        if (submit) {
            const char *text = json_text(submit, NULL);
            cli_print(stdout, text, strlen(text));
            putchar('\n');
        }
        if (exits < 0 && traceback)
            cli_print(stderr, traceback, strlen(traceback));
        else if (exits == EXIT_RAISED && strcmp(json_get_string(error, "message", ""), "1") != 0)
            cli_fail(0, "%s", json_get_string(error, "message", ""));
        if (killed)
            cli_note("the sandbox was ended: %s", killed);
        else if (strcmp(status, "timeout") == 0)
            cli_note("the cell reached its --execute-timeout");
    }
    return exits >= 0 ? exits : cli_status_of_cell(status);
}

int remote_exec(const struct remote_exec *e, const struct list *settings)
{
    cleanup_remote struct remote *r = NULL;
    struct remote_cell c = { .e = e };
    struct error err = { 0 }, ignored = { 0 };
    int rc = remote_server_open(e->server, &r, &err);
    c.r = r;
    if (rc == 0)
        rc = cell_do(&c, settings, &err);
    int status = rc < 0 ? cli_error(&err) : cell_print(&c);
    if (c.sandbox)
        remote_ask(r, &(struct remote_request){ .method = "DELETE", .path = c.sandbox }, &ignored);
    json_object_put(c.result);
    free(c.sandbox);
    return cli_finish(status, "the result");
}
