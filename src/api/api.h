/* api/api.h: what the files of the public interface share. */
#ifndef DROSTE_API_API_H
#define DROSTE_API_API_H

#include <sys/queue.h>

#include "api/settings.h"
#include "base/buf.h"
#include "base/loop.h"
#include "broker/tools.h"
#include "env/common/environment.h"
#include "lm/lm.h"
#include "rlm/rlm.h"
#include "session/context.h"
#include "session/session.h"

TAILQ_HEAD(running_list, droste_running);
TAILQ_HEAD(ended_list, droste_session);

struct droste {
    struct settings settings;
    struct loop *loop;
    struct environment *env; /* opened when first needed */
    char *env_name;
    char env_circumstances[ENVIRONMENT_CIRCUMSTANCES_SIZE]; /* in which it was opened */
    struct custom_entry *customs;                           /* environments of the program */
    droste_notice_fn *notice;                               /* NULL: notices are dropped */
    void *notice_arg;
    int interrupt_fd; /* an eventfd: droste_interrupt writes, the loop reads */
    struct watch *interrupt_watch;
    char *volume_root;    /* as droste_volume_root has returned it */
    char *python;         /* and droste_python */
    char *record_path;    /* and droste_record_path */
    struct list contexts; /* that were added, PATH or NAME=PATH each */
    struct store *store;  /* the record, once it was needed; its path as the setting had it */
    char *store_path;
    size_t store_users;              /* sessions whose child runs are recorded there */
    struct droste_session *sessions; /* all that are open */
    struct ended_list answered;      /* whose operations have ended, and who want to be told */
    bool started;                    /* it has opened a session or begun a run before */
    struct running_list runs;        /* under way, the oldest first */
    struct running_list ended;       /* whose results wait to be told */
    size_t run_count;                /* of both */
    struct timer *tell;              /* tells them, never from within a run */
    struct rlm_run
        *finishing; /* the run whose session's end droste_chat_finish waits for; NULL: none */
    struct staging *staging;  /* that is waited for; NULL: none */
    bool waits;               /* the loop is being turned: not from within, once more */
    int poll_fd, timer_fd;    /* droste_fd's, once it was asked for; else -1 */
    struct lm_queue *queue;   /* of all models, once one was opened */
    struct shared_lm *models; /* that are open */
    droste_model_fn *model_fn;
    void *model_arg;
    struct tools *tools;   /* of the program; NULL: none */
    struct buf tool_facts; /* of these */
    /* of a batch, while there is one */
    struct budget *part_of;          /* the budget of all runs together; NULL: none */
    void (*on_interrupt)(void *arg); /* instead of cancelling; NULL: none */
    void *on_interrupt_arg;
};

/* The caller's error, from ours; returns rc. */
int api_fail(droste_error *out, const struct error *err, int rc);

/* The environment that the settings name. */
int api_environment(
    droste *d, const struct settings *s, struct environment **out, struct error *err);
/* An environment of the program, by its name; *out is NULL where there is none. */
int api_custom_open(droste *d, const char *name, struct environment **out, struct error *err);
void api_customs_free(droste *d);
/* Sets names and values, in turn, up to NULL; NULL: none. */
int api_settings_set(struct settings *s, const char *const *words, struct error *err);
/* The models that the settings name, by the depth of calls; those of several depths may be one. A
 * model is open once for all who use it with the same settings. */
struct shared_lm;
struct models {
    struct lm *at[BUDGET_DEPTH_MAX + 2]; /* the last answers what the deepest runs ask */
    struct shared_lm *opened[BUDGET_DEPTH_MAX + 2];
    size_t opened_count;
};
/* None is there where none is configured and `need` is false. */
int api_models(
    droste *d, const struct settings *s, bool need, struct models *models, struct error *err);
void api_models_close(struct models *models);
/* Closes those without a user. */
void api_end_models(droste *d);
/* The tools of the program and of the settings, the caller's (tools_free); NULL where there are none. To
 * `facts` goes by what they are known again (tool_facts.h). */
int api_tools(
    droste *d, const struct settings *s, struct tools **out, struct buf *facts, struct error *err);
