/* batch/slot.c: one task, from its line in the file of tasks to its line in the file of results.
 *
 *   in the record? ── no ────────────────► new run ─┐
 *                  ── interrupted run ───► resume ──┴─► result ─► grade ─► append a line
 *                  ── completed run ────────────────────┘
 *
 * A batch may have been killed at any time, so the record is checked first: a run that is recorded
 * as completed but has no line is not repeated.
 */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "api/result.h"
#include "api/running.h"
#include "api/stored_run.h"
#include "base/cleanup.h"
#include "base/json/fields.h"
#include "batch/slot.h"

struct slot {
    TAILQ_ENTRY(slot) link;
    struct batch *batch;
    struct task_entry *place;
    struct task task;
    struct grader own, *grader; /* NULL: not graded */
    droste_request request;     /* as it was given to the host */
    const char **settings;      /* of it */
    char resume[RUN_ID_SIZE];
    droste_running *run; /* NULL also of one that the host has started */
    bool is_started;
    bool resumed; /* resumes a recorded run */
    droste_result *result;
    struct json_object *answer;
    struct grading *grading;
};

static void free_slot(struct slot *s)
{
    grading_cancel(s->grading);
    droste_result_free(s->result);
    json_object_put(s->answer);
    task_free(&s->task);
    free(s->settings);
    free(s);
}

/* The slot is freed; another task may use its place. */
static void slot_leave(struct slot *s)
{
    struct batch *b = s->batch;
    TAILQ_REMOVE(&b->slots, s, link);
    b->state.running--;
    free_slot(s);
    batch_look(b);
}

/* ---- its line ---- */

static void put_id(struct buf *out, const struct task_entry *place)
{
    if (place->number)
        field_json(out, "id", place->id);
    else
        field_string(out, "id", place->id);
}

static void slot_put_error(struct buf *out, const struct error *error)
{
    if (error->code == ERROR_NONE) {
        field_null(out, "error");
        return;
    }
    field_open(out, "error", '{');
    field_string(out, "type", error_code_name(error->code));
    field_string(out, "message", error->text);
    field_close(out, '}');
}

static void put_grade(struct buf *out, const struct slot *s, const struct grade *slot_grade)
{
    if (!s->grader) {
        field_null(out, "grade");
        return;
    }
    field_open(out, "grade", '{');
    field_string(out, "grader", grader_name(s->grader));
    if (slot_grade->is_graded) {
        field_bool(out, "passed", slot_grade->passed);
        field_number(out, "score", slot_grade->score);
    } else {
        field_null(out, "passed");
        field_null(out, "score");
        field_string(out, "error", slot_grade->why);
    }
    field_close(out, '}');
}

static void slot_put_line(struct buf *out, const struct slot *s, const struct grade *slot_grade)
{
    const droste_result *r = s->result;
    buf_putc(out, '{');
    put_id(out, s->place);
    field_string(out, "run", r->run[0] ? r->run : NULL);
    field_string(out, "status", r->status);
    field_json(out, "answer", r->answer);
    slot_put_error(out, &r->error);
    put_grade(out, s, slot_grade);
    field_key(out, "usage");
    buf_append(out, r->json.data + r->usage_at, r->usage_len);
    field_seconds(out, "seconds", r->seconds);
    buf_putc(out, '}');
    /* Replaces white space of the answer; JSON strings have no raw newlines. */
    for (char *p = out->data; p && (p = memchr(p, '\n', out->len - (size_t)(p - out->data))); p++)
        *p = ' ';
}

static void take_grade(struct slot *s, const struct grade *slot_grade)
{
    struct batch *b = s->batch;
    struct outcome *outcome = &s->place->outcome;
    struct error err = { 0 };
    cleanup_buf struct buf line = { 0 };
    slot_put_line(&line, s, slot_grade);
    int rc = buf_failed(&line) ? error_memory(&err)
                               : results_append(b->results, line.data, line.len, &err);
    if (rc < 0) {
        batch_fail(b, &err);
        slot_leave(s);
        return;
    }
    *outcome = (struct outcome){ (int)stored_run_status(s->result->status), *slot_grade,
        s->grader && !slot_grade->is_graded };
    s->place->state = TASK_DONE;
    batch_count(b, outcome);
    droste_batch_event event = { "result", line.data, line.len, &b->state };
    b->state.running--; /* as in the event */
    if (b->fn)
        b->fn(b->arg, &event);
    b->state.running++;
    slot_leave(s);
}

/* ---- its grade ---- */

static void slot_graded(void *arg, const struct grade *slot_grade)
{
    struct slot *s = arg;
    s->grading = NULL;
    take_grade(s, slot_grade);
}

