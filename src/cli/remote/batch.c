/* cli/remote/batch.c: droste batch --server.
 *
 * The files that tasks name are stored on the server, and the tasks with the ids of these. The
 * results here are a copy of the server's, whose length says what is missing. RESULTS.batch has the
 * id of the batch, so that the same command again goes on with it.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/line_reader.h"
#include "base/os/file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/remote/remote.h"

enum { NOTE_MAX = 16 << 20 }; /* it has an id for each context */

struct remote_batch_call {
    struct remote *r;
    const struct remote_batch *o;
    const char *directory;      /* of the tasks */
    struct json_object *stored; /* contexts of this call: paths, and the server's ids */
    struct buf tasks;
    char *id, *path; /* of the batch: /v1/batches/ID */
    int out;
    off_t at; /* of the next result */
    struct buf line;
};

/* ---- tasks ---- */

static int remote_batch_store(
    struct remote_batch_call *c, const char *name, int fd, const char **id, struct error *err)
{
    cleanup_free char *made = NULL;
    int rc = remote_store_context(c->r, name, fd, &made, err);
    if (rc == 0 && !json_put_text(c->stored, name, made))
        rc = error_memory(err);
    *id = json_get_string(c->stored, name, "");
    return rc;
}

/* The id of a context, which is stored once. */
static int remote_batch_context(
    struct remote_batch_call *c, const char *path, const char **id, struct error *err)
{
    cleanup_free char *whole =
        path[0] == '/' ? strdup(path) : text_printf("%s/%s", c->directory, path);
    if (!whole)
        return error_memory(err);
    *id = json_get_string(c->stored, whole, NULL);
    if (*id)
        return 0;
    cleanup_fd int fd = file_open(whole, O_RDONLY, 0, "the context", err);
    return fd < 0 ? fd : remote_batch_store(c, whole, fd, id, err);
}

/* Replaces the paths of a task. */
static int remote_batch_convert(
    struct remote_batch_call *c, struct json_object *task, struct error *err)
{
    const char *path = json_get_string(task, "context", NULL), *id = NULL;
    struct json_object *named = json_get_typed(task, "contexts", json_type_object);
    cleanup_json struct json_object *ids = json_object_new_object();
    int rc = path ? remote_batch_context(c, path, &id, err) : 0;
    if (rc == 0 && path && !json_put_text(task, "context", id))
        rc = error_memory(err);
    if (rc < 0 || !named)
        return rc;
    json_object_object_foreach(named, name, value)
    {
        rc = remote_batch_context(c, json_object_get_string(value), &id, err);
        if (rc < 0)
            return rc;
        json_put_text(ids, name, id);
    }
    return json_put(task, "contexts", steal(&ids)) ? 0 : error_memory(err);
}

/* A line that is not a task stays as it is, for the server to refuse by its number. */
static int remote_batch_take_line(void *arg, const struct line *line, struct error *err)
{
    struct remote_batch_call *c = arg;
    cleanup_json struct json_object *task = NULL;
    bool is_task = json_parse(line->text, line->len, &json_limits_large, &task, NULL) == 0 &&
                   json_object_is_type(task, json_type_object);
    int rc = is_task ? remote_batch_convert(c, task, err) : 0;
    if (rc < 0)
        return error_wrap(err, "%.80s, line %zu", c->o->options->tasks, line->number);
    if (is_task)
        buf_puts(&c->tasks, json_text(task, NULL));
    else
        buf_append(&c->tasks, line->text, line->len);
    buf_putc(&c->tasks, '\n');
    return buf_failed(&c->tasks) ? error_memory(err) : 0;
}

