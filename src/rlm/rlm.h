/* rlm/rlm.h: one RLM completion: a question, contexts in a sandbox, and a model that writes code
 * until it has the answer. The code may start child runs (rlm_query), recursively.
 *
 * Runs asynchronously on the caller's loop. A run owns its session, its broker and its child runs;
 * the caller owns the models, the environment and the record. Every step is recorded before the
 * next one starts. Events describe the root; for child runs they only report completed calls,
 * unless `all_events` is set.
 */
#pragma once

#include "broker/budget.h"
#include "broker/options.h"
#include "broker/tools.h"
#include "lm/lm.h"
#include "rlm/artifacts.h"
#include "rlm/select.h"
#include "session/context.h"
#include "session/session.h"
#include "store/store.h"

enum { RLM_CANDIDATES_MAX = 16 };

enum rlm_status {
    RLM_ANSWERED,  /* submitted by the model */
    RLM_EXHAUSTED, /* no iterations left; has the model's last answer */
    RLM_BUDGET,    /* a limit on calls, tokens, money or errors was reached */
    RLM_TIMEOUT,   /* the run's deadline has passed */
    RLM_CANCELLED,
    RLM_ERROR,
    RLM_INTERRUPTED, /* suspended: recorded as if its process had ended */
};

/* "answered", "exhausted", … */
const char *rlm_status_name(enum rlm_status status);

enum rlm_event_kind {
    RLM_EVENT_STARTED,  /* text: the run's id, or "" without a record */
    RLM_EVENT_CONTEXT,  /* text: describes a context that was bound */
    RLM_EVENT_TURN,     /* start of a turn: `turn` of `turns` */
    RLM_EVENT_DELTA,    /* text: a piece of the model's reply */
    RLM_EVENT_REPLY,    /* text: the whole reply */
    RLM_EVENT_CELL,     /* text: the code that runs next */
    RLM_EVENT_OUTPUT,   /* text: a piece of its output; `stream` 1 or 2 */
    RLM_EVENT_DISPLAY,  /* results->latest: a rich result that the running cell shows */
    RLM_EVENT_RESULT,   /* cell: how it ended */
    RLM_EVENT_CALLS,    /* a call ended, except the root's own; see the budget */
    RLM_EVENT_NOTICE,   /* text: a notice for the user */
    RLM_EVENT_APPROVAL, /* of `approval`; status and text as broker_options.approval_event */
    RLM_EVENT_RETRY,    /* text: why an attempt failed; `retry`. Of code's calls with all_events */
    /* Only with `all_events`: */
    RLM_EVENT_REQUEST,  /* text: the new messages for the model, as JSON */
    RLM_EVENT_CALL,     /* code calls a model; text: the prompt */
    RLM_EVENT_CALLED,   /* end of that call; text: the answer or error */
    RLM_EVENT_CHILD,    /* start of a child run, `call` is `run`; text: prompt */
    RLM_EVENT_CHILD_END /* text: its answer as JSON, or the error */
};

struct rlm_event {
    enum rlm_event_kind kind;
    unsigned turn, turns;
    unsigned pending; /* open calls, except the root's own */
    int stream;
    const char *text;
    size_t len;
    const struct cell_result *cell;
    const struct bundles *results; /* of the cell, so far */
    const struct budget *budget;
    unsigned run, depth; /* the run of the event; 0: the root */
    uint64_t call;       /* number of the run's call, or of the tree's child */
    const char *model;   /* its model; NULL: the default of its depth */
    const char *status;  /* of an end: "ok", or an error's name; of a child as rlm_status_name */
    double seconds;      /* of an end */
    int64_t used_calls;
    const struct lm_usage *used; /* of an end: by the call, or by the child's tree */
    const struct lm_retry *retry;
    const struct droste_approval *approval;
};

