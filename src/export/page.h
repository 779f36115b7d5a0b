/* export/page.h: runs, with their descendants, as a page that needs nothing but itself. */
#ifndef DROSTE_EXPORT_PAGE_H
#define DROSTE_EXPORT_PAGE_H

#include <stdio.h>

#include "droste.h"

int page_write(droste_record *record, const droste_export *runs, FILE *file, droste_error *err);

#endif
