/* cli/record/page.h: one run, with its descendants, as a page that needs nothing but itself. */
#ifndef DROSTE_CLI_RECORD_PAGE_H
#define DROSTE_CLI_RECORD_PAGE_H

#include <stdio.h>

#include "store/store.h"

int page_write(struct store *store, const char *run, FILE *file, struct error *err);

#endif
