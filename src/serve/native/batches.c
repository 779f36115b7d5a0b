/* serve/native/batches.c: see batches.h. */
#include "serve/native/batches.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "base/os/file.h"
#include "base/os/tree.h"
#include "base/text.h"
#include "serve/log.h"
#include "serve/native/contexts.h"
#include "serve/native/run_options.h"
#include "serve/options.h"

enum { BATCHES_MOST = 1000, BATCH_SAVE_TICKS = 50 };

/* What a client may ask for again when it resumes. */
static const char *const batch_limits[] = { "concurrency", "max_calls", "max_tokens", "max_cost",
    "timeout_seconds", "again" };

/* ---- descriptions ---- */

void batch_put_state(struct buf *out, const droste_batch_state *s)
{
    const struct {
        const char *name;
        size_t count;
    } statuses[] = { { "answered", s->answered }, { "exhausted", s->exhausted },
        { "budget", s->budget }, { "timeout", s->timeout }, { "cancelled", s->cancelled },
        { "error", s->error } };
    size_t done = 0;
    for (size_t i = 0; i < array_length(statuses); i++)
        done += statuses[i].count;
    field_int(out, "tasks", (int64_t)s->tasks);
    field_int(out, "earlier", (int64_t)s->earlier);
    field_int(out, "resumed", (int64_t)s->resumed);
    field_int(out, "interrupted", (int64_t)s->interrupted);
    field_int(out, "left", (int64_t)(s->tasks - done));
    field_open(out, "statuses", '{');
    for (size_t i = 0; i < array_length(statuses); i++)
        field_int(out, statuses[i].name, (int64_t)statuses[i].count);
    field_close(out, '}');
    field_int(out, "graded", (int64_t)s->graded);
    field_int(out, "passed", (int64_t)s->passed);
    field_int(out, "ungraded", (int64_t)s->ungraded);
    if (s->graded > 0)
        field_real(out, "score", s->score / (double)s->graded);
    else
        field_null(out, "score");
    field_int(out, "calls", s->calls);
    field_int(out, "input_tokens", s->input_tokens);
    field_int(out, "output_tokens", s->output_tokens);
    if (s->cost >= 0)
        field_real(out, "cost", s->cost);
    else
        field_null(out, "cost");
    field_real(out, "seconds", s->seconds);
    field_string(out, "stopped", s->stopped);
    field_string(out, "why", s->stopped ? s->why : NULL);
}

static bool batch_set_state(struct served_batch *b, const char *status, const droste_batch_state *s)
{
    cleanup_buf struct buf text = { 0 };
    struct json_object *state = NULL;
    field_open(&text, NULL, '{');
    batch_put_state(&text, s);
    field_close(&text, '}');
    return !buf_failed(&text) &&
           json_parse(text.data, text.len, &json_limits_small, &state, NULL) == 0 &&
           json_put_text(b->object, "status", status) && json_put(b->object, "state", state);
}

/* {"batch", "status", "created_ms", "running", and the state's}. */
static void batch_describe(
    struct request *r, const char *directory, const char *id, struct buf *out)
{
    struct served_batch *b = batch_active(r->server, id);
    cleanup_json struct json_object *read = b ? NULL : batch_read(directory);
    struct json_object *object = b ? b->object : read;
    const droste_batch_state *now = b ? droste_batch_state_of(b->running) : NULL;
    const char *status = json_get_string(object, "status", "interrupted");
    if (strcmp(status, "running") == 0 && !b && !batch_is_locked(directory))
        status = "interrupted";
    field_open(out, NULL, '{');
    field_string(out, "batch", id);
    field_string(out, "status", status);
    field_int(out, "created_ms", json_get_int(object, "created_ms", 0));
    field_int(out, "running", now ? (int64_t)now->running : 0);
    struct json_object *state = json_get_typed(object, "state", json_type_object);
    if (now) {
        batch_put_state(out, now);
    } else if (state) {
        json_object_object_foreach(state, name, value)
        {
            field_json(out, name, value ? json_text(value, NULL) : "null");
        }
    }
    field_close(out, '}');
}

