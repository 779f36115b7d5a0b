/* rlm/prompt_chat.c: what comes between two questions of a conversation. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "rlm/prompt.h"

enum { ANSWER_BYTES = 2000 };

static void put_last_answer(struct buf *out, const char *answer)
{
    cleanup_buf struct buf shown = { 0 };
    size_t len = answer ? strlen(answer) : 0;
    size_t kept = len > ANSWER_BYTES ? text_utf8_floor(answer, len, ANSWER_BYTES) : len;
    if (answer)
        buf_printf(&shown, "%.*s%s", (int)kept, answer, kept < len ? "…" : "");
    PROMPT_FILL(out, answer ? PROMPT_QUESTION_ANSWERED : PROMPT_QUESTION_UNANSWERED,
        { "answer", buf_text(&shown) });
}

static void put_new_context(
    struct buf *out, const struct context *c, size_t index, struct json_object *variable)
{
    struct context_names names;
    context_names(c, index, &names);
    buf_printf(out, "There is one more context, `%s`", names.names[0]);
    if (c->name)
        buf_printf(out, ", also `%s`", c->name);
    buf_puts(out, ": ");
    prompt_describe_context(out, variable);
    buf_printf(out, ", from %.200s.\n", c->source);
}

void prompt_next_question(struct buf *out, const struct prompt_next *next)
{
    cleanup_buf struct buf answer = { 0 }, contexts = { 0 };
    char count[16], turns[32];
    put_last_answer(&answer, next->answer);
    for (size_t i = 0; next->contexts && i < next->contexts->count; i++)
        put_new_context(&contexts, next->contexts->items[i], next->first + i,
            json_object_array_get_idx(next->variables, i));
    snprintf(count, sizeof count, "%u", next->turns);
    snprintf(turns, sizeof turns, "%u turn%s", next->turns, text_plural(next->turns));
    PROMPT_FILL(out, PROMPT_QUESTION_NEXT, { "answer", buf_text(&answer) },
        { "question", next->question }, { "contexts", buf_text(&contexts) }, { "turns", turns },
        { "count", count },
        { "session", prompt_text(next->lost ? PROMPT_QUESTION_SESSION_LOST
                                            : PROMPT_QUESTION_SESSION_KEPT) });
    out->failed |= answer.failed || contexts.failed;
}
