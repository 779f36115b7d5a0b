/* export/lines.h: runs as lines of JSON. */
#ifndef DROSTE_EXPORT_LINES_H
#define DROSTE_EXPORT_LINES_H

#include <stdio.h>

#include "droste.h"

/* The version of the lines, their `schema`: docs/record.md says what changes it. */
enum { LINES_SCHEMA = 1 };

/* A visitor that writes each step as a line to its argument, a struct steps_out. */
extern const droste_record_visitor lines_visitor;
int lines_write(droste_record *record, const droste_export *runs, FILE *file, droste_error *err);

#endif
