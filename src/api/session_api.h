/* api/session_api.h: a session of the public interface, as its two files share it: session_api.c opens
 * and closes it, session_ops.c does things in it.
 */
#ifndef DROSTE_API_SESSION_API_H
#define DROSTE_API_SESSION_API_H

#include "api/stage.h"
#include "broker/broker.h"
#include "session/prepare.h"

enum operation {
    OPERATION_NONE,
    OPERATION_OPEN,
    OPERATION_CELL,
    OPERATION_VALUE,
    OPERATION_FINISH
};

enum session_use { SESSION_OF_USER, SESSION_PLAIN, SESSION_OF_VOLUME };

struct droste_session {
    droste *d;
    struct droste_session *next;
    struct session *session;
    struct settings settings; /* its own: those of the droste may change */
    struct session_parts parts;
    struct staging *staging; /* `session` is NULL until it has ended; NULL: none is under way */
    struct models models;
    struct tools *tools;
    struct session_options options;
    struct prepare prepare;
    struct broker *broker;
    struct rlm_run *place; /* has the budget, and the child runs that its code starts */
    struct buf instructions, system_prompt, plan;
    bool recorded; /* child runs are: the droste's record is in use */
    droste_output_fn *output;
    void *output_arg;
    char *notice;   /* about the last load, or NULL */
    bool plain;     /* for our own use: without rules, setup code, types */
    bool of_volume; /* plain, and for the files of the provider's volume, which must be there */
    bool rules;     /* in force */
    /* the operation under way, or whose end nobody has taken yet */
    enum operation operation;
    bool done;
    struct context *context; /* of a value */
    struct cell_result result;
    struct error failure; /* of an opening, or of a finish */
    bool waited_for;      /* by somebody who takes its end */
    bool to_be_told;      /* it is in the list of the droste */
    TAILQ_ENTRY(droste_session) told;
    droste_session_done_fn *on_done;
    void *on_done_arg;
};

/* Begins what a session has before its first cell. */
int session_api_prepare(droste_session *s, struct error *err);
/* Starts the staging that the session has: its opening is an operation, which ends with session_api_opened, or
 * with that of what is prepared. */
int session_api_stage(droste_session *s, staging_done_fn *done, struct error *err);
void session_api_opened(droste_session *s, const struct error *why);
/* Takes it from those whose ends are to be told. */
void session_api_tell_nobody(droste_session *s);
/* Waits for the end of an operation whose start returned rc, and takes it. */
int session_api_finish(droste_session *s, int rc, droste_result **out, struct error *err);

#endif