static void batch_reply(struct request *r, const char *directory, const char *id)
{
    cleanup_buf struct buf out = { 0 };
    batch_describe(r, directory, id, &out);
    request_reply_written(r, (unsigned)r->route->status, &out);
}

/* ---- one that runs ---- */

static void batch_free(struct served_batch *b)
{
    free(b->directory);
    free(b->tasks);
    free(b->results);
    free(b->contexts);
    json_object_put(b->object);
    buf_free(&b->words);
    free(b->settings);
    free(b);
}

static void batch_on_event(void *arg, const droste_batch_event *event)
{
    struct served_batch *b = arg;
    struct error err = { 0 };
    if (strcmp(event->kind, "result") == 0)
        batch_results_serve(b->server, b->id);
    if (strcmp(event->kind, "tick") != 0 || ++b->ticks % BATCH_SAVE_TICKS != 0)
        return;
    if (batch_set_state(b, "running", event->state) && batch_save(b, &err) < 0)
        log_event(b->server, LOG_ERROR, "batch %s: %s", b->id, err.text);
}

static void batch_on_done(void *arg, const droste_batch_state *end, const droste_error *failed)
{
    struct served_batch *b = arg, **at = &b->server->batches;
    struct server *s = b->server;
    struct error err = { 0 };
    if (!batch_set_state(b, end->stopped ? "stopped" : "ended", end) || batch_save(b, &err) < 0)
        log_event(s, LOG_ERROR, "batch %s: %s", b->id, err.text);
    while (*at != b)
        at = &(*at)->next;
    *at = b->next;
    batch_results_serve(s, b->id);
    batch_free(b);
}

/* The options of all tasks; false: the request was refused. */
static bool batch_take_options(struct request *r, struct served_batch *b)
{
    struct json_object *o = json_get_typed(b->object, "options", json_type_object);
    if (!run_options(r, o, &b->words))
        return false;
    b->settings = sandbox_list_settings(&b->words);
    struct json_object *from = b->object;
    b->options = (droste_batch_options){ .tasks = b->tasks,
        .results = b->results,
        .concurrency = (unsigned)json_get_int(from, "concurrency", 0),
        .grader = json_get_string(from, "grader", NULL),
        .again = json_get_bool(from, "again", false),
        .max_calls = json_get_int(from, "max_calls", 0),
        .max_tokens = json_get_int(from, "max_tokens", 0),
        .max_cost = json_get_double(from, "max_cost", 0),
        .timeout = json_get_double(from, "timeout_seconds", 0) };
    if (b->options.grader && strncmp(b->options.grader, "program", 7) == 0)
        request_refuse(r, 400, "argument", "a client cannot name a program that grades");
    else if (!b->settings)
        request_refuse_memory(r);
    return !r->reply;
}

/* Starts it; false: the request was refused, and the batch is as it was. */
static bool batch_begin(struct request *r, struct served_batch *b)
{
    struct server *s = r->server;
    struct error unsaved = { 0 };
    droste_error err;
    if (!batch_take_options(r, b))
        return false;
    batch_set_host(b);
    if (droste_batch_start(
            s->d, &b->options, &b->host, batch_on_event, batch_on_done, b, &b->running, &err) < 0) {
        request_fail(r, &err);
        return false;
    }
    b->next = s->batches;
    s->batches = b;
    if (!batch_set_state(b, "running", droste_batch_state_of(b->running)) ||
        batch_save(b, &unsaved) < 0)
        droste_batch_stop(b->running, "error", unsaved.text);
    return true;
}

