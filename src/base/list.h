/* base/list.h: a list of strings. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* A zeroed list is empty. */
struct list {
    char **items;
    size_t count;
};

/* Appends a copy of the value. */
int list_add(struct list *list, const char *value, struct error *err);
/* Appends the value itself, which NULL makes ERROR_MEMORY, and frees it after a failure. */
int list_take(struct list *list, char *value, struct error *err);
/* Appends a NULL, which is not counted, as execve(2) needs it. */
int list_add_end(struct list *list, struct error *err);
int list_add_all(struct list *list, const struct list *from, struct error *err);
bool list_has(const struct list *list, const char *value);
/* Sorts the values by their bytes. */
void list_sort(struct list *list);
void list_clear(struct list *list);
