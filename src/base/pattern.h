/* base/pattern.h: the regular expressions of JSON Schema's `pattern`: those of ECMA-262 with its
 * `u` flag, matched by PCRE2. Texts are sequences of Unicode characters.
 *
 * A pattern that PCRE2 knows and ECMA-262 does not is refused. Two differences are left: the names
 * that \p takes are PCRE2's (\p{L}, not \p{Letter}), and a (?<= needs a bounded length. PCRE2
 * backtracks, and texts come from guests, so a match has limits of steps, memory and depth. The
 * match limit of PCRE2 counts anew at each place where a match could begin, which in a megabyte of
 * text is no limit; so steps are counted in callouts. No JIT: texts of guests would steer the use
 * of executable memory.
 */
#ifndef DROSTE_BASE_PATTERN_H
#define DROSTE_BASE_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct pattern;

/* ERROR_ARGUMENT says what is wrong with it, and where. The text is UTF-8. */
int pattern_compile(const char *text, size_t len, struct pattern **out, struct error *err);
/* NULL is fine. */
void pattern_free(struct pattern *pattern);

/* 1 if some part of the text, which is UTF-8, matches; 0 if none does. Steps are taken from *work;
 * where they or another limit do not suffice, that is an error: then it is not known. */
int pattern_search(
    const struct pattern *pattern, const char *text, size_t len, uint64_t *work, struct error *err);

#endif