/* Adds a function of the program; `replaces` as in tool_spec. */
int tool_api_add(struct tools *tools, const char *name, const char *description,
    const char *parameters, bool replaces, droste_tool_fn *fn, void *arg, struct error *err);
/* What of a directory becomes context. */
struct context_filter api_filter(const struct settings *s, const int *interrupt);
/* What the context is to become. */
int api_context_kind(const struct settings *s, enum value_kind *kind, struct error *err);
/* The record that the settings name; *out is NULL where they say "none". It stays open: the last
 * close of a database costs more than a run. */
int api_store(droste *d, struct store **out, struct error *err);
/* The one at this path (NULL: the default), for a session's child runs: it stays until `d->store_users` is 0 again. */
int api_store_at(droste *d, const char *path, struct store **out, struct error *err);
/* What the settings come to for a session. What the options point to is theirs and the parts'. */
struct session_parts {
    struct list shown, allowed;
    struct buf setup;
    struct schema *answer;       /* NULL: any */
    struct volume *volume;       /* NULL: none */
    struct workspace *workspace; /* NULL: none */
    struct container_spec container;
};
int api_session_options(droste *d, const struct settings *s, struct session_parts *parts,
    struct session_options *options, struct error *err);
void session_parts_free(struct session_parts *parts);
/* The schema that the settings name, the caller's (schema_drop); NULL: answers are of any type. */
int api_answer_type(const struct settings *s, struct schema **out, struct error *err);
/* The directory of all volumes that the settings name, the caller's (free). */
int api_volume_root(const struct settings *s, char **out, struct error *err);
/* What a volume that is made may hold, as they say. */
struct volume_limits api_volume_limits(const struct settings *s);
/* What they say of a run, but for its models, its session and its time. */
struct rlm_options api_run_options(const struct settings *s);
/* And what the models of runs are told beside the rest. */
int api_instructions(const struct settings *s, struct buf *out, struct error *err);
int api_system_prompt(const struct settings *s, struct buf *out, struct error *err);
/* A text, or that of the file that is named after an '@'; `what` is for the error. */
int api_text(const char *value, const char *what, struct buf *out, struct error *err);
/* Seconds that a guest's call may wait for its answer; 0: no limit. */
double api_broker_timeout(const struct settings *s);

/* A session with a workspace that is there already (NULL: as the settings say); it takes it. */
int api_session_open_staged(
    droste *d, struct workspace *workspace, droste_session **out, droste_error *err);
/* One for the files of a provider's volume, which must be there, and with these staged; NULL: none. */
int api_session_open_volume(
    droste *d, struct workspace *workspace, droste_session **out, droste_error *err);

/* An interrupt that came while nothing was under way is not for what begins now. */
void api_forget_interrupt(droste *d);
/* Whether there is one beside that which is being opened. */
bool api_has_sessions(const droste *d);
/* Interrupts the cells under way, and the staging of sessions. */
void api_interrupt_sessions(droste *d);
/* Of the sessions and runs that are being staged nothing comes any more. */
void api_drop_stagings(droste *d);
void api_drop_staged_runs(droste *d);

/* How a run is part of a conversation. */
struct link {
    struct rlm_run *after; /* the next three as in rlm_options */
    const char *previous;
    struct workspace *workspace; /* of the conversation, borrowed; NULL: none yet */
    bool again;
    const struct settings
        *settings; /* of the conversation: in the place of the droste's, for a run that
                                        is gone over again only where they name models */
};

