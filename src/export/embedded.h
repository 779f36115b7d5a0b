/* export/embedded.h: the viewer's page (web/), embedded in the library (scripts/embed). */
#ifndef DROSTE_EXPORT_EMBEDDED_H
#define DROSTE_EXPORT_EMBEDDED_H

#include <stddef.h>

extern const unsigned char embedded_page[];
extern const size_t embedded_page_size;

#endif
