/* rlm/prompt_helpers.c: what the model is told of the helpers for texts and files (guest/python). */
#include <string.h>

#include "base/cleanup.h"
#include "rlm/prompt.h"

/* A line of the list, and the names in it: where one of them is something else, it is left out. */
static const struct line {
    const char *names[5];
    const char *text;
    enum {
        ALWAYS,
        WITHOUT_RULES, /* it starts processes */
        OF_PATTERNS,   /* it is how grep works by default, */
        OF_PLAIN_TEXT, /* or with literal-grep */
    } when;
} lines[] = {
    { { "grep" },
        "- `grep(text, pattern, context=0, ignore_case=False, limit=None)`: the lines of a text in "
        "which a regular expression matches, as a list; the argument context is how many lines "
        "around each to have too. Fast on any size. For a dict or list of texts, each begins with "
        "its key.\n",
        OF_PATTERNS },
    { { "grep" },
        "- `grep(text, pattern, context=0, ignore_case=True, limit=None)`: the lines of a text "
        "that have the pattern in them as plain text, in upper or lower case, as a list; the "
        "argument context is how many lines around each to have too. Fast on any size. For a dict "
        "or list of texts, each begins with its key.\n",
        OF_PLAIN_TEXT },
    { { "peek" }, "- `peek(text, start, length)`: a part of a text.\n", ALWAYS },
    { { "chunk_by_size", "chunk_by_headers", "chunk_by_timestamps", "chunk_by_json_keys" },
        "- `chunk_by_size(text, size)`: a list of pieces with so many characters. "
        "`chunk_by_headers(text)`, `chunk_by_timestamps(text)`, `chunk_by_json_keys(text)`: lists "
        "of dicts whose \"content\" is a part of Markdown, of a log, of a JSON object.\n",
        ALWAYS },
    { { "list_files", "find_files", "read_file" },
        "- `list_files(path)`, `find_files(path, \"**/*.txt\")`, `read_file(path)`: what is in a "
        "directory, what is at any depth below it, the text of a file.\n",
        ALWAYS },
    { { "run" },
        "- `run(command)`: runs a shell command; a dict with \"exit_code\", \"stdout\", "
        "\"stderr\" and \"ok\".\n",
        WITHOUT_RULES },
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
            buf_puts(out, lines[i].text);
}
