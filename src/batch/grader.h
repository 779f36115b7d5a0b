/* batch/grader.h: a user's program that grades an answer.
 *
 * It is started for each answer with one line of JSON on standard input. It may write {"passed":
 * true, "score": 0.5} to standard output; otherwise its exit status is the grade: 0 passed, 1
 * failed.
 */
#pragma once

#include "base/loop.h"
#include "batch/grade.h"

struct grading;
/* Called once, from the loop; the grading is freed afterwards. */
typedef void grading_done_fn(void *arg, const struct grade *grade);

/* `line` is copied. */
int grading_start(struct loop *loop, const char *program, double timeout, const char *line,
    size_t len, grading_done_fn *done, void *arg, struct grading **out, struct error *err);
/* Ends it without calling `done`. NULL is allowed. */
void grading_cancel(struct grading *g);
