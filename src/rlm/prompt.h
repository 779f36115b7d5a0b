/* rlm/prompt.h: the texts that the model gets. */
#pragma once

#include "base/buf.h"
#include "base/json/schema.h"
#include "session/context.h"
#include "session/prepare.h"
#include "session/session.h"
#include "rlm/prompt_texts.h"

/* The texts of rlm/prompts/, by their names (PROMPT_SYSTEM…). */
struct prompt_text {
    const char *name, *about, *text;
};
extern const struct prompt_text prompt_texts[PROMPT_COUNT];

static inline const char *prompt_text(enum prompt_name name)
{
    return prompt_texts[name].text;
}

/* A point of a list. */
static inline void prompt_put_point(struct buf *out, enum prompt_name name)
{
    buf_printf(out, "%s\n", prompt_text(name));
}

/* Replaces each `{name}` of the text that is in `values`, which end with a NULL name; all other
 * braces stay. A paragraph that is a placeholder alone goes where the value is empty. */
struct prompt_value {
    const char *name, *text;
};
void prompt_fill(struct buf *out, const char *text, const struct prompt_value *values);
#define PROMPT_FILL(out, name, ...)                                                                \
    prompt_fill(out, prompt_text(name), (const struct prompt_value[]){ __VA_ARGS__, { 0 } })

/* Whether `{name}` is in the text. */
bool prompt_has(const char *text, const char *name);

/* What is added for the family of a model, by its name: the text of "model-NAME" with the longest
 * NAME that is in it, in upper or lower case; "": nothing. */
const char *prompt_for_model(const char *model);

/* What a session has; the prompt describes nothing else. */
struct prompt_session {
    const char *system;                /* replaces the system prompt; NULL or "": Droste's */
    const char *model;                 /* its name */
    const char *instructions;          /* NULL or "": none */
    const struct schema *answer;       /* the type of the answer; NULL: any */
    bool images;                       /* the model sees images of results */
    const char *volume;                /* where it is; NULL: none */
    const struct workspace *workspace; /* NULL: none */
    bool rules, no_standard_imports, children;
    bool several; /* contexts, not one or none */
    bool helpers, literal_grep;
    /* For a guest without guest/python: a description of what it offers, "" for nothing. NULL: the
     * guest has guest/python. */
    const char *about;
    /* The tools and values, whose names go before those of the helpers; NULL: none. */
    const struct prepare *prepared;
    const struct contexts *contexts;
};

/* How to work and what there is to work with. Each name that Droste's own text mentions exists in
 * the guest and does what the text says (tests/e2e/test_prompt.py). The schema, the instructions
 * and the tools are appended to a user's text that does not name a place for them. */
void prompt_system(struct buf *out, const struct prompt_session *session);

/* The part of it that is about the helpers. */
void prompt_helpers(struct buf *out, const struct prompt_session *session);

/* The question and what is known of the contexts, never the contexts themselves. `variables` is the
 * guest's own description of each, a list. */
void prompt_question(struct buf *out, const char *question, const struct contexts *contexts,
    struct json_object *variables, unsigned turns);

/* The part about the user's tools (name, signature, description) and values (as session_set
 * describes them), each in its own point of a list; NULL: none. */
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

/* What stands in the place of the earlier turns of a conversation: a summary of them. `history`:
 * the session has them as a variable. */
void prompt_summary(struct buf *out, const char *summary, size_t len, bool history);
/* An output that was shown before, cut when the conversation became too long. */
void prompt_shortened(struct buf *out, const char *text, size_t len, size_t max, bool history);
