/* batch/grader.h: a program of the user's that grades an answer.
 *
 * It is started for each answer, gets one line of JSON on its standard input and may say on its standard
 * output {"passed": true, "score": 0.5}; else its exit status says it: 0 passed, 1 not.
 */
#ifndef DROSTE_BATCH_GRADER_H
#define DROSTE_BATCH_GRADER_H

#include "base/loop.h"
#include "batch/grade.h"

struct grading;
/* From the loop, once; the grading is gone then. */
typedef void grading_done_fn(void *arg, const struct grade *grade);

/* `line` is copied. */
int grading_start(struct loop *loop, const char *program, double timeout, const char *line,
    size_t len, grading_done_fn *done, void *arg, struct grading **out, struct error *err);
/* Ends it without `done`. NULL is fine. */
void grading_cancel(struct grading *g);

#endif
