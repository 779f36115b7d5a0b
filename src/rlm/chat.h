/* rlm/chat.h: state that the questions of a conversation share: session, contexts, messages.
 *
 * A conversation is a chain of runs, each with its own question, turns, budget and record. A run
 * that continues another one (rlm_options.after) takes over its session with all variables, its
 * messages and this state. If the sandbox is gone, a new one receives the contexts and the history.
 */
#pragma once

#include "base/error.h"
#include "base/json/json.h"
#include "session/prepare.h"

struct context;
struct contexts;

struct chat {
    const struct context *
        *contexts; /* `context_0` is the first, which may be NULL: there is none */
    size_t context_count;
    size_t own; /* index of the first one of this question */
    struct json_object
        *history; /* array of {role, content}: questions and answers, or, where the conversation
                     was shortened, all that was said up to there; NULL: none yet */
    struct json_object *earlier;   /* array: of each earlier question, the array of its messages */
    size_t earlier_next;           /* index of the first bound one */
    struct context *bound_history; /* bound last */
    size_t next;                   /* to bind next: a context, the messages, then the history */
    bool lost;                     /* the previous sandbox and its variables are gone */
};

/* The first question's context; NULL: it has none. */
int chat_begin(struct chat *c, const struct contexts *own, struct error *err);
/* Adds the messages of a run, and its contexts if there are more. `answer` is JSON; NULL: none. */
int chat_go_on(struct chat *c, const struct chat *before, const char *question, const char *answer,
    const struct contexts *own, struct error *err);
/* Appends to the history. */
int chat_say(struct chat *c, const char *role, const char *text, size_t len, struct error *err);
/* Starts the list of messages of the previous question, `history_N` in its code. */
int chat_begin_earlier(struct chat *c, struct error *err);
/* Appends to that list. */
int chat_add_earlier(
    struct chat *c, const char *role, const char *text, size_t len, struct error *err);
void chat_free(struct chat *c);

/* Starts binding everything, or with `more_only` what this question adds; call chat_bind_next
 * until it returns 0. */
void chat_bind_begin(struct chat *c, bool more_only);
/* Returns 1 if an operation was started, whose result goes to `done`; 0 if nothing is left to
 * bind. Fails for a context that would hide a tool or value of the session. */
int chat_bind_next(struct chat *c, const struct prepare *prepared, struct session *s,
    session_done_fn *done, void *arg, struct error *err);
/* Binds only the history. */
int chat_bind_history(
    struct chat *c, struct session *s, session_done_fn *done, void *arg, struct error *err);
/* Returns the context that the completed operation bound, and its number; NULL if it bound the
 * history or nothing. */
const struct context *chat_bound(const struct chat *c, size_t *index);
