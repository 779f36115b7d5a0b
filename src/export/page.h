/* export/page.h: runs, with their descendants, as a page that needs nothing but itself. */
#pragma once

#include <stdio.h>

#include "droste.h"

int page_write(droste_record *record, const droste_export *runs, FILE *file, droste_error *err);
