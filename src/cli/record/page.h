/* cli/record/page.h: one run, with its descendants, as a page that needs nothing but itself. */
#ifndef DROSTE_CLI_RECORD_PAGE_H
#define DROSTE_CLI_RECORD_PAGE_H

#include <stdio.h>

#include "droste.h"

int page_write(droste_record *record, const char *run, FILE *file, droste_error *err);

#endif
