/* batch/grade.h: whether an answer is what was expected (docs/batch.md has the rules).
 *
 *   exact      the same text, but for case and white space; numbers as numbers
 *   contains   the expected text is in the answer
 *   numeric    the answer's last number is the expected one, within a tolerance
 *   program    a program of the user's says so (grader.h)
 *
 * Of a list of expected values any one will do.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/json/json.h"

enum grader_kind { GRADER_EXACT, GRADER_CONTAINS, GRADER_NUMERIC, GRADER_PROGRAM };

struct grader {
    enum grader_kind kind;
    double tolerance;
    bool relative;       /* the tolerance is relative to the expected number */
    const char *program; /* points to the text after "program:" */
};

const char *grader_name(const struct grader *grader);
/* "exact", "contains", "numeric", "numeric:0.01", "numeric:1%", "program:PATH". */
int grader_parse(const char *word, struct grader *out, struct error *err);
/* The same for a task's grader, which cannot name a program: "program" is the batch's. */
int grader_of_task(
    const char *word, const struct grader *batch, struct grader *out, struct error *err);
/* Whether the grader can use this expected value. */
int grader_check_expected(
    const struct grader *grader, struct json_object *expected, struct error *err);

/* The grade of one answer. */
struct grade {
    bool is_graded, passed;
    double score;
    char why[120]; /* the reason why there is no grade */
};

/* Grades with all kinds except programs. */
bool grade_answer(
    const struct grader *grader, struct json_object *expected, struct json_object *answer);
