/* cli/list.h: the runs of a record: a table, or JSON. `store` may be NULL: there is no record yet. */
#ifndef DROSTE_CLI_LIST_H
#define DROSTE_CLI_LIST_H

#include "store/store.h"

int list_as_json(struct store *store, const struct store_filter *filter, struct error *err);
int list_as_text(
    struct store *store, const struct store_filter *filter, const char *path, struct error *err);

#endif
