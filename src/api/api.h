/* api/api.h: what the files of the public interface share. */
#ifndef DROSTE_API_API_H
#define DROSTE_API_API_H

#include "api/settings.h"
#include "base/buf.h"
#include "base/loop.h"
#include "broker/tools.h"
#include "env/environment.h"
#include "lm/lm.h"
#include "rlm/rlm.h"
#include "session/context.h"
#include "session/session.h"

struct droste {
    struct settings settings;
    struct loop *loop;
    struct environment *env; /* opened when first needed */
    char *env_name;
    int interrupt_fd; /* an eventfd: droste_interrupt writes, the loop reads */
    struct watch *interrupt_watch;
    /* what the settings come to, for sessions: see api_session_options */
    struct list shown, allowed;
    struct buf setup;
    struct store *store; /* the record, once it was needed; its path as the setting had it */
    char *store_path;
    struct droste_session *sessions; /* all that are open */
    bool started;                    /* it has opened a session or begun a run before */
    struct rlm_run *run;             /* the one under way, if any */
    struct lm_queue *queue;          /* of all models, once one was opened */
    droste_model_fn *model_fn;
    void *model_arg;
    struct tools *tools; /* of the program; NULL: none */
};

/* The caller's error, from ours; returns rc. */
int api_fail(droste_error *out, const struct error *err, int rc);

/* The environment that the settings name. */
int api_environment(droste *d, struct environment **out, struct error *err);
/* The models that the settings name, by the depth of calls; those of several depths may be one. */
struct models {
    struct lm *at[BUDGET_DEPTH_MAX + 2]; /* the last answers what the deepest runs ask */
    struct lm *opened[BUDGET_DEPTH_MAX + 2];
    size_t opened_count;
};
/* None is there where none is configured and `need` is false. */
int api_models(droste *d, bool need, struct models *models, struct error *err);
void api_models_close(struct models *models);
/* The tools of the program and of the settings, the caller's (tools_free); NULL where there are none. */
int api_tools(droste *d, struct tools **out, struct error *err);
/* What of a directory becomes context. */
struct context_filter api_filter(const droste *d);
/* What the context is to become. */
int api_context_kind(const droste *d, enum value_kind *kind, struct error *err);
/* The record that the settings name; *out is NULL where they say "none". It stays open: the last
 * close of a database costs more than a run. */
int api_store(droste *d, struct store **out, struct error *err);
/* What they point to is the settings' and the droste's. */
int api_session_options(droste *d, struct session_options *options, struct error *err);
/* A text, or that of the file that is named after an '@'; `what` is for the error. */
int api_text(const char *value, const char *what, struct buf *out, struct error *err);
/* Seconds that a guest's call may wait for its answer; 0: no limit. */
double api_broker_timeout(const droste *d);

/* A session for our own use: without rules and setup code. */
int api_session_open_plain(droste *d, droste_session **out, droste_error *err);

/* What was done to make its sandbox, for people. */
void api_session_describe(const struct droste_session *s, struct buf *out);

/* An interrupt that came while nothing was under way is not for what begins now. */
void api_forget_interrupt(droste *d);
/* Interrupts the cells under way. */
void api_interrupt_sessions(droste *d);

struct droste_result {
    const char *status;
    struct cell_result cell; /* of a cell */
    char *answer;            /* of a run */
    struct error error;
    double seconds;
    struct buf json;
};

/* Takes the cell. NULL without memory. */
struct droste_result *result_of_cell(
    struct cell_result *cell, const struct session *session, bool rules);
struct droste_result *result_of_run(const struct rlm_result *run);

#endif
