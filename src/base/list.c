/* base/list.c: a list of strings that owns copies. */
#include "base/list.h"

#include <stdlib.h>
#include <string.h>

bool list_has(const struct list *list, const char *value)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], value) == 0)
            return true;
    return false;
}

static int list_compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void list_sort(struct list *list)
{
    if (list->count > 1)
        qsort(list->items, list->count, sizeof *list->items, list_compare);
}

void list_clear(struct list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct list){ 0 };
}

int list_take(struct list *list, char *value, struct error *err)
{
    char **items = value ? realloc(list->items, (list->count + 1) * sizeof *items) : NULL;
    if (!items) {
        free(value);
        return error_memory(err);
    }
    list->items = items;
    list->items[list->count++] = value;
    return 0;
}

int list_add(struct list *list, const char *value, struct error *err)
{
    return list_take(list, strdup(value), err);
}

int list_add_end(struct list *list, struct error *err)
{
    char **items = realloc(list->items, (list->count + 1) * sizeof *items);
    if (!items)
        return error_memory(err);
    list->items = items;
    items[list->count] = NULL;
    return 0;
}

int list_add_all(struct list *list, const struct list *from, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < from->count; i++)
        rc = list_add(list, from->items[i], err);
    return rc;
}
