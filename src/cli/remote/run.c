/* cli/remote/run.c: droste run --server, and how a run of a server is followed. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/os/file.h"
#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/remote/remote.h"

/* ---- the end ---- */

/* What `droste run --json` prints, as far as the server knows it. */
static void watch_print_json(struct json_object *run)
{
    static const char *const members[] = { "answer", "status", "run", "iterations", "usage",
        "error", "isolation" };
    cleanup_json struct json_object *out = json_object_new_object();
    for (size_t i = 0; i < array_length(members); i++) {
        struct json_object *value = NULL;
        json_object_object_get_ex(run, members[i], &value);
        json_put(out, members[i], json_object_get(value));
    }
    cli_print_json(json_text(out, NULL));
}

static int watch_print(struct json_object *run, bool json)
{
    const char *status = json_get_string(run, "status", "");
    const char *error = json_get_string(run, "error", NULL);
    struct json_object *answer = NULL;
    json_object_object_get_ex(run, "answer", &answer);
    if (json) {
        watch_print_json(run);
    } else {
        if (error)
            cli_fail(0, "%s", error);
        if (answer) {
            size_t len = 0;
            const char *text = json_text(answer, &len);
            answer_print_value(text, len);
        }
    }
    return cli_finish(answer_status(status, EXIT_RAISED), "the answer");
}

/* ---- the way there ---- */

struct remote_watch {
    const char *run;
    bool quiet;
};

static int watch_on_event(void *arg, const char *kind, struct json_object *data, struct error *err)
{
    const struct remote_watch *w = arg;
    bool is_own = strcmp(json_get_string(data, "run", ""), w->run) == 0;
    if (strcmp(kind, "interrupted") == 0)
        return 1;
    if (!is_own)
        return 0;
    if (!w->quiet && strcmp(kind, "turn") == 0 &&
        strcmp(json_get_string(data, "status", "running"), "running") == 0)
        cli_note("turn %lld", (long long)json_get_int(data, "turn", 0));
    if (!w->quiet && strcmp(kind, "cell") == 0 &&
        strcmp(json_get_string(data, "status", ""), "running") != 0)
        cli_note("a cell ended: %s", json_get_string(data, "status", ""));
    return strcmp(kind, "end") == 0;
}

int remote_watch(struct remote *r, const char *run, bool json, bool quiet)
{
    struct error err = { 0 }, ignored = { 0 };
    struct remote_watch w = { run, quiet };
    cleanup_json struct json_object *found = NULL;
    cleanup_free char *path = remote_path("/v1/runs/", run, "");
    cleanup_free char *events = remote_path("/v1/runs/", run, "/events");
    cleanup_free char *cancel = remote_path("/v1/runs/", run, "/cancel");
    if (!path || !events || !cancel)
        return cli_fail(EXIT_ENVIRONMENT, "out of memory");
    int rc = remote_follow(
        r, &(struct remote_request){ .method = "GET", .path = events }, watch_on_event, &w, &err);
    if (rc < 0 && err.code == ERROR_CANCELLED) {
        remote_ask(r, &(struct remote_request){ .method = "POST", .path = cancel }, &ignored);
        rc = remote_follow(r, &(struct remote_request){ .method = "GET", .path = events },
            watch_on_event, &w, &err);
    }
    if (rc == 0)
        rc = remote_ask_json(
            r, &(struct remote_request){ .method = "GET", .path = path }, &found, &err);
    return rc < 0 ? cli_error(&err) : watch_print(found, json);
}

/* ---- the beginning ---- */

int remote_store_context(struct remote *r, const char *name, int fd, char **id, struct error *err)
{
    const char *const query[] = { "name", name, NULL };
    cleanup_json struct json_object *stored = NULL;
    int rc = remote_ask_json(r,
        &(struct remote_request){ .method = "POST",
            .path = "/v1/contexts",
            .query = query,
            .file = fd,
            .has_file = true,
            .creates = true },
        &stored, err);
    if (rc == 0)
        *id = strdup(json_get_string(stored, "id", ""));
    return rc < 0 || *id ? rc : error_memory(err);
}

static int run_store(struct remote *r, const char *context, char **id, struct error *err)
{
    const char *name = strrchr(context, '/');
    cleanup_fd int fd = strcmp(context, "-") == 0
                            ? dup(STDIN_FILENO)
                            : file_open(context, O_RDONLY, 0, "the context", err);
    return fd < 0 ? -1 : remote_store_context(r, name ? name + 1 : context, fd, id, err);
}

static int run_put_context(struct remote *r, const struct list *settings, struct json_object *body,
    char **id, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i + 1 < settings->count; i += 2) {
        const char *context = settings->items[i + 1];
        if (strcmp(settings->items[i], "context") != 0)
            continue;
        if (*id || (strchr(context, '=') && access(context, F_OK) != 0))
            return error_set(err, ERROR_UNSUPPORTED,
                "a run of a server has one context, without a name: join the files, or leave out "
                "--server");
        rc = run_store(r, context, id, err);
        if (rc == 0)
            json_put_text(body, "context_file", *id);
    }
    return rc;
}

static int run_start(struct remote *r, const struct remote_run *q, const struct list *settings,
    char **stored, char **run, struct error *err)
{
    cleanup_json struct json_object *body = json_object_new_object(), *made = NULL;
    json_put_text(body, "question", q->question);
    json_put(body, "options", remote_options(settings));
    int rc = run_put_context(r, settings, body, stored, err);
    if (rc == 0)
        rc = remote_ask_json(r,
            &(struct remote_request){
                .method = "POST", .path = "/v1/runs", .json = body, .creates = true },
            &made, err);
    if (rc == 0)
        *run = strdup(json_get_string(made, "run", ""));
    return rc < 0 || *run ? rc : error_memory(err);
}

int remote_run(const struct remote_run *q, const struct list *settings)
{
    cleanup_remote struct remote *r = NULL;
    cleanup_free char *stored = NULL, *run = NULL;
    struct error err = { 0 }, ignored = { 0 };
    int rc = remote_server_open(q->server, &r, &err);
    if (rc == 0)
        rc = run_start(r, q, settings, &stored, &run, &err);
    int status = rc < 0 ? cli_error(&err) : remote_watch(r, run, q->json, q->quiet);
    cleanup_free char *path = stored ? remote_path("/v1/contexts/", stored, "") : NULL;
    if (path)
        remote_ask(r, &(struct remote_request){ .method = "DELETE", .path = path }, &ignored);
    return status;
}
