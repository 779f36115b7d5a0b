/* batch/tasks.c: reads and checks the file of tasks. */
#include "batch/tasks.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/options.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "base/line_reader.h"
#include "base/os/file.h"
#include "base/text.h"
#include "session/names.h"

/* The members of a line. */
static const char *const members[] = { "id", "question", "context", "context_text", "context_json",
    "contexts", "expected", "grader", "settings", "meta" };

static bool is_among(const char *const *words, size_t count, const char *word)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0)
            return true;
    return false;
}

/* Reads a string without NUL characters. */
static const char *tasks_plain_text(struct json_object *value)
{
    const char *text =
        json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
    return text && strlen(text) == (size_t)json_object_get_string_len(value) ? text : NULL;
}

bool task_id(struct json_object *value, char out[TASK_ID_MAX + 1], bool *number)
{
    const char *text = tasks_plain_text(value);
    *number = json_object_is_type(value, json_type_int);
    if (*number) {
        int64_t n = json_object_get_int64(value);
        snprintf(out, TASK_ID_MAX + 1, "%" PRId64, n);
        return n > INT64_MIN && n < INT64_MAX; /* what json-c makes of every larger number */
    }
    if (!text || !text[0] || strlen(text) > TASK_ID_MAX)
        return false;
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ')
            return false;
    snprintf(out, TASK_ID_MAX + 1, "%s", text);
    return true;
}

/* ---- settings ---- */

/* Rejects settings that name programs or files of this machine. `kind` is that of the settings
 * table. */
static int check_value(const char *name, const char *kind, const char *value, struct error *err)
{
    /* For a depth-model, only the part after '=' counts. */
    const char *equals = strcmp(kind, "N=MODEL") == 0 ? strchr(value, '=') : NULL;
    const char *model = equals ? equals + 1 : value;
    bool is_model = strcmp(kind, "MODEL") == 0 || equals;
    if (is_model && (strncmp(model, "exec:", 5) == 0 || strncmp(model, "replay:", 7) == 0))
        return error_set(err, ERROR_ARGUMENT,
            "a task cannot name a program or a file as its model; --model can");
    if (strcmp(kind, "TEXT|@FILE") == 0 && value[0] == '@')
        return error_set(
            err, ERROR_ARGUMENT, "a task's %.60s must be a text, not the name of a file", name);
    if (strcmp(kind, "JSON|FILE") == 0 && value[0] && value[0] != '{')
        return error_set(err, ERROR_ARGUMENT,
            "a task's %.60s must be the schema itself, an object, not the name of a file", name);
    return 0;
}

/* A file of tasks may come from another machine. It may set questions and budgets, but not what
 * runs or is visible on this machine, or where keys are sent. The settings table knows which
 * settings do that. */
static int check_setting(const char *name, const char *value, struct error *err)
{
    const droste_option *option = settings_option(name);
    if (!option || !option->task)
        return error_set(err, ERROR_ARGUMENT,
            "a task cannot set '%.60s'; set it on the command line or in config.ini", name);
    return check_value(name, option->value, value, err);
}

static int add_pair(struct list *out, const char *name, const char *value, struct error *err)
{
    int rc = check_setting(name, value, err);
    if (rc == 0)
        rc = list_add(out, name, err);
    return rc < 0 ? rc : list_add(out, value, err);
}

static bool takes_json(const char *name)
{
    const droste_option *option = settings_option(name);
    return option && strcmp(option->value, "JSON|FILE") == 0;
}

static int add_setting(
    struct list *out, const char *name, struct json_object *value, struct error *err)
{
    bool is_text = json_object_is_type(value, json_type_string);
    bool is_other = json_object_is_type(value, json_type_int) ||
                    json_object_is_type(value, json_type_double) ||
                    json_object_is_type(value, json_type_boolean) ||
                    (json_object_is_type(value, json_type_object) && takes_json(name));
    const char *text = is_text ? tasks_plain_text(value) : is_other ? json_text(value, NULL) : NULL;
    if (!text)
        return error_set(err, ERROR_ARGUMENT, "invalid value for the setting '%.60s'", name);
    return add_pair(out, name, text, err);
}

/* A list replaces that of the settings. */
static int tasks_add_list(
    struct list *out, const char *name, struct json_object *list, struct error *err)
{
    int rc = add_pair(out, name, "", err);
    for (size_t i = 0; rc == 0 && i < json_object_array_length(list); i++)
        rc = add_setting(out, name, json_object_array_get_idx(list, i), err);
    return rc;
}

/* If two settings mean the same, a task's own replaces the other one of the command. */
static int clear_other_way(
    struct list *out, struct json_object *object, const char *other, struct error *err)
{
    return json_object_object_get_ex(object, other, NULL) ? 0 : add_pair(out, other, "", err);
}

