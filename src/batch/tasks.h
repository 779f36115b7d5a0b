/* batch/tasks.h: the tasks of a batch, one JSON line each (docs/batch.md).
 *
 * Every line is checked before the first task starts. Only the id and position of a task are kept,
 * and its line is read again when it starts, so that files of any size and any number of contexts
 * need no memory.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "api/settings.h"
#include "base/json/json.h"
#include "batch/grade.h"

enum { TASK_ID_MAX = 200, RUN_ID_SIZE = 65 };

enum task_state {
    TASK_OPEN,
    TASK_DONE,  /* has a result */
    TASK_AGAIN, /* has a result without an answer, to be repeated */
};

/* The outcome of a task. */
struct outcome {
    int status; /* an rlm_status; -1: none yet */
    struct grade grade;
    bool ungraded; /* the grader failed */
};

struct task_entry {
    char *id;
    bool number; /* the id is a number in JSON */
    off_t at;
    size_t len, line;
    enum task_state state;
    char run[RUN_ID_SIZE]; /* of the last result; "": none */
    struct outcome outcome;
};

struct tasks {
    int fd;
    char *path, *directory;     /* `path` as messages name it */
    struct task_entry *entries; /* in file order */
    size_t count;
    size_t *by_id; /* indices sorted by id */
};

/* A parsed task; its texts are in the line. */
struct task {
    struct json_object *line;
    const char *question;
    char *context; /* a path; NULL: none, or `data` */
    const char *data;
    size_t len;
    const char *kind;     /* kind of `data`; NULL: from the settings */
    struct list contexts; /* more contexts, NAME=PATH, NULL-terminated */
    struct json_object *expected;
    bool has_expected;
    const char *grader;   /* NULL: the batch's */
    struct list settings; /* alternating names and values, NULL-terminated */
};

/* ERROR_ARGUMENT with the number of the first invalid line. A task's settings override
 * `settings`; `grader` is the batch's (NULL: none), and so is `host` (all zero: none). */
int tasks_open(const char *path, const struct settings *settings, const struct grader *grader,
    const droste_batch_host *host, struct tasks **out, struct error *err);
/* What a task asks for, without its end; the texts are the task's. */
droste_request task_request(const struct task *task);
/* NULL is allowed. */
void tasks_free(struct tasks *tasks);
/* Finds a task by id; NULL if there is none. */
struct task_entry *tasks_find(struct tasks *tasks, const char *id);
/* Reads a task. ERROR_ARGUMENT if its line has changed. */
int tasks_read(
    const struct tasks *tasks, const struct task_entry *place, struct task *out, struct error *err);
void task_free(struct task *task);
/* Converts an id to text; returns false if it is invalid. */
bool task_id(struct json_object *value, char out[TASK_ID_MAX + 1], bool *number);
