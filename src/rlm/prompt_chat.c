/* rlm/prompt_chat.c: the words between two questions of a conversation. */
#include <string.h>

#include "base/text.h"
#include "rlm/prompt.h"

enum { ANSWER_BYTES = 2000 };

void prompt_next_question(struct buf *out, const struct prompt_next *next)
{
    if (next->answer) {
        size_t len = strlen(next->answer);
        size_t shown = len > ANSWER_BYTES ? text_utf8_floor(next->answer, len, ANSWER_BYTES) : len;
        buf_printf(out, "Your answer was taken: %.*s%s\n\n", (int)shown, next->answer,
            shown < len ? "…" : "");
    } else {
        buf_puts(out, "You gave no answer to that question.\n\n");
    }
    buf_printf(out, "The next question: %s\n\n", next->question);
    if (next->lost)
        buf_puts(out, "The session ended, and a new one was started: your variables are gone.\n");
    else
        buf_puts(out, "The session goes on: your variables are there.\n");
    buf_puts(out,
        "`history` is a list of the questions and answers before this one, as dicts with role and "
        "content.\n");
    for (size_t i = 0; next->contexts && i < next->contexts->count; i++) {
        const struct context *c = next->contexts->items[i];
        struct context_names names;
        context_names(c, next->first + i, &names);
        buf_printf(out, "There is one more context, `%s`", names.names[0]);
        if (c->name)
            buf_printf(out, ", also `%s`", c->name);
        buf_puts(out, ": ");
        prompt_describe_context(out, json_object_array_get_idx(next->variables, i));
        buf_printf(out, ", from %.200s.\n", c->source);
    }
    buf_printf(out, "\nYou have %u turn%s. Turn 1 of %u.", next->turns, text_plural(next->turns),
        next->turns);
}
