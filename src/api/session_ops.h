/* api/session_ops.h: a session of the public interface, and its operations. */
#pragma once

#include <sys/queue.h>

#include "api/models.h"
#include "api/options.h"
#include "api/stage.h"
#include "base/traceparent.h"
#include "session/prepare.h"

struct broker;

enum operation {
    OPERATION_NONE,
    OPERATION_OPEN,
    OPERATION_CELL,
    OPERATION_VALUE,
    OPERATION_FORK,
    OPERATION_ROLLBACK,
    OPERATION_SAVE,
    OPERATION_FINISH
};

struct droste_session {
    droste *d;
    struct droste_session *next;
    struct session *session;
    droste_session *origin;   /* of a fork: the first session, whose models and budget it uses */
    unsigned forks;           /* of the first one */
    bool closed;              /* it exists only for its forks */
    struct settings settings; /* a copy: those of the droste may change */
    struct session_parts parts;
    struct staging *staging; /* `session` is NULL until it ends; NULL: not active */
    bool uses_env;           /* counted in the env_sessions of the droste */
    struct models models;
    struct tools *tools;
    struct session_options options;
    struct prepare prepare;
    struct broker *broker;
    struct rlm_run *place; /* has the budget and the child runs of its code */
    struct buf instructions, system_prompt, plan;
    bool recorded; /* its child runs use the record of the droste */
    droste_output_fn *output;
    void *output_arg;
    droste_display_fn *display;
    void *display_arg;
    char *notice;                 /* about the last load, or NULL */
    char trace[TRACEPARENT_SIZE]; /* of which calls of models are part; "": none */
    char *script;                 /* of the next cell, as in struct session_cell */
    bool plain;                   /* for internal use: no rules, setup code or schema */
    bool of_volume;               /* plain, and for the provider's volume, which must exist */
    bool rules;
    bool asks_checked; /* the names of the setting "ask", with the first cell */
    /* the operation that is active, or has ended and was not taken yet */
    enum operation operation;
    bool done;
    struct context *context; /* of a value */
    struct cell_result result;
    struct template *saving; /* the template that the operation makes; or NULL */
    struct error failure;    /* of opening or finishing */
    bool waited_for;         /* by a blocking call, which takes its end */
    bool is_answered;        /* in the list of the droste */
    TAILQ_ENTRY(droste_session) answered;
    droste_session_done_fn *on_done;
    void *on_done_arg;
};

/* Starts what precedes the first cell. */
int session_api_prepare(droste_session *s, struct error *err);
/* Starts the session's staging. Opening the session is an operation, which ends with
 * session_api_opened, or with the preparation. */
int session_api_stage(droste_session *s, staging_done_fn *done, struct error *err);
void session_api_opened(droste_session *s, const struct error *why);
/* The end of its operation is not reported. */
void session_api_drop_end(droste_session *s);
/* Its environment may be closed or replaced. */
void session_api_leave_environment(droste_session *s);
/* Waits for the end of an operation and takes it; rc is the result of its start. */
int session_api_finish(droste_session *s, int rc, droste_result **out, struct error *err);

/* Starts a fork, whose session `fork` gets. */
int session_api_fork(droste_session *s, droste_session *fork, const struct session_events *events,
    struct error *err);
/* The same from a checkpoint. */
int session_api_at(droste_session *s, unsigned id, droste_session *fork,
    const struct session_events *events, struct error *err);
/* Starts saving the session; *out can be used after the end of the operation. */
int session_api_save(droste_session *s, struct template **out, struct error *err);
/* The session that owns what forks share. */
droste_session *session_api_origin(droste_session *s);

/* Reports the ends of all sessions' operations. */
void api_tell_sessions(droste *d);
