/* rlm/parse.h: finds code blocks and answers in a model's reply. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct reply_block {
    const char *code; /* within the reply */
    size_t len;
};

/* Finds the next fenced code block from *at on, and moves *at behind it. A fence is a line of
 * three or more backticks (or tildes), indented by at most three spaces, with the language repl,
 * python, py or python3 in any case. The block ends at a line with at least as many of the same
 * characters and nothing else (CommonMark 0.31, 4.5), so code may contain shorter fences. Unlike
 * in CommonMark, a line within a multi-line string does not end the block if a later one does.
 * Without a closing fence, the block ends with the text. Skips blocks in other languages. */
bool reply_next_block(const char *text, size_t len, size_t *at, struct reply_block *block);

enum reply_final {
    FINAL_NONE,
    FINAL_TEXT,     /* FINAL(the words) */
    FINAL_VARIABLE, /* FINAL_VAR(name) */
};

/* Finds an answer outside of code: FINAL(…) or FINAL_VAR(…) at the start of a line, with
 * balanced parentheses. The last one before the 64th unclosed one counts. *value is the text
 * between the parentheses, without surrounding quotes. */
enum reply_final reply_find_final(
    const char *text, size_t len, const char **value, size_t *value_len);
