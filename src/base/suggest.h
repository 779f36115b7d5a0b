/* base/suggest.h: the word that a mistyped one probably stands for. */
#ifndef DROSTE_BASE_SUGGEST_H
#define DROSTE_BASE_SUGGEST_H

#include <stddef.h>

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

#endif
