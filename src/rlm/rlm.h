/* rlm/rlm.h: one RLM completion: a question, a context in a sandbox, a model that writes code until
 * it has the answer. Its code may start runs below it (rlm_query), and theirs.
 *
 * Asynchronous on the caller's loop. A run owns its session, its broker and the runs below it; the
 * models, the environment and the record are the caller's. Every step is in the record before the
 * next begins. Events tell of the root; of the runs below it only that calls have ended, unless `all_events` asks for more.
 */
#ifndef DROSTE_RLM_RLM_H
#define DROSTE_RLM_RLM_H

#include "broker/broker.h"
#include "broker/budget.h"
#include "broker/tools.h"
#include "lm/lm.h"
#include "session/context.h"
#include "session/session.h"
#include "store/store.h"

enum rlm_status {
    RLM_ANSWERED,  /* submitted by the model */
    RLM_EXHAUSTED, /* the iterations ran out; the answer is what the model said then */
    RLM_BUDGET,    /* a limit on calls, tokens, money or errors was reached before an answer */
    RLM_TIMEOUT,   /* the time of the run ran out */
    RLM_CANCELLED,
    RLM_ERROR,
    RLM_INTERRUPTED, /* put aside: the record is as if its process were gone, to go on with */
};

/* "answered", "exhausted", … */
const char *rlm_status_name(enum rlm_status status);

enum rlm_event_kind {
    RLM_EVENT_STARTED, /* text: the run's id, or "" without a record */
    RLM_EVENT_CONTEXT, /* text: what one of the contexts became in the guest, in words */
    RLM_EVENT_TURN,    /* a turn begins: `turn` of `turns` */
    RLM_EVENT_DELTA,   /* text: a piece of the model's reply */
    RLM_EVENT_REPLY,   /* text: the whole reply */
    RLM_EVENT_CELL,    /* text: the code that runs next */
    RLM_EVENT_OUTPUT,  /* text: a piece of its output; `stream` 1 or 2 */
    RLM_EVENT_RESULT,  /* cell: how it ended */
    RLM_EVENT_CALLS,   /* a call other than the root's own ended; the budget has the counts */
    RLM_EVENT_NOTICE,  /* text: something that a person should know */
    /* Only with `all_events`: */
    RLM_EVENT_REQUEST, /* text: the messages that the model is told now, as JSON: those that are new */
    RLM_EVENT_CALL,    /* code asks a model; text: the prompt */
    RLM_EVENT_CALLED,   /* its end; text: the answer, or why there is none */
    RLM_EVENT_CHILD,    /* a run below begins, in which `call` is `run`; text: its prompt */
    RLM_EVENT_CHILD_END /* text: its answer as JSON, or why there is none */
};

struct rlm_event {
    enum rlm_event_kind kind;
    unsigned turn, turns;
    unsigned pending; /* calls under way, but for the root's own */
    int stream;
    const char *text;
    size_t len;
    const struct cell_result *cell;
    const struct budget *budget;
    unsigned run, depth; /* whose event it is: 0 is the root */
    uint64_t call;       /* which call of that run's code, or which child of the tree */
    const char *model;   /* that it asks; NULL: the one of its depth */
    const char *status;  /* of an end: "ok", or an error's name; of a child as rlm_status_name */
    double seconds;      /* of an end */
    int64_t used_calls;
    const struct lm_usage *used; /* of an end: by the call, or by the child's tree */
};

