/* cli/list.h: lists the runs of a record. `record` may be NULL: there is none yet. */
#pragma once

#include <stdbool.h>

#include "droste.h"

int list_as_json(droste_record *record, const droste_record_filter *filter, droste_error *err);
int list_as_text(
    droste_record *record, const droste_record_filter *filter, const char *path, droste_error *err);
/* Rows that another place than a record of this machine has given; `narrow`: through filters. */
int list_rows_as_text(
    const droste_record_run *rows, size_t count, bool narrow, const char *where, droste_error *err);
