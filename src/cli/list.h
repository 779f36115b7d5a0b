/* cli/list.h: lists the runs of a record. `record` may be NULL: there is none yet. */
#ifndef DROSTE_CLI_LIST_H
#define DROSTE_CLI_LIST_H

#include "droste.h"
int list_as_json(droste_record *record, const droste_record_filter *filter, droste_error *err);
int list_as_text(
    droste_record *record, const droste_record_filter *filter, const char *path, droste_error *err);

#endif