static struct served_batch *batch_new(struct request *r, const char *directory, const char *id)
{
    struct served_batch *b = calloc(1, sizeof *b);
    if (b) {
        b->server = r->server;
        b->owner = r->account;
        snprintf(b->id, sizeof b->id, "%s", id);
        b->directory = strdup(directory);
        b->tasks = text_printf("%s/tasks.jsonl", directory);
        b->results = text_printf("%s/results.jsonl", directory);
        b->contexts = contexts_directory(r);
        if (b->directory && b->tasks && b->results && b->contexts)
            return b;
        batch_free(b);
    }
    if (!r->reply)
        request_refuse_memory(r);
    return NULL;
}

/* ---- a new one ---- */

static int batch_write_tasks(struct json_object *tasks, const char *path)
{
    cleanup_buf struct buf text = { 0 };
    for (size_t i = 0; i < json_length(tasks); i++) {
        buf_puts(&text, json_text(json_object_array_get_idx(tasks, i), NULL));
        buf_putc(&text, '\n');
    }
    struct error err = { 0 };
    return buf_failed(&text) || file_replace(path, text.data, text.len, &err) < 0 ? -1 : 0;
}

/* The tasks of the body, or a stored file, which the batch has from now on whatever becomes of the
 * stored one. False: the request was refused. */
static bool batch_take_tasks(struct request *r, const char *path)
{
    const char *stored = json_get_string(r->json, "tasks_file", NULL);
    struct json_object *tasks = json_get_typed(r->json, "tasks", json_type_array);
    cleanup_free char *from = stored ? contexts_path(r, stored) : NULL;
    if (stored && !from)
        return false;
    if ((stored ? link(from, path) : batch_write_tasks(tasks, path)) < 0)
        request_refuse(r, errno == ENOSPC ? 507 : 503, "storage", "the tasks were not stored: %s",
            strerror(errno));
    return !r->reply;
}

/* What the client asked for, without the tasks. */
static bool batch_take_request(struct request *r, struct served_batch *b)
{
    b->object = json_object_new_object();
    json_object_object_foreach(r->json, name, value)
    {
        if (strcmp(name, "tasks") != 0 && !json_put(b->object, name, json_object_get(value)))
            return false;
    }
    return json_put(b->object, "created_ms", json_object_new_int64(clock_wall_ms()));
}

static size_t batch_count(const char *root)
{
    DIR *walk = opendir(root);
    const struct dirent *entry;
    size_t count = 0;
    while (walk && (entry = readdir(walk)))
        count += entry->d_name[0] != '.';
    if (walk)
        closedir(walk);
    return count;
}

static bool batch_create(struct request *r, const char *directory, const char *id)
{
    cleanup_free char *tasks = text_printf("%s/tasks.jsonl", directory);
    if (!tasks || !batch_take_tasks(r, tasks))
        return false;
    struct served_batch *b = batch_new(r, directory, id);
    if (!b)
        return false;
    if (!batch_take_request(r, b))
        request_refuse_memory(r);
    else if (batch_begin(r, b))
        return true;
    batch_free(b);
    return false;
}

void handle_batch_create(struct request *r)
{
    char id[SERVE_ID_SIZE];
    if (!runs_are_recorded(r))
        return;
    cleanup_free char *root = batch_root(r);
    if (!root)
        return;
    if (r->server->draining)
        request_refuse(r, 503, "draining", "the server is stopping; use another one");
    else if (batch_count(root) >= BATCHES_MOST)
        request_refuse(r, 429, "batches", "this key has %d batches; remove some", BATCHES_MOST);
    else if (server_make_id(r->server, id) < 0)
        request_refuse(r, 503, "random", "there is no randomness for an id");
    cleanup_free char *directory = r->reply ? NULL : text_printf("%s/%s", root, id);
    if (!directory)
        return;
    if (mkdir(directory, 0700) < 0) {
        request_refuse(r, errno == ENOSPC ? 507 : 503, "storage", "the batch was not stored: %s",
            strerror(errno));
        return;
    }
    if (!batch_create(r, directory, id)) {
        tree_remove(AT_FDCWD, directory);
        return;
    }
    batch_reply(r, directory, id);
    request_locate(r, "/v1/batches/%s", id);
}

/* ---- the others ---- */

