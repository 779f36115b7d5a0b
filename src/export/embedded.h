/* export/embedded.h: the viewer's page (web/), embedded in the library (scripts/embed). */
#pragma once

#include <stddef.h>

extern const unsigned char embedded_page[];
extern const size_t embedded_page_size;
