/* rlm/prompt.h: what the model is told. */
#ifndef DROSTE_RLM_PROMPT_H
#define DROSTE_RLM_PROMPT_H

#include "base/buf.h"
#include "session/session.h"

/* How to work and what there is to work with. Each name that it mentions exists in the guest
 * (tests/unit/rlm/test_prompt.c). Of child runs it speaks only where there may be some. */
void prompt_system(struct buf *out, const char *instructions, bool rules, bool children);

/* The tools (name, signature, description) and given values (as session_set describes them), each in
 * its own point of a list; NULL: none. */
void prompt_tools(struct buf *out, struct json_object *tools, struct json_object *data);

/* The question and what is known of the context, never the context itself. `variable` is the
 * guest's own description of it, NULL where there is none. */
void prompt_question(struct buf *out, const char *question, struct json_object *variable,
    const char *source, unsigned turns);

/* A question that follows on another one. */
struct prompt_next {
    const char *answer; /* JSON, to the question before; NULL: there was none */
    const char *question;
    bool lost;                    /* the variables are gone */
    struct json_object *variable; /* of its own context, called `name`; NULL: it brings none */
    const char *name, *source;
    unsigned turns;
};
void prompt_next_question(struct buf *out, const struct prompt_next *next);

/* The context in a line, for people and the prompt. */
void prompt_describe_context(struct buf *out, struct json_object *variable);

/* What one block did; `index` counts from 1, `blocks` is their number in the reply. */
void prompt_result(
    struct buf *out, const struct cell_result *result, unsigned index, size_t max_chars);

extern const char prompt_no_code[];   /* after a reply without code and answer */
extern const char prompt_last_turn[]; /* when the iterations are used up */

#endif
