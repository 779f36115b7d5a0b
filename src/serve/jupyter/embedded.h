/* serve/jupyter/embedded.h: python/droste/_notebook.py, embedded in the program (scripts/embed). */
#pragma once

#include <stddef.h>

extern const unsigned char embedded_notebook_guest[];
extern const size_t embedded_notebook_guest_size;