static int remote_batch_send_tasks(struct remote_batch_call *c, const char **id, struct error *err)
{
    const char *path = c->o->options->tasks;
    cleanup_fd int fd = file_open(path, O_RDONLY, 0, "the task file", err);
    if (fd < 0)
        return fd;
    cleanup_free char *whole = realpath(path, NULL);
    char *slash = whole ? strrchr(whole, '/') : NULL;
    if (slash)
        *slash = '\0';
    c->directory = whole ? whole : ".";
    int rc = line_reader_read(fd, path, remote_batch_take_line, c, err);
    cleanup_fd int copy = rc < 0 ? -1 : file_memfd("droste-tasks", err);
    if (copy < 0)
        return rc < 0 ? rc : copy;
    if (file_write_all(copy, buf_text(&c->tasks), c->tasks.len) < 0 || lseek(copy, 0, SEEK_SET) < 0)
        return error_set_errno(err, ERROR_IO, "copying the tasks");
    return remote_batch_store(c, "tasks", copy, id, err);
}

/* ---- the beginning ---- */

static struct json_object *remote_batch_limits(const struct remote_batch *o)
{
    const droste_batch_options *from = o->options;
    struct json_object *body = json_object_new_object();
    if (from->concurrency)
        json_put(body, "concurrency", json_object_new_int64(from->concurrency));
    if (from->max_calls)
        json_put(body, "max_calls", json_object_new_int64(from->max_calls));
    if (from->max_tokens)
        json_put(body, "max_tokens", json_object_new_int64(from->max_tokens));
    if (from->max_cost > 0)
        json_put(body, "max_cost", json_object_new_double(from->max_cost));
    if (from->timeout > 0)
        json_put(body, "timeout_seconds", json_object_new_double(from->timeout));
    json_put(body, "again", json_object_new_boolean(from->again));
    return body;
}

static void remote_batch_forget_stored(struct remote_batch_call *c)
{
    struct error ignored = { 0 };
    json_object_object_foreach(c->stored, name, id)
    {
        (void)name;
        cleanup_free char *path = remote_path("/v1/contexts/", json_object_get_string(id), "");
        if (path)
            remote_ask(
                c->r, &(struct remote_request){ .method = "DELETE", .path = path }, &ignored);
    }
}

/* Notes the batch, and what is stored for it, a line each, so that a later call removes that. */
static int remote_batch_note(struct remote_batch_call *c, const char *note, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    buf_printf(&text, "%s\n", c->id);
    json_object_object_foreach(c->stored, name, id)
    {
        (void)name;
        buf_printf(&text, "%s\n", json_object_get_string(id));
    }
    return buf_failed(&text) ? error_memory(err)
                             : file_replace(note, buf_text(&text), text.len, err);
}

static int remote_batch_take_note(struct remote_batch_call *c, struct buf *text, struct error *err)
{
    char *rest = text->data, *line = strsep(&rest, "\n");
    c->id = strdup(line ? line : "");
    while (c->id && (line = strsep(&rest, "\n")))
        if (*line && !json_put_text(c->stored, line, line))
            return error_memory(err);
    return c->id ? 0 : error_memory(err);
}

static int remote_batch_create(
    struct remote_batch_call *c, const struct list *settings, const char *note, struct error *err)
{
    cleanup_json struct json_object *body = remote_batch_limits(c->o), *made = NULL;
    const char *tasks = NULL;
    if (c->at > 0)
        return error_set(err, ERROR_ARGUMENT,
            "%.100s has results of another batch; give --out another file", c->o->options->results);
    int rc = remote_batch_send_tasks(c, &tasks, err);
    if (rc == 0) {
        json_put_text(body, "tasks_file", tasks);
        json_put(body, "options", remote_options(settings));
        if (c->o->options->grader)
            json_put_text(body, "grader", c->o->options->grader);
        rc = remote_ask_json(c->r,
            &(struct remote_request){
                .method = "POST", .path = "/v1/batches", .json = body, .creates = true },
            &made, err);
    }
    if (rc < 0) {
        remote_batch_forget_stored(c);
        return rc;
    }
    c->id = strdup(json_get_string(made, "batch", ""));
    return c->id ? remote_batch_note(c, note, err) : error_memory(err);
}