static int take_setting(struct list *out, struct json_object *object, const char *name,
    struct json_object *value, struct error *err)
{
    int rc = 0;
    if (strcmp(name, "answer-schema") == 0)
        rc = clear_other_way(out, object, "answer-field", err);
    if (strcmp(name, "answer-field") == 0)
        rc = clear_other_way(out, object, "answer-schema", err);
    if (rc < 0)
        return rc;
    return json_object_is_type(value, json_type_array) ? tasks_add_list(out, name, value, err)
                                                       : add_setting(out, name, value, err);
}

static int tasks_take_settings(struct task *t, struct json_object *object, struct error *err)
{
    if (!object)
        return 0;
    if (!json_object_is_type(object, json_type_object))
        return error_set(err, ERROR_ARGUMENT, "`settings` must be an object of names and values");
    json_object_object_foreach(object, name, value)
    {
        int rc = take_setting(&t->settings, object, name, value, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- contexts ---- */

static int add_path(
    struct buf *out, const char *directory, struct json_object *value, struct error *err)
{
    const char *path = tasks_plain_text(value);
    if (!path || !path[0])
        return error_set(err, ERROR_ARGUMENT,
            "a context must be a path, relative to the file of "
            "tasks");
    buf_printf(out, "%s%s%s", path[0] == '/' ? "" : directory, path[0] == '/' ? "" : "/", path);
    return buf_failed(out) ? error_memory(err) : 0;
}

static int take_path(
    struct task *t, const char *directory, struct json_object *value, struct error *err)
{
    struct buf whole = { 0 };
    int rc = add_path(&whole, directory, value, err);
    t->context = buf_steal(&whole);
    return rc < 0 || t->context ? rc : error_memory(err);
}

/* Names and paths. */
static int take_named(
    struct task *t, const char *directory, struct json_object *named, struct error *err)
{
    if (!named)
        return list_add_end(&t->contexts, err);
    if (!json_object_is_type(named, json_type_object))
        return error_set(err, ERROR_ARGUMENT, "`contexts` must be an object of names and paths");
    json_object_object_foreach(named, name, value)
    {
        cleanup_buf struct buf one = { 0 };
        int rc = guest_name_check(name, "the context", err);
        buf_printf(&one, "%s=", name);
        if (rc == 0)
            rc = add_path(&one, directory, value, err);
        if (rc == 0)
            rc = list_add(&t->contexts, buf_text(&one), err);
        if (rc < 0)
            return rc;
    }
    return list_add_end(&t->contexts, err);
}

static int tasks_take_context(
    struct task *t, const char *directory, struct json_object *o, struct error *err)
{
    struct json_object *path = NULL, *text = NULL, *json = NULL;
    int count = json_object_object_get_ex(o, "context", &path) +
                json_object_object_get_ex(o, "context_text", &text) +
                json_object_object_get_ex(o, "context_json", &json);
    if (count > 1)
        return error_set(err, ERROR_ARGUMENT,
            "`context`, `context_text` and `context_json` exclude each other: give one of them");
    if (path)
        return take_path(t, directory, path, err);
    if (text && !json_object_is_type(text, json_type_string))
        return error_set(err, ERROR_ARGUMENT, "`context_text` must be a string");
    if (text) {
        t->data = json_object_get_string(text);
        t->len = (size_t)json_object_get_string_len(text);
        t->kind = "text";
    } else if (count > 0) {
        t->data = json ? json_text(json, &t->len) : "null";
        t->len = json ? t->len : strlen("null");
        t->kind = "json";
        if (!t->data)
            return error_memory(err);
    }
    return 0;
}

/* ---- one line ---- */

static int take_task(struct task *t, const char *directory, struct error *err)
{
    struct json_object *o = t->line, *value = NULL;
    if (!json_object_is_type(o, json_type_object))
        return error_set(err, ERROR_ARGUMENT, "the line is not a JSON object");
    json_object_object_foreach(o, name, member)
    {
        (void)member;
        if (!is_among(members, array_length(members), name))
            return error_set(err, ERROR_ARGUMENT,
                "unknown member `%.60s` in a task; put your own data into `meta`", name);
    }
    json_object_object_get_ex(o, "question", &value);
    t->question = tasks_plain_text(value);
    if (!t->question || !t->question[0])
        return error_set(err, ERROR_ARGUMENT, "a task needs a `question`, a string");
    t->has_expected = json_object_object_get_ex(o, "expected", &t->expected);
    value = NULL;
    if (json_object_object_get_ex(o, "grader", &value) && !(t->grader = tasks_plain_text(value)))
        return error_set(err, ERROR_ARGUMENT, "`grader` must be the name of a grader");
    value = NULL;
    json_object_object_get_ex(o, "settings", &value);
    int rc = tasks_take_settings(t, value, err);
    if (rc == 0)
        rc = tasks_take_context(t, directory, o, err);
    value = NULL;
    json_object_object_get_ex(o, "contexts", &value);
    if (rc == 0)
        rc = take_named(t, directory, value, err);
    return rc < 0 ? rc : list_add_end(&t->settings, err);
}

static int read_task(
    struct task *t, const char *directory, const char *text, size_t len, struct error *err)
{
    *t = (struct task){ 0 };
    int rc = json_parse(text, len, &json_limits_large, &t->line, err);
    return rc < 0 ? rc : take_task(t, directory, err);
}

void task_free(struct task *t)
{
    json_object_put(t->line);
    free(t->context);
    list_clear(&t->settings);
    list_clear(&t->contexts);
    *t = (struct task){ 0 };
}

int tasks_read(
    const struct tasks *tasks, const struct task_entry *place, struct task *out, struct error *err)
{
    cleanup_free char *text = malloc(place->len + 1);
    if (!text)
        return error_memory(err);
    ssize_t n = pread(tasks->fd, text, place->len, place->at);
    *out = (struct task){ 0 };
    int rc =
        n == (ssize_t)place->len ? read_task(out, tasks->directory, text, place->len, err) : -1;
    if (rc < 0)
        return error_set(err, ERROR_ARGUMENT,
            "%.100s, line %zu: the line has changed since the batch began", tasks->path,
            place->line);
    return 0;
}

/* ---- the file ---- */

struct opening {
    struct tasks *tasks;
    const struct settings *settings;
    const struct grader *grader;
    const droste_batch_host *host;
    size_t room;
};

droste_request task_request(const struct task *t)
{
    return (droste_request){ .question = t->question,
        .context = t->context,
        .data = t->data,
        .len = t->len,
        .kind = t->kind,
        .contexts = (const char *const *)t->contexts.items,
        .settings = (const char *const *)t->settings.items };
}

/* What the program that starts the runs says of the task. */
static int check_by_host(const struct opening *o, const struct task *t, struct error *err)
{
    const droste_request request = task_request(t);
    droste_error why = { 0 };
    int rc = o->host->check ? o->host->check(o->host->arg, &request, &why) : 0;
    return rc < 0 ? error_set(err, (enum error_code)why.code, "%s", why.text) : 0;
}

/* Checks whether everything that the task asks for is available. */
static int check_settings(const struct settings *base, const struct task *t, struct error *err)
{
    struct settings copy;
    struct schema *answer = NULL;
    int rc = settings_copy(&copy, base, err);
    for (size_t i = 0; rc == 0 && t->settings.items[i]; i += 2)
        rc = settings_set(&copy, t->settings.items[i], t->settings.items[i + 1], "settings", err);
    if (rc == 0)
        rc = api_answer_type(&copy, &answer, err);
    schema_drop(answer);
    settings_free(&copy);
    return rc;
}

static int check_readable(const char *path, struct error *err)
{
    return access(path, R_OK) == 0
               ? 0
               : error_set_errno(err, ERROR_ARGUMENT, "the context %.100s", path);
}

static int check_task(const struct opening *o, const struct task *t, struct error *err)
{
    struct grader own;
    int rc = check_by_host(o, t, err);
    if (rc == 0 && t->settings.count > 1)
        rc = check_settings(o->settings, t, err);
    if (rc == 0 && t->context)
        rc = check_readable(t->context, err);
    for (size_t i = 0; rc == 0 && i < t->contexts.count; i++)
        rc = check_readable(strchr(t->contexts.items[i], '=') + 1, err);
    if (rc == 0 && t->grader)
        rc = grader_of_task(t->grader, o->grader, &own, err);
    const struct grader *grader = t->grader ? &own : o->grader;
    if (rc == 0 && t->grader && !t->has_expected && own.kind != GRADER_PROGRAM)
        rc = error_set(
            err, ERROR_ARGUMENT, "the grader needs `expected` to compare the answer with");
    if (rc == 0 && grader && t->has_expected)
        rc = grader_check_expected(grader, t->expected, err);
    return rc;
}

static int add_place(
    struct opening *o, const struct line *line, struct json_object *task, struct error *err)
{
    struct tasks *tasks = o->tasks;
    char id[TASK_ID_MAX + 1];
    struct json_object *value = NULL;
    struct task_entry place = {
        .at = line->at, .len = line->len, .line = line->number, .outcome.status = -1
    };
    snprintf(id, sizeof id, "%zu", line->number);
    place.number = true;
    if (json_object_object_get_ex(task, "id", &value) && !task_id(value, id, &place.number))
        return error_set(err, ERROR_ARGUMENT,
            "`id` must be a number of 64 bits, or a text of at most %d bytes without control characters",
            TASK_ID_MAX);
    if (!array_room(tasks->entries, tasks->count, &o->room))
        return error_memory(err);
    place.id = strdup(id);
    if (!place.id)
        return error_memory(err);
    tasks->entries[tasks->count++] = place;
    return 0;
}

static int tasks_take_line(void *arg, const struct line *line, struct error *err)
{
    struct opening *o = arg;
    struct task t;
    struct error why = { 0 };
    if (line_is_blank(line))
        return 0;
    int rc = read_task(&t, o->tasks->directory, line->text, line->len, &why);
    if (rc == 0)
        rc = check_task(o, &t, &why);
    if (rc == 0)
        rc = add_place(o, line, t.line, &why);
    task_free(&t);
    if (rc == 0)
        return 0;
    return error_set(err, why.code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_ARGUMENT,
        "%.80s, line %zu: %.150s", o->tasks->path, line->number, why.text);
}

static int by_id(const void *a, const void *b, void *arg)
{
    const struct task_entry *entries = arg;
    return strcmp(entries[*(const size_t *)a].id, entries[*(const size_t *)b].id);
}

static int tasks_sort(struct tasks *tasks, struct error *err)
{
    tasks->by_id = malloc((tasks->count + 1) * sizeof *tasks->by_id);
    if (!tasks->by_id)
        return error_memory(err);
    for (size_t i = 0; i < tasks->count; i++)
        tasks->by_id[i] = i;
    qsort_r(tasks->by_id, tasks->count, sizeof *tasks->by_id, by_id, tasks->entries);
    for (size_t i = 1; i < tasks->count; i++) {
        const struct task_entry *a = &tasks->entries[tasks->by_id[i - 1]];
        const struct task_entry *b = &tasks->entries[tasks->by_id[i]];
        size_t first = a->line < b->line ? a->line : b->line, second = a->line + b->line - first;
        if (strcmp(a->id, b->id) == 0)
            return error_set(err, ERROR_ARGUMENT,
                "%.80s, line %zu: line %zu already has the id '%.80s'", tasks->path, second, first,
                a->id);
    }
    return 0;
}

struct task_entry *tasks_find(struct tasks *tasks, const char *id)
{
    size_t low = 0, high = tasks->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct task_entry *place = &tasks->entries[tasks->by_id[middle]];
        int order = strcmp(id, place->id);
        if (order == 0)
            return place;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static int open_file(
    struct tasks *tasks, const char *path, const droste_batch_host *host, struct error *err)
{
    tasks->fd = file_open(path, O_RDONLY, 0, "the task file", err);
    if (tasks->fd < 0)
        return tasks->fd;
    /* Memory files (cli/pipes.c) stand for pipes and have no path. */
    cleanup_free char *whole = realpath(path, NULL);
    char *slash = whole ? strrchr(whole, '/') : NULL;
    tasks->path = strdup(host->name ? host->name : path);
    tasks->directory = host->directory ? strdup(host->directory)
                       : slash         ? text_copy(whole, (size_t)(slash - whole))
                                       : realpath(".", NULL);
    return tasks->path && tasks->directory ? 0 : error_memory(err);
}

int tasks_open(const char *path, const struct settings *settings, const struct grader *grader,
    const droste_batch_host *host, struct tasks **out, struct error *err)
{
    struct tasks *tasks = calloc(1, sizeof *tasks);
    if (!tasks)
        return error_memory(err);
    struct opening o = { .tasks = tasks, .settings = settings, .grader = grader, .host = host };
    tasks->fd = -1;
    int rc = open_file(tasks, path, host, err);
    if (rc == 0)
        rc = line_reader_read(tasks->fd, tasks->path, tasks_take_line, &o, err);
    if (rc == 0 && tasks->count == 0)
        rc = error_set(err, ERROR_ARGUMENT, "%.120s contains no tasks", tasks->path);
    if (rc == 0)
        rc = tasks_sort(tasks, err);
    if (rc < 0) {
        tasks_free(tasks);
        return rc;
    }
    *out = tasks;
    return 0;
}

void tasks_free(struct tasks *tasks)
{
    if (!tasks)
        return;
    for (size_t i = 0; i < tasks->count; i++)
        free(tasks->entries[i].id);
    free(tasks->entries);
    free(tasks->by_id);
    free(tasks->path);
    free(tasks->directory);
    close_fd(&tasks->fd);
    free(tasks);
}
