/* base/list.h: a list of texts. */
#ifndef DROSTE_BASE_LIST_H
#define DROSTE_BASE_LIST_H

#include <stddef.h>

#include "base/error.h"

/* Zeroed at first. */
struct list {
    char **items;
    size_t count;
};

/* A copy of the value goes to its end. */
int list_add(struct list *list, const char *value, struct error *err);
/* NULL behind the last item; it is not counted. */
int list_add_end(struct list *list, struct error *err);
int list_add_all(struct list *list, const struct list *from, struct error *err);
void list_clear(struct list *list);

#endif
