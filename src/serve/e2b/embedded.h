/* serve/e2b/embedded.h: files in Python, embedded in the program (scripts/embed). */
#pragma once

#include <stddef.h>

extern const unsigned char embedded_bash_kernel[];
extern const size_t embedded_bash_kernel_size;
extern const unsigned char embedded_snapshot[];
extern const size_t embedded_snapshot_size;