/* Goes on with the batch of an earlier call, unless it is active or has ended. */
static int remote_batch_resume(struct remote_batch_call *c, struct error *err)
{
    cleanup_json struct json_object *found = NULL, *body = remote_batch_limits(c->o), *none = NULL;
    cleanup_free char *path = remote_path("/v1/batches/", c->id, "/resume");
    int rc = remote_ask_json(
        c->r, &(struct remote_request){ .method = "GET", .path = c->path }, &found, err);
    const char *status = json_get_string(found, "status", "");
    if (rc < 0 || strcmp(status, "running") == 0)
        return rc;
    if (strcmp(status, "ended") == 0 && !c->o->options->again)
        return 0;
    return path ? remote_ask_json(c->r,
                      &(struct remote_request){ .method = "POST", .path = path, .json = body },
                      &none, err)
                : error_memory(err);
}

static int remote_batch_begin(
    struct remote_batch_call *c, const struct list *settings, struct error *err)
{
    cleanup_free char *note = text_printf("%s.batch", c->o->options->results);
    cleanup_buf struct buf text = { 0 };
    if (!note)
        return error_memory(err);
    bool is_new = access(note, F_OK) < 0;
    int rc = is_new ? remote_batch_create(c, settings, note, err)
                    : file_read(note, NOTE_MAX, &text, err);
    if (rc == 0 && !is_new)
        rc = remote_batch_take_note(c, &text, err);
    if (rc == 0)
        c->path = remote_path("/v1/batches/", c->id ? c->id : "", "");
    if (rc == 0 && !c->path)
        rc = error_memory(err);
    return rc < 0 || is_new ? rc : remote_batch_resume(c, err);
}

/* ---- results ---- */

/* What a killed command has left of a line is asked for again. */
static int remote_batch_open(struct remote_batch_call *c, struct error *err)
{
    const char *path = c->o->options->results;
    struct stat st;
    char last = '\n';
    c->out = file_open(path, O_RDWR | O_CREAT | O_APPEND, 0, "the results file", err);
    if (c->out < 0)
        return c->out;
    if (flock(c->out, LOCK_EX | LOCK_NB) < 0)
        return error_set(err, ERROR_ARGUMENT, "another batch is writing to %.120s", path);
    if (fstat(c->out, &st) < 0)
        return error_set_errno(err, ERROR_IO, "reading %.120s", path);
    for (c->at = st.st_size; c->at > 0; c->at--)
        if (pread(c->out, &last, 1, c->at - 1) == 1 && last == '\n')
            break;
    return c->at == st.st_size || ftruncate(c->out, c->at) == 0
               ? 0
               : error_set_errno(err, ERROR_IO, "writing %.120s", path);
}

static int remote_batch_take_piece(void *arg, const char *data, size_t len, struct error *err)
{
    struct remote_batch_call *c = arg;
    buf_append(&c->line, data, len);
    if (buf_failed(&c->line))
        return error_memory(err);
    const char *end = c->line.len ? memrchr(c->line.data, '\n', c->line.len) : NULL;
    size_t whole = end ? (size_t)(end - c->line.data) + 1 : 0;
    if (whole == 0)
        return 0;
    if (file_write_all(c->out, c->line.data, whole) < 0)
        return error_set_errno(err, ERROR_IO, "writing %.120s", c->o->options->results);
    c->at += (off_t)whole;
    if (c->o->verbose)
        cli_print(stderr, c->line.data, whole);
    buf_consume(&c->line, whole);
    return 0;
}

static int remote_batch_follow(struct remote_batch_call *c, struct error *err)
{
    char offset[24];
    cleanup_free char *path = remote_path("/v1/batches/", c->id, "/results");
    snprintf(offset, sizeof offset, "%lld", (long long)c->at);
    const char *const query[] = { "offset", offset, "follow", "yes", NULL };
    buf_clear(&c->line);
    return path ? remote_ask(c->r,
                      &(struct remote_request){ .method = "GET",
                          .path = path,
                          .query = query,
                          .piece = remote_batch_take_piece,
                          .arg = c },
                      err)
                : error_memory(err);
}

