/* base/pattern_internal.h: what the two halves of base/pattern.h share: making a program of a pattern,
 * running it over a text. */
#ifndef DROSTE_BASE_PATTERN_INTERNAL_H
#define DROSTE_BASE_PATTERN_INTERNAL_H

#include "base/pattern.h"

struct range {
    uint32_t low, high;
};

enum op { OP_SET, OP_SPLIT, OP_JUMP, OP_ASSERT, OP_MATCH };

struct instruction {
    enum op op;
    unsigned x, y;        /* where it goes on */
    size_t range, ranges; /* of a set */
    char assertion;
};

struct pattern {
    struct range *ranges;
    size_t range_count, range_room;
    struct instruction *program;
    unsigned length;
    size_t room;
};

/* What \w and \b mean by a word's characters. */
enum { PATTERN_WORD_RANGES = 4 };
extern const struct range pattern_words[PATTERN_WORD_RANGES];

/* The next character of well-formed UTF-8. */
uint32_t pattern_take_char(const char **at);

#endif
