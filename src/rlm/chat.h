/* rlm/chat.h: what the questions of a conversation share: a session, its contexts, what was said.
 *
 * A conversation is a chain of runs, each with its own question, turns, budget and record. A run that
 * goes on from another one (rlm_options.after) takes over its session with all variables, its messages,
 * and this. Where the sandbox is gone, a new one gets the contexts and the history again.
 */
#ifndef DROSTE_RLM_CHAT_H
#define DROSTE_RLM_CHAT_H

#include "base/error.h"
#include "base/json/json.h"
#include "session/prepare.h"

struct context;
struct contexts;

struct chat {
    const struct context *
        *contexts; /* `context_0` is the first, which may be NULL: there is none */
    size_t context_count;
    size_t own; /* the first that this question brings */
    struct json_object
        *history; /* array of {role, content}: questions and answers, or, where the conversation
                     was shortened, all that was said up to there; NULL: none yet */
    struct json_object *said;      /* array: of each earlier question, the array of its messages */
    size_t said_next;              /* the first of them that is bound */
    struct context *bound_history; /* what was bound last */
    size_t next; /* which is bound next: a context, what was said, then the history */
    bool lost;   /* the sandbox of the run before is gone, and its variables */
};

/* The first question's; NULL: it has no contexts. */
int chat_begin(struct chat *c, const struct contexts *own, struct error *err);
/* What a run said, and its contexts where it has more. `answer` is JSON; NULL: there was none. */
int chat_go_on(struct chat *c, const struct chat *before, const char *question, const char *answer,
    const struct contexts *own, struct error *err);
/* Adds to the history. */
int chat_say(struct chat *c, const char *role, const char *text, size_t len, struct error *err);
/* Begins the list of the messages of the question before this one, its code's `history_N`. */
int chat_begin_said(struct chat *c, struct error *err);
/* Adds to that. */
int chat_add_said(
    struct chat *c, const char *role, const char *text, size_t len, struct error *err);
void chat_free(struct chat *c);

/* Binds all, or with `more_only` what this question brings; chat_bind_next until it gives 0. */
void chat_bind_begin(struct chat *c, bool more_only);
/* 1: an operation was started, whose result goes to `done`; 0: nothing is left to be bound. A context
 * that would hide what the session was prepared with is refused. */
int chat_bind_next(struct chat *c, const struct prepare *prepared, struct session *s,
    session_done_fn *done, void *arg, struct error *err);
/* Binds the history alone. */
int chat_bind_history(
    struct chat *c, struct session *s, session_done_fn *done, void *arg, struct error *err);
/* Of the operation that has ended: the context that it bound, and its number; NULL: it was the history,
 * or none. */
const struct context *chat_bound(const struct chat *c, size_t *index);

#endif