/* After Ctrl-C the batch is cancelled, and the results until then are fetched. */
static int remote_batch_wait(struct remote_batch_call *c, struct error *err)
{
    struct error ignored = { 0 };
    cleanup_free char *cancel = remote_path("/v1/batches/", c->id, "/cancel");
    int rc = remote_batch_follow(c, err);
    if (rc == 0 || err->code != ERROR_CANCELLED || !cancel)
        return rc;
    remote_ask(c->r, &(struct remote_request){ .method = "POST", .path = cancel }, &ignored);
    *err = (struct error){ 0 };
    return remote_batch_follow(c, err);
}

/* ---- the end ---- */

static const char *remote_batch_stopped(const char *word)
{
    static const char *const words[] = { "interrupt", "budget", "timeout", "error" };
    for (size_t i = 0; word && i < array_length(words); i++)
        if (strcmp(words[i], word) == 0)
            return words[i];
    return word ? "error" : NULL;
}

static void remote_batch_read_state(struct json_object *o, droste_batch_state *s)
{
    struct json_object *statuses = json_get_typed(o, "statuses", json_type_object), *cost = NULL;
    const struct {
        struct json_object *from;
        const char *name;
        size_t *to;
    } counts[] = { { o, "tasks", &s->tasks }, { o, "earlier", &s->earlier },
        { o, "resumed", &s->resumed }, { o, "interrupted", &s->interrupted },
        { o, "graded", &s->graded }, { o, "passed", &s->passed }, { o, "ungraded", &s->ungraded },
        { statuses, "answered", &s->answered }, { statuses, "exhausted", &s->exhausted },
        { statuses, "budget", &s->budget }, { statuses, "timeout", &s->timeout },
        { statuses, "cancelled", &s->cancelled }, { statuses, "error", &s->error } };
    *s = (droste_batch_state){ 0 };
    for (size_t i = 0; i < array_length(counts); i++)
        *counts[i].to = (size_t)json_get_int(counts[i].from, counts[i].name, 0);
    s->score = json_get_double(o, "score", 0) * (double)s->graded;
    s->calls = json_get_int(o, "calls", 0);
    s->input_tokens = json_get_int(o, "input_tokens", 0);
    s->output_tokens = json_get_int(o, "output_tokens", 0);
    json_object_object_get_ex(o, "cost", &cost);
    s->cost = cost ? json_object_get_double(cost) : -1;
    s->seconds = json_get_double(o, "seconds", 0);
    s->stopped = remote_batch_stopped(json_get_string(o, "stopped", NULL));
    if (!s->stopped && strcmp(json_get_string(o, "status", ""), "ended") != 0)
        s->stopped = "interrupt"; /* its server died */
    snprintf(s->why, sizeof s->why, "%s", json_get_string(o, "why", "the server stopped"));
}

/* The stored tasks and contexts go when all tasks have their results. */
static int remote_batch_end(
    struct remote_batch_call *c, droste_batch_state *state, struct error *err)
{
    cleanup_json struct json_object *found = NULL;
    int rc = remote_ask_json(
        c->r, &(struct remote_request){ .method = "GET", .path = c->path }, &found, err);
    if (rc < 0)
        return rc;
    remote_batch_read_state(found, state);
    if (!state->stopped)
        remote_batch_forget_stored(c);
    return 0;
}

int remote_batch(const struct remote_batch *o, const struct list *settings,
    droste_batch_state *state, struct error *err)
{
    struct remote_batch_call c = { .o = o, .out = -1, .stored = json_object_new_object() };
    int rc = c.stored ? remote_server_open(o->server, &c.r, err) : error_memory(err);
    if (rc == 0)
        rc = remote_batch_open(&c, err);
    if (rc == 0)
        rc = remote_batch_begin(&c, settings, err);
    if (rc == 0)
        rc = remote_batch_wait(&c, err);
    if (rc == 0)
        rc = remote_batch_end(&c, state, err);
    close_fd(&c.out);
    buf_free(&c.tasks);
    buf_free(&c.line);
    json_object_put(c.stored);
    free(c.id);
    free(c.path);
    remote_server_close(c.r);
    return rc;
}
