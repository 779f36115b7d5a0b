/* export/grades.h: the grades of a batch, which its results have and the record does not. */
#pragma once

#include "export/steps.h"

/* Writes a line with the grade of each run that the results in `path` name (docs/batch.md). Lines
 * that are not results are left out: a batch may be writing the file. A file that does not exist
 * has no grades. */
int grades_write(const char *path, struct steps_out *o, droste_error *err);