/* The record of a run that is to be continued. */
struct stored_run {
    struct store *store;
    char id[STORE_RUN_ID_SIZE], previous[STORE_RUN_ID_SIZE]; /* "": it began a conversation */
    char status[32];
    struct buf question, settings, tool_facts;
    struct json_object *context; /* NULL: there was none */
    struct buf context_data;
};
int stored_run_find(droste *d, const char *run, struct stored_run *stored_run, struct error *err);
void stored_run_free(struct stored_run *stored_run);
/* A run that was started. */
struct droste_running {
    TAILQ_ENTRY(droste_running) link;
    droste *d;
    struct settings settings; /* its own: those of the droste may change */
    struct session_parts session;
    struct models models;
    struct tools *tools;
    struct buf tool_facts;
    struct staging *staging;       /* NULL: it has begun */
    char *question, *batch, *task; /* of the request */
    bool same;                     /* it is to be as the one of the record */
    struct stored_run stored_run;  /* which */
    struct rlm_options options;
    struct link link_to;     /* all zero: of no conversation */
    bool kept;               /* by the conversation, after its end */
    droste_running *earlier; /* of it */
    struct contexts contexts;
    struct store *store;            /* the droste's */
    char resume[STORE_RUN_ID_SIZE]; /* the run to go on with; "": a new one */
    struct buf instructions, system_prompt;
    struct buf saved; /* the settings, as the record keeps them */
    droste_event_fn *event;
    bool all_events;
    droste_chat *chat; /* the chat of a question that runs in the background; NULL: none */
    droste_done_fn *done;
    void *arg;
    struct rlm_run *run;
    unsigned telling;          /* its `event` is being called */
    bool ends, ends_suspended; /* from within that it was asked to end, or to be put aside */
    struct error why;          /* of the latter */
    const struct rlm_result *finishing; /* it has ended so, and its volume is being written back */
    bool over;                          /* it ended; `result` is NULL without memory */
    bool unbegun;                       /* before it began: the result says why */
    droste_result *result;
};

/* Those that it had, with the keys and the record of the droste. They are to be freed after an error too,
 * and *out has nothing to be freed before. */
int stored_run_settings(
    const droste *d, const struct stored_run *stored_run, struct settings *out, struct error *err);
/* The status of that name; of a name that is none: RLM_ERROR. */
enum rlm_status stored_run_status(const char *name);
/* The result of a run of the record that has ended, as it was told then. */
int stored_run_result(droste *d, const char *run, droste_result **out, struct error *err);

/* Starts a run and waits for it. With a `link`, *running (not NULL) is kept after its end. */
int api_run(droste *d, droste_request *q, const struct link *link, droste_running **running,
    droste_result **out, struct error *err);
void api_running_free(droste_running *r);
/* chat_api.c: a question that is not waited for: its link, and what it goes on from when it has ended; with
 * `r` NULL it did not begin. ERROR_ARGUMENT while another one is under way. */
int chat_next(droste_chat *c, struct link *link, struct error *err);
void chat_advance(droste_chat *c, droste_running *r, const char *id);
/* Goes over the runs up to this one, for one more whose link it fills in. All of it is the
 * chat's, which is the caller's. */
int chat_before(droste *d, const char *run, const struct settings *s, droste_chat **out,
    struct link *link, struct error *err);

/* result.c: what an event tells of a cell, as JSON: submit, stdout, stderr, error and variables. */
void result_put_told(struct buf *out, const struct cell_result *c);

/* As droste_suspend, which says why. */
void api_suspend(droste_running *r, const struct error *why);
/* Ends all runs without telling. */
void api_drop_runs(droste *d);
/* Ends as cancelled what was started. */
void api_cancel_runs(droste *d);
/* The timer's: tells those who wait for them of the operations and runs that have ended. */
void api_tell(void *d);
/* The part of it that is about sessions. */
void api_tell_sessions(droste *d);
/* Around everything that turns the loop: ERROR_ARGUMENT from within. */
int api_enter(droste *d, struct error *err);
/* Turns the loop until *done; ERROR_ARGUMENT from within. */
int api_wait(droste *d, const bool *done, struct error *err);
/* loop_wait_soon */
int api_wait_soon(droste *d, const bool *done, const bool *soon, int ms, struct error *err);

struct droste_result {
    const char *status;
    bool unbegun; /* the run did not begin; its error says why */
    char run[STORE_RUN_ID_SIZE];
    size_t usage_at, usage_len; /* in `json` */
    struct spent spent;
    struct cell_result cell; /* of a cell */
    char *answer;            /* of a run */
    struct error error;
    double seconds;
    struct buf json;
    size_t
        submit_at; /* what was submitted belongs here in it, and is not there yet; 0: all is there */
};

/* A run that did not begin. NULL without memory. */
struct droste_result *result_of_failure(enum rlm_status status, const struct error *error);
/* Takes the cell. NULL without memory. */
struct droste_result *result_of_cell(struct cell_result *cell, const struct session *session,
    const struct workspace *workspace, bool rules);
struct droste_result *result_of_run(const struct rlm_result *run);

#endif
