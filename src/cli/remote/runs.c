/* cli/remote/runs.c: droste runs --server. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "cli/cli.h"
#include "cli/list.h"
#include "cli/remote/remote.h"

enum { RUNS_PAGE = 1000, RUNS_ID_LENGTH = 32 };

struct remote_runs_call {
    struct remote *r;
    const struct remote_runs *o;
    char *id; /* of the one run */
};

static int runs_page(struct remote_runs_call *c, const struct remote_runs *o, int64_t limit,
    const char *before, struct json_object **found, struct error *err)
{
    char most[24];
    snprintf(most, sizeof most, "%lld", (long long)limit);
    const char *const query[] = { "limit", most, "before", before, "status", o->status, "model",
        o->model, NULL };
    return remote_ask_json(c->r,
        &(struct remote_request){ .method = "GET", .path = "/v1/runs", .query = query }, found,
        err);
}

/* ---- ids ---- */

/* The run whose id is, or begins with, the word. */
static int runs_resolve(struct remote_runs_call *c, const char *word, struct error *err)
{
    cleanup_json struct json_object *found = NULL;
    static const struct remote_runs any;
    size_t n = strlen(word);
    free(steal(&c->id));
    if (n >= RUNS_ID_LENGTH) {
        c->id = strdup(word);
        return c->id ? 0 : error_memory(err);
    }
    int rc = runs_page(c, &any, RUNS_PAGE, "0", &found, err);
    struct json_object *all = json_get_typed(found, "runs", json_type_array);
    for (size_t i = 0; rc == 0 && i < json_length(all); i++) {
        const char *id = json_get_string(json_object_array_get_idx(all, i), "run", "");
        if (strncmp(id, word, n) != 0)
            continue;
        if (c->id)
            return error_set(err, ERROR_ARGUMENT, "several runs begin with '%.64s'", word);
        c->id = strdup(id);
    }
    return rc < 0 || c->id
               ? rc
               : error_set(err, ERROR_NOT_FOUND, "no run of the server begins with '%.64s'", word);
}

static int runs_about(struct remote_runs_call *c, const char *method, const char *below,
    struct json_object **answer, struct error *err)
{
    cleanup_free char *path = remote_path("/v1/runs/", c->id, below);
    return path ? remote_ask_json(
                      c->r, &(struct remote_request){ .method = method, .path = path }, answer, err)
                : error_memory(err);
}

/* ---- the verbs ---- */

static int64_t runs_time(struct json_object *run, const char *member)
{
    struct tm tm = { 0 };
    const char *text = json_get_string(run, member, NULL);
    return text && strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) ? (int64_t)timegm(&tm) * 1000 : 0;
}

static droste_record_run runs_row(struct json_object *o)
{
    struct json_object *used = json_get_typed(o, "usage", json_type_object);
    const char *question = json_get_string(o, "question", "");
    return (droste_record_run){ .id = json_get_string(o, "run", ""),
        .previous = json_get_string(o, "previous", NULL),
        .batch = json_get_string(o, "batch", NULL),
        .task = json_get_string(o, "task", NULL),
        .model = json_get_string(o, "model", ""),
        .status = json_get_string(o, "status", ""),
        .question = { question, strlen(question), NULL },
        .started_ms = runs_time(o, "started"),
        .ended_ms = runs_time(o, "ended"),
        .iterations = json_get_int(o, "iterations", 0),
        .calls = json_get_int(used, "calls", 0),
        .input_tokens = json_get_int(used, "input_tokens", 0),
        .output_tokens = json_get_int(used, "output_tokens", 0),
        .seconds = json_get_double(used, "seconds", 0) };
}

static int runs_print(struct json_object *all, const struct remote_runs *o, struct error *err)
{
    size_t count = json_length(all);
    cleanup_free droste_record_run *rows = calloc(count + 1, sizeof *rows);
    if (!rows)
        return error_memory(err);
    for (size_t i = 0; i < count; i++)
        rows[i] = runs_row(json_object_array_get_idx(all, i));
    return list_rows_as_text(rows, count, o->status || o->model, o->server, err);
}

static int remote_runs_ls(struct remote_runs_call *c, struct error *err)
{
    cleanup_json struct json_object *all = json_object_new_array();
    cleanup_free char *before = strdup("0");
    int64_t left = c->o->limit;
    while (left > 0 && before) {
        cleanup_json struct json_object *found = NULL;
        struct json_object *next = NULL;
        int rc = runs_page(c, c->o, left < RUNS_PAGE ? left : RUNS_PAGE, before, &found, err);
        if (rc < 0)
            return rc;
        struct json_object *page = json_get_typed(found, "runs", json_type_array);
        for (size_t i = 0; i < json_length(page); i++)
            json_object_array_add(all, json_object_get(json_object_array_get_idx(page, i)));
        left -= (int64_t)json_length(page);
        free(before); /* a number, or a text of a cluster's */
        json_object_object_get_ex(found, "next", &next);
        before = next ? strdup(json_object_get_string(next)) : NULL;
    }
    if (!c->o->json)
        return runs_print(all, c->o, err);
    cli_print_json(json_text(all, NULL));
    return 0;
}

/* Each line of a text behind a mark, as `droste runs show` has them. */
static void show_lines(const char *mark, const char *text)
{
    for (const char *at = text; at && *at;) {
        size_t n = strcspn(at, "\n");
        printf("%s ", mark);
        cli_print(stdout, at, n);
        putchar('\n');
        at += n + (at[n] == '\n');
    }
}

