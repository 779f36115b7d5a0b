/* serve/e2b/embedded.h: files for sandboxes, embedded in the program (scripts/embed). */
#pragma once

#include <stddef.h>

extern const unsigned char embedded_kernels[];
extern const size_t embedded_kernels_size;
extern const unsigned char embedded_node_kernel[];
extern const size_t embedded_node_kernel_size;
extern const unsigned char embedded_snapshot[];
extern const size_t embedded_snapshot_size;
