/* base/pattern.h: regular expressions for JSON Schema's `pattern`: ECMA-262 with the `u` flag,
 * matched by PCRE2. Texts are sequences of Unicode characters.
 *
 * Patterns that PCRE2 accepts and ECMA-262 does not are refused. Two differences remain: \p takes
 * PCRE2's names (\p{L}, not \p{Letter}), and (?<= needs a bounded length. PCRE2 backtracks and
 * guests supply the texts, so a match has limits of steps, memory and depth. PCRE2's own match
 * limit restarts at each possible start of a match and so does not bound the work on a megabyte of
 * text; steps are therefore counted in callouts. There is no JIT, because texts from guests would
 * steer the use of executable memory.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct pattern;

/* ERROR_ARGUMENT says what is wrong with the pattern, and where. The text is UTF-8. */
int pattern_compile(const char *text, size_t len, struct pattern **out, struct error *err);
/* NULL is fine. */
void pattern_free(struct pattern *pattern);

/* Returns 1 if some part of the text, which is UTF-8, matches, and 0 if none does. Takes steps
 * from *work. Exceeding a limit is an error, since the outcome is then unknown. */
int pattern_search(
    const struct pattern *pattern, const char *text, size_t len, uint64_t *work, struct error *err);
