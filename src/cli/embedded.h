/* cli/embedded.h: the viewer's page (web/), carried inside the program (scripts/embed). */
#ifndef DROSTE_CLI_EMBEDDED_H
#define DROSTE_CLI_EMBEDDED_H

#include <stddef.h>

extern const unsigned char embedded_page[];
extern const size_t embedded_page_size;

#endif
