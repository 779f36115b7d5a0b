/* base/array.h: growing arrays. */
#ifndef DROSTE_BASE_ARRAY_H
#define DROSTE_BASE_ARRAY_H

#include <stddef.h>

/* Makes room for one more element of `size` bytes after the first `count`; *room is the
 * capacity. Returns the array, which may have moved, or NULL without memory, leaving the old one
 * intact. */
void *array_grow(void *array, size_t count, size_t *room, size_t size);

#endif
