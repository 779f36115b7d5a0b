/* base/pattern.h: the regular expressions of JSON Schema's `pattern`, without backtracking.
 *
 * A subset of ECMA-262 with its `u` flag: texts are sequences of Unicode characters. There are
 * characters and their escapes, `.`, classes, \d \D \w \W \s \S \b \B, ^ and $ (the ends of the
 * text), groups, alternatives, and * + ? {n} {n,} {n,m}, lazy ones too, which match the same texts.
 * What a pattern of that language may also have (backreferences, looking around, \p, names of
 * groups) is refused by name. The time that a match takes is the length of the text times that of
 * the program at most, whatever the two are.
 */
#ifndef DROSTE_BASE_PATTERN_H
#define DROSTE_BASE_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct pattern;

/* ERROR_ARGUMENT says what is wrong with it, or not supported. The text is UTF-8. */
int pattern_compile(const char *text, size_t len, struct pattern **out, struct error *err);
/* NULL is fine. */
void pattern_free(struct pattern *pattern);

/* 1 if some part of the text, which is UTF-8, matches; 0 if none does; -1 if that would take more than
 * *work steps, which are taken from it. */
int pattern_search(const struct pattern *pattern, const char *text, size_t len, uint64_t *work);

#endif
