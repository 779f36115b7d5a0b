/* cli/record/page.h: runs, with their descendants, as a page that needs nothing but itself. */
#ifndef DROSTE_CLI_RECORD_PAGE_H
#define DROSTE_CLI_RECORD_PAGE_H

#include <stdio.h>

#include "droste.h"

struct page_runs {
    const char (*ids)[DROSTE_RUN_ID_SIZE];
    size_t count;
    const char *batch; /* the results of the batch that the runs belong to; NULL: none */
};

int page_write(droste_record *record, const struct page_runs *runs, FILE *file, droste_error *err);

#endif