/* Builds the input of the grading program. */
static int slot_ask_program(struct slot *s, struct error *err)
{
    cleanup_buf struct buf line = { 0 };
    double timeout = s->batch->o->grader_timeout;
    const char *expected = s->task.expected ? json_text(s->task.expected, NULL) : NULL;
    const char *answer = s->answer ? json_text(s->answer, NULL) : NULL;
    buf_putc(&line, '{');
    put_id(&line, s->place);
    field_string(&line, "question", s->task.question);
    field_json(&line, "expected", expected);
    field_json(&line, "answer", answer);
    buf_putc(&line, '}');
    if (buf_failed(&line))
        return error_memory(err);
    return grading_start(s->batch->d->loop, s->grader->program, timeout > 0 ? timeout : 60,
        line.data, line.len, slot_graded, s, &s->grading, err);
}

static void slot_grade(struct slot *s)
{
    const char *answer = s->result->answer;
    struct grade slot_grade = { 0 };
    struct error err = { 0 };
    if (!s->grader || !answer) {
        slot_grade.is_graded = s->grader != NULL; /* a missing answer is wrong */
        take_grade(s, &slot_grade);
        return;
    }
    if (json_parse(answer, strlen(answer), &json_limits_large, &s->answer, &err) == 0) {
        if (s->grader->kind == GRADER_PROGRAM && slot_ask_program(s, &err) == 0)
            return;
        slot_grade.is_graded = s->grader->kind != GRADER_PROGRAM;
        slot_grade.passed =
            slot_grade.is_graded && grade_answer(s->grader, s->task.expected, s->answer);
        slot_grade.score = slot_grade.passed;
    }
    snprintf(slot_grade.why, sizeof slot_grade.why, "%.110s", err.text);
    take_grade(s, &slot_grade);
}

/* Takes ownership of the result. */
static void take_result(struct slot *s, droste_result *result)
{
    struct batch *b = s->batch;
    struct error err = { 0 };
    s->result = result;
    s->run = NULL;
    s->is_started = false;
    if (!result) {
        error_memory(&err);
        batch_fail(b, &err);
        slot_leave(s);
        return;
    }
    bool unrecorded = result->error.code == ERROR_STORE;
    if (unrecorded)
        batch_fail(b, &result->error);
    if (unrecorded || strcmp(result->status, rlm_status_name(RLM_INTERRUPTED)) == 0) {
        b->state.interrupted++;
        slot_leave(s);
        return;
    }
    slot_grade(s);
}

/* ---- its run ---- */

static void slot_run_done(void *arg, droste_result *result);

/* Those of all tasks, then the task's own. */
static int slot_join_settings(struct slot *s, struct error *err)
{
    const char *const *lists[] = { s->batch->host.settings,
        (const char *const *)s->task.settings.items };
    size_t count = 0, at = 0;
    for (size_t i = 0; i < array_length(lists); i++)
        for (size_t j = 0; lists[i] && lists[i][j]; j++)
            count++;
    s->settings = calloc(count + 1, sizeof *s->settings);
    if (!s->settings)
        return error_memory(err);
    for (size_t i = 0; i < array_length(lists); i++)
        for (size_t j = 0; lists[i] && lists[i][j]; j++)
            s->settings[at++] = lists[i][j];
    return 0;
}

static int slot_start(struct slot *s, const char *resume, struct error *err)
{
    const droste_batch_host *host = &s->batch->host;
    droste_request *q = &s->request;
    if (!s->settings && slot_join_settings(s, err) < 0)
        return -ERROR_MEMORY;
    if (resume)
        snprintf(s->resume, sizeof s->resume, "%s", resume);
    *q = task_request(&s->task);
    q->settings = s->settings;
    q->batch = s->batch->results->path;
    q->task = s->place->id;
    q->resume = resume ? s->resume : NULL;
    q->budget = (struct droste_shared_budget *)&s->batch->budget;
    q->done = slot_run_done;
    q->arg = s;
    int rc =
        host->start ? host->start(host->arg, q, err) : droste_start(s->batch->d, q, &s->run, err);
    if (rc < 0)
        return -err->code;
    s->is_started = true;
    s->resumed = resume != NULL;
    s->batch->state.resumed += s->resumed;
    return 0;
}

/* The recorded run differs from this task. */
static int start_anew(struct slot *s, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    buf_printf(&text, "task %s starts again: %s", s->place->id, err->text);
    batch_notice(s->batch, buf_text(&text), text.len);
    return slot_start(s, NULL, err);
}

static int slot_go_on(struct slot *s, const char *run, struct error *err)
{
    int rc = slot_start(s, run, err);
    return rc < 0 && err->code == ERROR_ARGUMENT ? start_anew(s, err) : rc;
}

