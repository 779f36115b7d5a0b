/* base/array.h: arrays that grow. */
#ifndef DROSTE_BASE_ARRAY_H
#define DROSTE_BASE_ARRAY_H

#include <stddef.h>

/* Room for one more behind the `count` elements of `size` bytes; *room is how many there is room for.
 * The array, which may have moved; NULL without memory, and then it is where and as it was. */
void *array_grow(void *array, size_t count, size_t *room, size_t size);

#endif
