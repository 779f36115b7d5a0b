/* rlm/prompt_helpers.c: the helpers for texts and files (guest/python), for the model. */
#include <string.h>

#include "base/cleanup.h"
#include "rlm/prompt.h"

/* A point of the list, and the names in it: where one of them is something else, it is left out. */
static const struct line {
    const char *names[5];
    enum prompt_name text;
    enum {
        ALWAYS,
        WITHOUT_RULES, /* it starts processes */
        OF_PATTERNS,   /* it is how grep works by default, */
        OF_PLAIN_TEXT, /* or with literal-grep */
    } when;
} lines[] = {
    { { "grep" }, PROMPT_SESSION_GREP, OF_PATTERNS },
    { { "grep" }, PROMPT_SESSION_GREP_LITERAL, OF_PLAIN_TEXT },
    { { "peek" }, PROMPT_SESSION_PEEK, ALWAYS },
    { { "chunk_by_size", "chunk_by_headers", "chunk_by_timestamps", "chunk_by_json_keys" },
        PROMPT_SESSION_CHUNKS, ALWAYS },
    { { "list_files", "find_files", "read_file" }, PROMPT_SESSION_FILES, ALWAYS },
    { { "run" }, PROMPT_SESSION_RUN, WITHOUT_RULES },
};

static bool prompt_helpers_is_taken(const struct prompt_session *s, const char *name)
{
    for (size_t i = 0; s->contexts && i < s->contexts->count; i++) {
        const char *own = s->contexts->items[i]->name;
        if (own && strcmp(own, name) == 0)
            return true;
    }
    return s->prepared && prepare_has(s->prepared, name);
}

static bool prompt_helpers_is_there(const struct prompt_session *s, const struct line *line)
{
    for (size_t i = 0; i < array_length(line->names) && line->names[i]; i++)
        if (prompt_helpers_is_taken(s, line->names[i]))
            return false;
    if (line->when == WITHOUT_RULES && s->rules)
        return false;
    if (line->when == (s->literal_grep ? OF_PATTERNS : OF_PLAIN_TEXT))
        return false;
    return s->helpers;
}

void prompt_helpers(struct buf *out, const struct prompt_session *s)
{
    for (size_t i = 0; i < array_length(lines); i++)
        if (prompt_helpers_is_there(s, &lines[i]))
            buf_printf(out, "%s\n", prompt_text(lines[i].text));
}
