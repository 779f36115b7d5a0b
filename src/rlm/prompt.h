/* rlm/prompt.h: what the model is told. */
#ifndef DROSTE_RLM_PROMPT_H
#define DROSTE_RLM_PROMPT_H

#include "base/buf.h"
#include "base/json/schema.h"
#include "session/context.h"
#include "session/prepare.h"
#include "session/session.h"

/* What a session has; the model is told of nothing else. */
struct prompt_session {
    const char *instructions;          /* NULL or "": none */
    const struct schema *answer;       /* the type of the answer; NULL: any */
    const char *volume;                /* where it is; NULL: none */
    const struct workspace *workspace; /* NULL: none */
    bool rules, no_standard_imports, children;
    bool several; /* contexts, not one or none */
    bool helpers, literal_grep;
    const char *
        about; /* nothing of guest/python is there: what else is, "" for nothing; NULL: it is there */
    /* Their names go before those of the helpers; NULL: none. */
    const struct prepare *prepared;
    const struct contexts *contexts;
};

/* How to work and what there is to work with. Each name that it mentions exists in the guest, and does
 * what is said of it (tests/e2e/test_prompt.py). */
void prompt_system(struct buf *out, const struct prompt_session *session);

/* The part of it that is about the helpers. */
void prompt_helpers(struct buf *out, const struct prompt_session *session);

/* The question and what is known of the contexts, never the contexts themselves. `variables` is the
 * guest's own description of each, a list. */
void prompt_question(struct buf *out, const char *question, const struct contexts *contexts,
    struct json_object *variables, unsigned turns);

/* The tools (name, signature, description) and given values (as session_set describes them), each in
 * its own point of a list; NULL: none. */
void prompt_tools(struct buf *out, struct json_object *tools, struct json_object *data);

/* A question that follows on another one. */
struct prompt_next {
    const char *answer; /* JSON, to the question before; NULL: there was none */
    const char *question;
    bool lost;                       /* the variables are gone */
    const struct contexts *contexts; /* that it brings; NULL: none */
    size_t first;                    /* the number of the first of them */
    struct json_object *variables;   /* as in prompt_question */
    unsigned turns;
};
void prompt_next_question(struct buf *out, const struct prompt_next *next);

/* A context in a line, for people and the prompt. */
void prompt_describe_context(struct buf *out, struct json_object *variable);

/* What one block did; `index` counts from 1, `blocks` is their number in the reply. */
void prompt_result(
    struct buf *out, const struct cell_result *result, unsigned index, size_t max_chars);

/* After a reply without code and answer; `custom`: nothing of guest/python is there. */
const char *prompt_no_code(bool custom);
/* When the iterations are used up. */
void prompt_last_turn(struct buf *out, bool typed);
/* Asks for a summary of the conversation, which it says will be taken out; and what stands in the place
 * of it then. `history`: the session has it as a variable. */
void prompt_ask_summary(struct buf *out);
void prompt_summary(struct buf *out, const char *said, size_t len, bool history);
/* An output that was shown before, cut when the conversation became too long. */
void prompt_shortened(struct buf *out, const char *text, size_t len, size_t max, bool history);
/* After an answer in words that has not the type; `last`: no more code will be run. */
void prompt_not_taken(struct buf *out, const char *why, bool last, bool custom);

#endif
