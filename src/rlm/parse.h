/* rlm/parse.h: what a model's reply asks for: code blocks, or an answer in words. */
#ifndef DROSTE_RLM_PARSE_H
#define DROSTE_RLM_PARSE_H

#include <stdbool.h>
#include <stddef.h>

struct reply_block {
    const char *code; /* within the reply */
    size_t len;
};

/* Finds the next fenced block of code from *at on, and moves *at behind it. A fence is a line of
 * three or more backticks (or tildes), indented by at most three spaces, with the language repl,
 * python, py or python3 in any case; the block ends at a line with at least as many of the same and
 * nothing else (CommonMark 0.31, 4.5), so that shorter fences may stand in the code. Unlike there, a line
 * within a string of several lines does not end it, if it ends behind that string. A closing fence
 * that is missing is the end of the text. Blocks in other languages are passed over. */
bool reply_next_block(const char *text, size_t len, size_t *at, struct reply_block *block);

enum reply_final {
    FINAL_NONE,
    FINAL_TEXT,     /* FINAL(the words) */
    FINAL_VARIABLE, /* FINAL_VAR(name) */
};

/* An answer given in words, outside of code: FINAL(…) or FINAL_VAR(…) at the start of a line, with
 * balanced parentheses; the last one counts, of those before the 64th that is never closed. *value
 * is what stands between them, without the quotes that may be around it. */
enum reply_final reply_find_final(
    const char *text, size_t len, const char **value, size_t *value_len);

#endif
