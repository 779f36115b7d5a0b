/* serve/jupyter/embedded.h: python/droste/_notebook.py, embedded in the program (scripts/embed). */
#ifndef DROSTE_SERVE_JUPYTER_EMBEDDED_H
#define DROSTE_SERVE_JUPYTER_EMBEDDED_H

#include <stddef.h>

extern const unsigned char embedded_notebook_guest[];
extern const size_t embedded_notebook_guest_size;

#endif
