/* batch/grader.c: runs grading programs. */
#include "batch/grader.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/process.h"
#include "base/text.h"

enum { OUTPUT_MAX = 65536, SHOWN_MAX = 80 };

struct grading {
    grading_done_fn *done;
    void *arg;
    struct process process;
    struct timer *deadline;
    double timeout;
    struct buf output;
};

/* The status of the program, as from waitpid. */
static int grader_finish(struct grading *g)
{
    int status = g->process.pid > 0 ? process_end(&g->process, 0) : 0;
    process_free(&g->process);
    timer_free(g->deadline);
    g->deadline = NULL;
    return status;
}

static void free_grading(struct grading *g)
{
    buf_free(&g->output);
    free(g);
}

void grading_cancel(struct grading *g)
{
    if (!g)
        return;
    grader_finish(g);
    free_grading(g);
}

/* ---- its output ---- */

static bool grader_take_words(struct grading *g, struct grade *grade)
{
    cleanup_json struct json_object *o = NULL;
    struct json_object *passed = NULL, *score = NULL;
    if (json_parse(buf_text(&g->output), g->output.len, &json_limits_small, &o, NULL) < 0 ||
        !json_object_is_type(o, json_type_object) ||
        !json_object_object_get_ex(o, "passed", &passed) ||
        !json_object_is_type(passed, json_type_boolean))
        return false;
    grade->is_graded = true;
    grade->passed = json_object_get_boolean(passed);
    grade->score = grade->passed;
    if (json_object_object_get_ex(o, "score", &score) &&
        (json_object_is_type(score, json_type_double) || json_object_is_type(score, json_type_int)))
        grade->score = json_object_get_double(score);
    return true;
}

/* Output that is not a grade, and an exit status that is not one either. */
static void grader_explain(const struct grading *g, int status, struct grade *grade)
{
    cleanup_buf struct buf shown = { 0 };
    size_t n = g->output.len < SHOWN_MAX ? g->output.len : SHOWN_MAX;
    while (n > 0 && strchr(" \t\r\n", g->output.data[n - 1]))
        n--;
    if (WIFSIGNALED(status)) {
        snprintf(
            grade->why, sizeof grade->why, "the grader was ended by signal %d", WTERMSIG(status));
        return;
    }
    if (WEXITSTATUS(status) > 1) {
        snprintf(
            grade->why, sizeof grade->why, "the grader ended with status %d", WEXITSTATUS(status));
        return;
    }
    text_append_visible(&shown, buf_text(&g->output), n);
    n = text_utf8_floor(buf_text(&shown), shown.len, SHOWN_MAX);
    snprintf(grade->why, sizeof grade->why, "the grader did not print a grade: %.*s", (int)n,
        buf_text(&shown));
}

static void grader_end(struct grading *g, struct grade *grade)
{
    grading_done_fn *done = g->done;
    void *arg = g->arg;
    free_grading(g);
    done(arg, grade);
}

static void read_words(struct grading *g)
{
    char bytes[4096];
    ssize_t n;
    while ((n = read(g->process.out, bytes, sizeof bytes)) > 0)
        if (g->output.len < OUTPUT_MAX)
            buf_append(&g->output, bytes, (size_t)n);
    if (n == 0)
        watch_events(g->process.out_watch, 0);
}

static void grader_on_output(void *arg, int status, int events)
{
    read_words(arg);
}

static void grader_process_ended(void *arg, int watch_status, int events)
{
    struct grading *g = arg;
    struct grade grade = { 0 };
    read_words(g);
    int status = grader_finish(g);
    bool words = g->output.len > 0;
    bool fine = WIFEXITED(status) && WEXITSTATUS(status) <= 1;
    if (!fine || (words && !grader_take_words(g, &grade))) {
        grader_explain(g, status, &grade);
    } else if (!words) {
        grade.is_graded = true;
        grade.passed = WEXITSTATUS(status) == 0;
        grade.score = grade.passed;
    }
    grader_end(g, &grade);
}

static void grader_too_late(void *arg)
{
    struct grading *g = arg;
    struct grade grade = { 0 };
    grader_finish(g);
    snprintf(grade.why, sizeof grade.why, "the grader took more than %g s", g->timeout);
    grader_end(g, &grade);
}

/* ---- the beginning ---- */

/* Its standard error is ours. */
static int grader_start(
    struct grading *g, struct loop *loop, const char *program, struct error *err)
{
    struct process *p = &g->process;
    g->deadline = timer_new(loop, grader_too_late, g);
    if (!g->deadline || buf_failed(&p->to_send))
        return error_memory(err);
    p->aloud = true;
    p->close_when_sent = true;
    int rc = process_start(
        p, loop, program, "the grader ", grader_on_output, grader_process_ended, g, err);
    if (rc < 0)
        return rc;
    timer_start(g->deadline, (uint64_t)(g->timeout * 1000), 0);
    return process_send(p) < 0 ? error_set(err, ERROR_IO, "writing to the grader %.100s", program)
                               : 0;
}

int grading_start(struct loop *loop, const char *program, double timeout, const char *line,
    size_t len, grading_done_fn *done, void *arg, struct grading **out, struct error *err)
{
    struct grading *g = calloc(1, sizeof *g);
    if (!g)
        return error_memory(err);
    *g = (struct grading){ .done = done, .arg = arg, .timeout = timeout };
    process_init(&g->process);
    buf_append(&g->process.to_send, line, len);
    buf_putc(&g->process.to_send, '\n');
    int rc = grader_start(g, loop, program, err);
    if (rc < 0) {
        grading_cancel(g);
        return rc;
    }
    *out = g;
    return 0;
}
