/* cli/list.h: the runs of a record: a table, or JSON. `store` may be NULL: there is no record yet. */
#ifndef DROSTE_CLI_LIST_H
#define DROSTE_CLI_LIST_H

#include "droste.h"
int list_as_json(droste_record *record, const droste_record_filter *filter, droste_error *err);
int list_as_text(
    droste_record *record, const droste_record_filter *filter, const char *path, droste_error *err);

#endif
