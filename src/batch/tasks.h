/* batch/tasks.h: the tasks of a batch, a JSON line each (docs/batch.md).
 *
 * The file is looked through once, and every line is judged before the first task begins; kept of a task
 * are its id and where its line is. The line is read again when the task begins, so that a file of any
 * size and contexts of any number need no memory.
 */
#ifndef DROSTE_BATCH_TASKS_H
#define DROSTE_BATCH_TASKS_H

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
    TASK_AGAIN, /* has one without an answer, and is asked once more */
};

/* What became of a task. */
struct outcome {
    int status; /* an rlm_status; -1: nothing yet */
    struct grade grade;
    bool ungraded; /* the grader failed */
};

struct task_place {
    char *id;
    bool number; /* the id is one in JSON */
    off_t at;
    size_t len, line;
    enum task_state state;
    char run[RUN_ID_SIZE]; /* of its last result; "": none */
    struct outcome outcome;
};

struct tasks {
    int fd;
    char *path, *directory;
    struct task_place *places; /* in the order of the file */
    size_t count;
    size_t *by_id; /* their indices, sorted */
};

/* What a task asks; its texts are the line's. */
struct task {
    struct json_object *line;
    const char *question;
    char *context; /* a path; NULL: none, or `data` */
    const char *data;
    size_t len;
    const char *kind;     /* of `data`; NULL: as the settings say */
    struct list contexts; /* more of them, NAME=PATH, NULL behind the last */
    struct json_object *expected;
    bool has_expected;
    const char *grader;   /* NULL: the batch's */
    struct list settings; /* names and values in turn, NULL behind the last */
};

/* ERROR_ARGUMENT with the number of the first line that is no task; `settings` are those over which a
 * task's are laid, `grader` is the batch's (NULL: none). */
int tasks_open(const char *path, const struct settings *settings, const struct grader *grader,
    struct tasks **out, struct error *err);
/* NULL is fine. */
void tasks_free(struct tasks *tasks);
/* The task of this id; NULL: there is none. */
struct task_place *tasks_find(struct tasks *tasks, const char *id);
/* Reads a task. ERROR_ARGUMENT: its line is not what it was. */
int tasks_read(
    const struct tasks *tasks, const struct task_place *place, struct task *out, struct error *err);
void task_free(struct task *task);
/* An id as a text of `out`; false if that is none. */
bool task_id(struct json_object *value, char out[TASK_ID_MAX + 1], bool *number);

#endif
