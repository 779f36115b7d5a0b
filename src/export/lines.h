/* export/lines.h: runs as lines of JSON. */
#pragma once

#include <stdio.h>

#include "droste.h"

/* The version of the lines, their `schema`: docs/record.md says what changes it. */
enum { LINES_SCHEMA = 1 };

/* A visitor that writes each step as a line to its argument, a struct steps_out. */
extern const droste_record_visitor lines_visitor;
int lines_write(droste_record *record, const droste_export *runs, FILE *file, droste_error *err);
