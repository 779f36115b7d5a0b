/* base/array.h: growing arrays. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Makes room for one more element of `size` bytes after the first `count`; *room is the
 * capacity. Returns the array, which may have moved, or NULL without memory, leaving the old one
 * intact. */
void *array_grow(void *array, size_t count, size_t *room, size_t size);

/* The same for an array in a variable; false without memory. */
#define array_room(array, count, room)                                                             \
    array_grow_in((void **)&(array), (count), (room), sizeof *(array))
static inline bool array_grow_in(void **array, size_t count, size_t *room, size_t size)
{
    void *grown = array_grow(*array, count, room, size);
    *array = grown ? grown : *array;
    return grown != NULL;
}