void handle_batch_get(struct request *r)
{
    cleanup_free char *directory = batch_directory_of(r);
    if (directory)
        batch_reply(r, directory, r->id);
}

void handle_batch_list(struct request *r)
{
    cleanup_free char *root = batch_root(r);
    cleanup_buf struct buf out = { 0 };
    DIR *walk = root ? opendir(root) : NULL;
    const struct dirent *entry;
    if (!root)
        return;
    field_open(&out, NULL, '{');
    field_open(&out, "batches", '[');
    while (walk && (entry = readdir(walk))) {
        if (entry->d_name[0] == '.')
            continue;
        cleanup_free char *directory = text_printf("%s/%s", root, entry->d_name);
        field_key(&out, NULL);
        cleanup_buf struct buf one = { 0 };
        batch_describe(r, directory, entry->d_name, &one);
        buf_append(&out, buf_text(&one), one.len);
    }
    if (walk)
        closedir(walk);
    field_close(&out, ']');
    field_close(&out, '}');
    request_reply_written(r, 200, &out);
}

void handle_batch_cancel(struct request *r)
{
    cleanup_free char *directory = batch_directory_of(r);
    struct served_batch *b = directory ? batch_active(r->server, r->id) : NULL;
    if (!directory)
        return;
    if (b) {
        droste_batch_stop(b->running, "interrupt", "the batch was cancelled");
        request_reply(r, 204, NULL, NULL, 0);
    } else {
        request_refuse(r, 409, "not_active", "this server does not run the batch");
    }
}

/* Limits of the request replace those from before. */
static bool batch_take_limits(struct request *r, struct served_batch *b)
{
    for (size_t i = 0; i < array_length(batch_limits); i++) {
        struct json_object *value = NULL;
        if (json_object_object_get_ex(r->json, batch_limits[i], &value) &&
            !json_put(b->object, batch_limits[i], json_object_get(value)))
            return false;
    }
    return true;
}

void handle_batch_resume(struct request *r)
{
    cleanup_free char *directory = batch_directory_of(r);
    if (!directory || !runs_are_recorded(r))
        return;
    if (r->server->draining) {
        request_refuse(r, 503, "draining", "the server is stopping; use another one");
        return;
    }
    if (batch_active(r->server, r->id) || batch_is_locked(directory)) {
        request_refuse(r, 409, "busy", "the batch is active");
        return;
    }
    struct served_batch *b = batch_new(r, directory, r->id);
    if (!b)
        return;
    b->object = batch_read(directory);
    if (!b->object)
        request_refuse(r, 409, "broken", "the description of the batch cannot be read");
    else if (!batch_take_limits(r, b))
        request_refuse_memory(r);
    if (r->reply || !batch_begin(r, b))
        batch_free(b);
    else
        batch_reply(r, directory, r->id);
}

void handle_batch_delete(struct request *r)
{
    cleanup_free char *directory = batch_directory_of(r);
    if (!directory)
        return;
    if (batch_active(r->server, r->id) || batch_is_locked(directory))
        request_refuse(r, 409, "busy", "the batch is active; cancel it first");
    else if (tree_remove(AT_FDCWD, directory))
        request_reply(r, 204, NULL, NULL, 0);
    else
        request_refuse(r, 503, "storage", "the batch was not removed: %s", strerror(errno));
}

/* ---- for the server ---- */

void batches_sweep(struct server *s, uint64_t now_ns)
{
    for (struct served_batch *b = s->batches; b; b = b->next) {
        if (s->draining || b->owner->is_revoked)
            droste_batch_stop(b->running, "interrupt",
                s->draining ? "the server stopped" : "the key was revoked");
        else
            batch_seek_places(b, now_ns);
    }
}

void batches_close(struct server *s)
{
    for (struct served_batch *b = s->batches; b; b = b->next)
        droste_batch_stop(b->running, "interrupt", "the server stopped");
    for (int i = 0; i < 100 && s->batches; i++)
        droste_turn(s->d, 1000, NULL);
}