static void show_value(const char *mark, struct json_object *o, const char *member)
{
    struct json_object *value = NULL;
    if (json_object_object_get_ex(o, member, &value) && value)
        show_lines(mark, json_object_is_type(value, json_type_string)
                             ? json_object_get_string(value)
                             : json_text(value, NULL));
}

static int show_on_event(void *arg, const char *kind, struct json_object *o, struct error *err)
{
    const char *id = arg;
    bool is_over = strcmp(json_get_string(o, "status", "running"), "running") != 0;
    if (strcmp(kind, "interrupted") == 0)
        return 1;
    if (strcmp(json_get_string(o, "run", ""), id) != 0)
        return 0;
    if (strcmp(kind, "turn") == 0 && !is_over)
        printf("turn %lld\n", (long long)json_get_int(o, "turn", 0));
    if (strcmp(kind, "cell") == 0 && is_over) {
        struct json_object *error = json_get_typed(o, "error", json_type_object);
        show_value(">", o, "code");
        show_value("|", o, "stdout");
        show_value("|!", o, "stderr");
        show_value("!", error, "traceback");
        show_value("=", o, "submit");
    }
    return strcmp(kind, "end") == 0;
}

/* What a run did, from its beginning, and until its end if it is active. */
static int runs_tell(struct remote_runs_call *c, struct error *err)
{
    cleanup_free char *path = remote_path("/v1/runs/", c->id, "/events");
    cleanup_json struct json_object *run = NULL;
    int rc = path ? remote_follow(c->r, &(struct remote_request){ .method = "GET", .path = path },
                        show_on_event, c->id, err)
                  : error_memory(err);
    if (rc == 0)
        rc = runs_about(c, "GET", "", &run, err);
    if (rc < 0)
        return rc;
    printf("%s  %s\n", c->id, json_get_string(run, "status", ""));
    show_value("question:", run, "question");
    show_value("error:", run, "error");
    show_value("answer:", run, "answer");
    return 0;
}

static int remote_runs_show(struct remote_runs_call *c, struct error *err)
{
    cleanup_json struct json_object *run = NULL;
    if (!c->o->json)
        return runs_tell(c, err);
    int rc = runs_about(c, "GET", "", &run, err);
    if (rc == 0)
        cli_print_json(json_text(run, NULL));
    return rc;
}

static int remote_runs_cancel(struct remote_runs_call *c, struct error *err)
{
    cleanup_json struct json_object *none = NULL;
    return runs_about(c, "POST", "/cancel", &none, err);
}

static int remote_runs_rm(struct remote_runs_call *c, struct error *err)
{
    cleanup_json struct json_object *none = NULL;
    return runs_about(c, "DELETE", "", &none, err);
}

static int remote_runs_export(struct remote_runs_call *c, struct error *err)
{
    cleanup_free char *path = remote_path("/v1/runs/", c->id, "/export");
    const char *const query[] = { "format", c->o->format, NULL };
    return path ? remote_fetch(c->r,
                      &(struct remote_request){ .method = "GET", .path = path, .query = query },
                      c->o->out ? c->o->out : "-", err)
                : error_memory(err);
}

static const struct remote_runs_verb {
    const char *name;
    int (*run)(struct remote_runs_call *c, struct error *err);
    bool is_of_all; /* and takes no id */
    bool takes_several;
} remote_runs_verbs[] = {
    { "ls", remote_runs_ls, true },
    { "show", remote_runs_show },
    { "follow", runs_tell },
    { "cancel", remote_runs_cancel, .takes_several = true },
    { "rm", remote_runs_rm, .takes_several = true },
    { "export", remote_runs_export },
};

/* Goes on with a run and prints its answer; returns the exit status. */
static int remote_runs_resume(struct remote_runs_call *c, const char *word)
{
    cleanup_json struct json_object *run = NULL;
    struct error err = { 0 };
    int rc = runs_resolve(c, word, &err);
    if (rc == 0)
        rc = runs_about(c, "POST", "/resume", &run, &err);
    return rc < 0 ? cli_error(&err) : remote_watch(c->r, c->id, c->o->json, !isatty(STDERR_FILENO));
}

static int remote_runs_do(struct remote_runs_call *c, const struct remote_runs_verb *verb,
    const char **ids, size_t count, struct error *err)
{
    if (verb->is_of_all)
        return verb->run(c, err);
    if (count != 1 && !verb->takes_several)
        return error_set(
            err, ERROR_UNSUPPORTED, "%s of a server takes the id of one run", verb->name);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = runs_resolve(c, ids[i], err);
        if (rc == 0)
            rc = verb->run(c, err);
    }
    return rc;
}

int remote_runs(const struct remote_runs *o, const char *verb, const char **ids, size_t count)
{
    struct remote_runs_call c = { .o = o };
    const struct remote_runs_verb *found = NULL;
    cleanup_remote struct remote *r = NULL;
    struct error err = { 0 };
    bool resumes = strcmp(verb, "resume") == 0;
    for (size_t i = 0; i < array_length(remote_runs_verbs); i++)
        if (strcmp(remote_runs_verbs[i].name, verb) == 0)
            found = &remote_runs_verbs[i];
    int rc = found || resumes ? 0
                              : error_set(&err, ERROR_UNSUPPORTED,
                                    "a server does not support `runs %s`: run it where the server "
                                    "is",
                                    verb);
    if (rc == 0)
        rc = remote_server_open(o->server, &r, &err);
    c.r = r;
    int status = -1;
    if (rc == 0 && resumes)
        status = remote_runs_resume(&c, ids[0]);
    else if (rc == 0)
        rc = remote_runs_do(&c, found, ids, count, &err);
    free(c.id);
    return status >= 0 ? status : cli_end(rc, &err, "the output");
}