struct rlm_options {
    const char *question;
    const struct contexts *contexts; /* may be NULL, or none */
    struct lm *const *models; /* by the depth of the call: 0 writes the root's code, 1 answers */
    size_t model_count;       /* its guest and writes its children's, …; the last is for more */
    struct environment *env;
    const char *env_name; /* for the record */
    struct session_options session;
    const struct tools *tools; /* of the session, and of children if `sub_tools`; NULL: none */
    const char *tool_facts; /* JSON, for the record: by what they are known again; NULL: no tools */
    bool sub_tools;
    double tool_timeout; /* seconds of a tool's call; 0: no limit */
    struct budget_limits limits;
    struct budget
        *part_of;          /* a larger budget, which outlives the run: a run that this one refuses a
                               call is put aside; NULL: none */
    double call_timeout;   /* seconds of one model call; 0: none */
    double answer_timeout; /* seconds that a guest's call waits for it; 0: no limit */
    int64_t max_tokens;    /* of one answer; 0: the provider's default */
    int64_t sub_max_tokens; /* of one that a guest or a child run asks for */
    unsigned max_iterations;
    unsigned max_errors;       /* turns in a row whose code failed; 0: no limit */
    unsigned child_iterations; /* of each run below the root */
    double compaction; /* share of the window at which a conversation is shortened; 0: never */
    int64_t window;    /* tokens that the model can read; 0: as lm/context_window.h has it */
    size_t max_output_chars; /* of a cell's output that the model is shown */
    struct store *store;     /* NULL: no record */
    const char *resume;      /* the run of the record to go on with; NULL: a new one */
    /* The run that asked the question before, which has ended and gives its session away; what its
     * options point to must outlive this one, too. NULL: none. */
    struct rlm_run *after;
    const char *previous; /* its id, for the record; NULL: none */
    /* With `resume`: a run that has ended. Its cells run again, nobody is asked and nothing written;
     * it is there to go on from. */
    bool again;
    bool keep;                /* somebody may go on from this run: its session outlives its end */
    const char *settings;     /* for the record, JSON: how the run was asked for; NULL: not told */
    const char *batch, *task; /* for the record: what it is part of; NULL: of nothing */
    const char *instructions; /* added to the system prompt; NULL: none */
    const char
        *system_prompt; /* in the place of Droste's, with its placeholders; NULL or "": none */
    void (*event)(void *arg, const struct rlm_event *event); /* may be NULL */
    bool all_events; /* of the runs below the root too, and of each call */
    void *arg;
};

struct rlm_result {
    enum rlm_status status;
    char *answer;       /* JSON, or NULL */
    struct error error; /* why there is none, or why it is not whole */
    char run[STORE_RUN_ID_SIZE];
    unsigned iterations;
    const struct budget *budget; /* of the whole tree */
    double seconds;
    enum isolation isolation;
    const struct workspace *workspace; /* the session's; NULL: none */
    bool rules;
    uint64_t left_out; /* files of directories that the contexts lack */
    char *resumed;     /* JSON of a run that was resumed: what was replayed, what made again */
};

struct rlm_run;
/* `result` is valid until rlm_close. */
typedef void rlm_done_fn(void *arg, const struct rlm_result *result);

/* Starts, or goes on with `resume`; a run that cannot be replayed ends as an error, and stays
 * `interrupted` in the record. `done` comes from the loop, exactly once. What the options point to must outlive the run,
 * but for `question`, `instructions`, `system_prompt`, `resume`, `settings` and `session.setup`. */
int rlm_start(struct loop *loop, const struct rlm_options *options, rlm_done_fn *done, void *arg,
    struct rlm_run **out, struct error *err);
/* The place of a session that is no run (an interpreter, `droste exec`): at depth 0, it has child runs only, under one
 * budget with what else its code asks. Nothing is started; of the options, what is about a question is not looked at.
 * rlm_close ends the children. */
int rlm_open_place(
    struct loop *loop, const struct rlm_options *options, struct rlm_run **out, struct error *err);
struct budget *rlm_budget(struct rlm_run *place);
/* Where the runs that begin from now on are recorded. */
void rlm_record_in(struct rlm_run *place, struct store *store);
/* For a broker, with the place as `children_arg`. */
const struct broker_children *rlm_children(void);
/* Stops: what is under way is cancelled, the record is closed, `done` follows at once. */
void rlm_cancel(struct rlm_run *run);
/* The same, but in the record the run is `interrupted`, and its steps are what they would be had the
 * process been killed: rlm_start goes on with it. `why` is the result's error. */
void rlm_suspend(struct rlm_run *run, const struct error *why);
/* After its end, before rlm_close: as session_finish, of its session. Where that fails, the result
 * that `done` was told of is an error, in the record too; its answer stays. */
bool rlm_finish(struct rlm_run *run, session_finished_fn *done, void *arg);
/* It is not waited for any longer: `done` is told that within the call. */
void rlm_finish_cancel(struct rlm_run *run);
/* Not from within `done`. */
void rlm_close(struct rlm_run *run);

#endif
