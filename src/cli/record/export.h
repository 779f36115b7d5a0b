/* cli/record/export.h: droste runs export. */
#ifndef DROSTE_CLI_RECORD_EXPORT_H
#define DROSTE_CLI_RECORD_EXPORT_H

#include <stdio.h>

#include "droste.h"
#include "cli/record/page.h"
#include "cli/record/steps.h"

enum export_format { EXPORT_JSONL, EXPORT_HTML };

/* The version of the lines, their `schema`: docs/record.md says what changes it. */
enum { EXPORT_SCHEMA = 1 };

/* Writes the runs to the file `out`, or to standard output where it is NULL or "-". A file appears
 * when it is whole, or not at all. */
int export_runs(droste_record *record, const struct page_runs *runs, enum export_format format,
    const char *out, droste_error *err);

/* A visitor that writes each step as a line to its argument, a struct steps_out. */
extern const droste_record_visitor export_visitor;

#endif
