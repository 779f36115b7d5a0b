/* api/running.h: a run that was started: its events, its end, and the report of that. */
#pragma once

#include <sys/queue.h>

#include "api/models.h"
#include "api/options.h"
#include "api/settings.h"
#include "api/stage.h"
#include "api/stored_run.h"
#include "rlm/rlm.h"
#include "store/log.h"

/* The place of a run in a conversation. */
struct run_link {
    struct rlm_run *after; /* these two as in rlm_options */
    const char *previous;
    struct workspace *workspace; /* the conversation's, borrowed; NULL: none yet */
    bool again;                  /* as in rlm_options: replays a recorded run */
    /* The conversation's, instead of the droste's. When a run is replayed, only for its models. */
    const struct settings *settings;
    /* Called when a run in the background has ended, before that is reported. It takes the run,
     * or NULL if the run did not begin. NULL: not in the background. */
    void (*ended)(droste_chat *chat, droste_running *r, const char *id);
    droste_chat *chat;
};

struct droste_running {
    TAILQ_ENTRY(droste_running) link;
    droste *d;
    struct settings settings; /* a copy: those of the droste may change */
    struct session_parts session;
    struct models models;
    struct tools *tools;
    struct buf tool_facts;
    struct staging *staging;                      /* NULL: the run has begun */
    char *question, *batch, *task, *id, *account; /* of the request */
    bool same;                                    /* the request must be that of the recorded run */
    struct stored_run stored_run;                 /* the recorded run to continue */
    struct rlm_options options;
    struct run_link link_to; /* all zero: of no conversation */
    bool kept;               /* the conversation keeps it after its end */
    droste_running *earlier; /* the run before it in the conversation */
    struct contexts contexts;
    struct store *store;            /* the droste's */
    char resume[STORE_RUN_ID_SIZE]; /* id of the run to continue; "": a new one */
    struct buf instructions, system_prompt;
    struct buf saved; /* the settings for the record */
    char *artifacts_dir;
    droste_event_fn *event;
    bool all_events, values;
    struct budget *part_of; /* as in rlm_options */
    droste_done_fn *done;
    void *arg;
    struct rlm_run *run;
    unsigned telling;                   /* depth of calls of `event` */
    bool ends, ends_suspended;          /* ended from within `event`: cancelled or suspended */
    struct error why;                   /* of the suspension */
    const struct rlm_result *finishing; /* it has ended; files are being saved, or its volume */
    bool saving;                        /* the first of the two */
    bool over;                          /* it ended; `result` is NULL without memory */
    droste_log log_to;                  /* append NULL: none */
    struct store_log *log;
    struct timer *log_flush;
    bool log_flushes;          /* the timer runs */
    bool lost;                 /* another process has the run */
    struct hold_wait end_held; /* its end waits until the log has it */
    bool unbegun;              /* it did not begin; the result says why */
    droste_result *result;
};

void running_free(droste_running *r);
/* Opens the log that the request asks for, in the record of the run. */
int running_log_open(droste_running *r, struct error *err);
/* The callbacks of a run: its event, its end. */
void running_event(void *arg, const struct rlm_event *e);
void running_done(void *arg, const struct rlm_result *result);
/* Ends a run that could not begin after its staging. */
void running_fail(droste_running *r, enum rlm_status status, const struct error *why);

/* As droste_suspend, with a reason. */
void api_suspend(droste_running *r, const struct error *why);
/* Cancels all active runs. */
void api_cancel_runs(droste *d);
void api_drop_run_stagings(droste *d);
/* Frees all runs without reporting their ends. */
void api_drop_runs(droste *d);
/* Reports the ends of all runs. */
void api_tell_runs(droste *d);
