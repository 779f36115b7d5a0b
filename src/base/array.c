/* base/array.c: grows an array geometrically. */
#include "base/array.h"

#include <stdlib.h>

enum { ROOM_FIRST = 32 };

void *array_grow(void *array, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return array;
    size_t more = *room ? 2 * *room : ROOM_FIRST;
    void *grown = reallocarray(array, more, size);
    if (grown)
        *room = more;
    return grown;
}