struct rlm_options {
    const char *question;
    const struct contexts *contexts; /* may be NULL, or none */
    struct lm *const *models;        /* by depth of the call: 0 writes the root's code, 1 answers */
    size_t model_count; /* its guest and writes its children's, …; the last for deeper */
    struct environment *env;
    const char *env_name; /* for the record */
    struct session_options session;
    const struct tools *tools; /* tools of the session, with `sub_tools` also of children */
    const char *tool_facts;    /* JSON that identifies the tools in the record; NULL: none */
    bool sub_tools;
    double tool_timeout; /* seconds per tool call; 0: no limit */
    /* As in broker_options; `waits` is for a place (rlm_open_place). */
    struct approval_rules ask;
    void (*waits)(void *waits_arg, bool on);
    void *waits_arg;
    struct budget_limits limits;
    struct budget
        *part_of; /* a larger budget, which outlives the run: a run that this one refuses a
                               call is suspended; NULL: none */
    const char *traceparent; /* of which the run's calls are spans; NULL: none */
    double call_timeout;     /* seconds per model call; 0: none */
    double answer_timeout;   /* seconds per guest call; 0: no limit */
    int64_t max_tokens;      /* tokens per answer; 0: the provider's default */
    int64_t sub_max_tokens;  /* tokens per answer for guests and child runs */
    unsigned max_iterations;
    unsigned candidates;     /* replies to each turn of the root; 0 and 1: one */
    enum rlm_select select;  /* which of them is kept */
    const char *select_name; /* the same as the program has named it */
    rlm_choose_fn *choose;   /* with SELECT_PROGRAM */
    void *choose_arg;
    unsigned max_errors;       /* consecutive failed turns; 0: no limit */
    unsigned child_iterations; /* of each run below the root */
    double compaction;         /* fill level that triggers compaction; 0: never */
    int64_t window;            /* context window in tokens; 0: from lm/context_window.h */
    unsigned max_images;       /* of a turn's results that the model sees … */
    bool images_of_all;        /* … also if it is not known to read images (lm/vision.h) */
    bool show_images;          /* among the contexts, with the question */
    size_t max_output_chars;   /* bytes of a cell's output for the model */
    struct store *store;       /* NULL: no record */
    struct hold *hold;         /* what costs something passes it; NULL: none */
    const char *resume;        /* recorded run to resume; NULL: a new one */
    /* Of images that the provider reads and that go with the question, too; valid as long as the
     * run. NULL: none. */
    const struct list *image_urls;
    /* The run of the previous question, which has ended and hands over its session; its options
     * must stay valid as long as this run. NULL: none. */
    struct rlm_run *after;
    const char *previous; /* its id, for the record; NULL: none */
    /* With `resume`: replays a run that has ended, without calls or recording, in order to
     * continue from it. */
    bool again;
    bool keep;                    /* keep the session at the end, for a following run */
    const struct list *artifacts; /* patterns of files to save at the end; NULL: none */
    const char *artifacts_dir;    /* where; like `artifacts`, valid as long as the run */
    const char *settings;         /* JSON for the record: how the run was requested; or NULL */
    const char *batch, *task;     /* for the record: the batch it belongs to; or NULL */
    const char *id;               /* of a new run, for the record; NULL: any */
    const char *account;          /* for the record: the client of a server; NULL: none */
    const char *instructions;     /* added to the system prompt; NULL: none */
    const char *system_prompt;    /* replaces Droste's system prompt; NULL or "": none */
    void (*event)(void *arg, const struct rlm_event *event); /* may be NULL */
    bool all_events; /* events of child runs and of each call, too */
    unsigned values; /* of the root: typed values up to this version (wire/values.h); 0: JSON */
    void *arg;
};

struct rlm_result {
    enum rlm_status status;
    char *answer; /* JSON, or NULL */
    /* with the answer's typed values; NULL: without them, or not submitted in this process */
    struct submission *submit;
    struct error error; /* why there is no answer, or no complete one */
    char *message;      /* the whole message of a provider, of which `error` has a part; or NULL */
    char run[STORE_RUN_ID_SIZE];
    unsigned iterations;
    const struct budget *budget; /* of the whole tree */
    double seconds;
    enum isolation isolation;
    const struct workspace *workspace; /* the session's; NULL: none */
    bool rules;
    uint64_t left_out; /* files of directories missing in the contexts */
    char *resumed;     /* JSON about a resumed run: replayed and repeated calls */
    struct artifact_list artifacts;
};

struct rlm_run;
/* `result` is valid until rlm_close. */
typedef void rlm_done_fn(void *arg, const struct rlm_result *result);

/* Starts a run or resumes `resume`; a run that cannot be replayed ends with an error and stays
 * `interrupted` in the record. `done` is called from the loop, exactly once. Options must stay
 * valid as long as the run, except `question`, `instructions`, `system_prompt`, `resume`,
 * `settings` and `session.setup`. */
int rlm_start(struct loop *loop, const struct rlm_options *options, rlm_done_fn *done, void *arg,
    struct rlm_run **out, struct error *err);
/* Creates the root of a session without a run (an interpreter, `droste exec`): at depth 0, it
 * only has child runs, which share a budget with the code's other calls. Starts nothing, and
 * ignores options about a question. rlm_close ends the children. */
int rlm_open_place(
    struct loop *loop, const struct rlm_options *options, struct rlm_run **out, struct error *err);
struct budget *rlm_budget(struct rlm_run *place);
/* Sets the record for runs that start from now on. */
void rlm_record_in(struct rlm_run *place, struct store *store);
/* Child runs for a broker; `children_arg` is the root. */
const struct broker_children *rlm_children(void);
/* Cancels the run, closes the record, and calls `done` at once. */
void rlm_cancel(struct rlm_run *run);
/* Suspends the run: like cancelling, but the record is as if the process had been killed, with
 * the status `interrupted`, so rlm_start can resume it. `why` is the result's error. */
void rlm_suspend(struct rlm_run *run, const struct error *why);
/* Saves the files that `artifacts` names, after the run's end and before rlm_finish; `done` is
 * called from the loop. False: there is nothing to wait for, also if nothing could be saved; the
 * result says why. A failure does not change the run's status. */
bool rlm_save_artifacts(struct rlm_run *run, void (*done)(void *arg), void *arg);
/* Stops that; calls `done` before it returns. */
void rlm_save_artifacts_cancel(struct rlm_run *run);
/* Like session_finish, after the run's end and before rlm_close. A failure turns the reported
 * result into an error, in the record too; the answer stays. */
bool rlm_finish(struct rlm_run *run, session_finished_fn *done, void *arg);
/* Stops waiting for that; calls `done` with this error before it returns. */
void rlm_finish_cancel(struct rlm_run *run);
/* Must not be called within `done`. */
void rlm_close(struct rlm_run *run);
