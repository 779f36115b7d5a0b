/* base/suggest.h: the word that a mistyped one probably stands for. */
#pragma once

#include <stddef.h>

#include "base/error.h"

struct suggestion {
    const char *typed;
    size_t len; /* of `typed`, which need not end there */
    const char *best;
    size_t distance; /* of `best` */
};

/* Compares a candidate, which has to outlive the suggestion. */
void suggestion_consider(struct suggestion *s, const char *candidate);
/* The nearest candidate; NULL where none resembles the typed word. */
const char *suggestion_best(const struct suggestion *s);

/* ERROR_ARGUMENT: the value of `what` is none of `count` words, which the message lists; it asks
 * about the nearest. `first` is the word of a table's first row, `size` that of a row. */
int suggest_refuse(const char *what, const char *typed, const char *const *first, size_t size,
    size_t count, struct error *err);
