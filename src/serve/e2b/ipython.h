/* serve/e2b/ipython.h: what IPython takes for Python. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct buf;

/* Translates code for IPython. False: it is plain Python. */
bool e2b_from_ipython(const char *code, size_t len, struct buf *out);