/* Returns 1 if the result was recorded already; the slot may be freed then. */
static int start_or_go_on(struct slot *s, struct error *err)
{
    struct batch *b = s->batch;
    struct store_found found = { 0 };
    droste_result *result = NULL;
    int rc = b->store ? store_task_find(b->store, b->results->path, s->place->id, &found, err) : 0;
    if (rc < 0)
        return rc;
    if (!found.id[0] || strcmp(found.id, s->place->run) == 0)
        return slot_start(s, NULL, err);
    if (strcmp(found.status, "interrupted") == 0)
        return slot_go_on(s, found.id, err);
    if (strcmp(found.status, "running") == 0)
        return error_set(err, ERROR_CANCELLED,
            "run '%.64s' of this task is active in another process", found.id);
    rc = stored_run_result(b->d, found.id, &result, err);
    if (rc < 0)
        return rc;
    take_result(s, result);
    return 1;
}

static int choose_grader(struct slot *s, struct error *err)
{
    struct grader *batch = s->batch->grader;
    s->grader = batch;
    if (s->task.grader) {
        s->grader = &s->own;
        int rc = grader_of_task(s->task.grader, batch, &s->own, err);
        if (rc < 0)
            return rc;
    }
    if (s->grader && s->grader->kind != GRADER_PROGRAM && !s->task.has_expected)
        s->grader = NULL;
    return 0;
}

/* Whether the error would also affect the next task. */
static bool is_fatal(enum error_code code)
{
    return code == ERROR_CONFIG || code == ERROR_UNSUPPORTED || code == ERROR_STORE ||
           code == ERROR_MEMORY || code == ERROR_ENVIRONMENT;
}

static void refused(struct slot *s, const struct error *err)
{
    if (is_fatal(err->code)) {
        batch_fail(s->batch, err);
        slot_leave(s);
    } else {
        take_result(s, result_of_failure(RLM_ERROR, err));
    }
}

void droste_batch_refuse(
    droste_running_batch *running, const droste_request *request, const droste_error *why)
{
    struct slot *s = request->arg;
    struct error err = { 0 };
    error_set(&err, (enum error_code)why->code, "%s", why->text);
    s->is_started = false;
    s->batch->state.resumed -= s->resumed;
    refused(s, &err);
}

/* Some errors are known only after the contexts were read. */
static void slot_run_done(void *arg, droste_result *result)
{
    struct slot *s = arg;
    struct error err = { 0 };
    if (!result || !result->unbegun || result->error.code == ERROR_CANCELLED) {
        take_result(s, result);
        return;
    }
    err = result->error;
    droste_result_free(result);
    s->run = NULL;
    s->is_started = false;
    s->batch->state.resumed -= s->resumed;
    if (!s->resumed || err.code != ERROR_ARGUMENT || start_anew(s, &err) < 0)
        refused(s, &err);
}

int droste_batch_take(droste_running_batch *running, const droste_request *request,
    const char *json, size_t len, droste_error *err)
{
    err = api_error(err);
    struct slot *s = request->arg;
    cleanup_json struct json_object *run = NULL;
    droste_result *result = NULL;
    int rc = json_parse(json, len, &json_limits_large, &run, err);
    if (rc == 0)
        rc = stored_run_read(run, &result, err);
    if (rc < 0)
        return rc;
    budget_count(&s->batch->budget, &result->spent);
    take_result(s, result);
    return 0;
}

void slot_begin(struct batch *b, struct task_entry *place)
{
    struct error err = { 0 };
    struct slot *s = calloc(1, sizeof *s);
    if (!s) {
        error_memory(&err);
        batch_fail(b, &err);
        return;
    }
    s->batch = b;
    s->place = place;
    TAILQ_INSERT_TAIL(&b->slots, s, link);
    b->state.running++;
    int rc = tasks_read(b->tasks, place, &s->task, &err);
    if (rc == 0)
        rc = choose_grader(s, &err);
    if (rc == 0)
        rc = start_or_go_on(s, &err);
    if (rc < 0)
        refused(s, &err);
}

void slots_stop(struct batch *b)
{
    struct slot *s, *next;
    for (s = TAILQ_FIRST(&b->slots); s; s = next) {
        next = TAILQ_NEXT(s, link);
        if (s->run)
            api_suspend(s->run, &b->why);
        if (s->is_started && (s->run || b->host.stop(b->host.arg, &s->request) == 0))
            continue;
        b->state.interrupted++; /* not begun, or being graded: its run has ended and is recorded */
        slot_leave(s);
    }
}
