/* rlm/run.h: a run and its tree, shared by the files of this layer.
 *
 * The root and all its child runs share one `tree`: the options, the budget, the models by depth. A
 * run refers to its parent only for the record. Its broker asks the tree for children (child.c),
 * and ending a run ends its broker, which ends its children, recursively.
 */
#pragma once

#include <sys/queue.h>

#include "base/hash.h"
#include "broker/broker.h"
#include "broker/cost_ask.h"
#include "broker/shared_value.h"
#include "broker/replay/replay_log.h"
#include "rlm/chat.h"
#include "rlm/parse.h"
#include "rlm/resume.h"
#include "rlm/rlm.h"
#include "session/prepare.h"

TAILQ_HEAD(child_list, child);

struct tree {
    struct loop *loop;
    struct rlm_options o; /* of the root; the texts are copies */
    char *instructions, *system_prompt, *setup, *settings;
    struct budget budget;
    struct rlm_run *root;
    struct child_list children; /* all that are not freed yet, oldest first */
    struct timer *later;        /* starts and frees children */
    unsigned begun;             /* children, for events */
    bool back;                  /* ends as recorded, to be retried */
    size_t replayed;            /* calls of runs that are over, answered from the record; */
    struct buf repeated;        /* and those that were made again, as JSON */
};

/* Where a run stands in the tree, and what it is for. */
struct run_place {
    struct rlm_run *parent; /* NULL: the root */
    int64_t parent_cell;
    const char *parent_fork; /* as broker_child has it */
    unsigned depth, iterations;
    unsigned number; /* of a child, from 1; 0: the root */
    const char *question;
    const struct contexts *contexts; /* NULL: none */
    const char *context_hash;        /* of the first, where that is known already; else NULL */
    const char *model;               /* as lm_request has it; NULL: the one of its depth */
    const char *resume;              /* the run of the record to go on with; NULL: a new one */
    bool reserved;                   /* its first call is, in the budget */
};

struct image {
    const char *type; /* "image/png" or "image/jpeg"; NULL: the data is an address */
    char *data;
    size_t len;
    char hash[HASH_TEXT_SIZE];
};

struct images {
    struct image *items;
    size_t count, cap;
};

struct message {
    const char *role;
    char *text;
    size_t len;
    struct images images; /* of a user's: what the model sees besides the text */
};

/* A cell of a candidate. */
struct tried_cell {
    char *code;
    struct cell_result result;
};

struct rlm_run {
    struct tree *tree;
    struct rlm_run *of; /* a candidate: the run whose turn it tries (candidates.c); NULL: a run */
    unsigned candidate; /* its number, from 1; of a run, the one that it replays; 0: none */
    struct candidates *candidates; /* of this turn; NULL: none */
    /* Only of candidates: */
    struct buf text; /* the reply */
    char *code;      /* of the cell that runs */
    struct tried_cell *tried;
    size_t tried_count, tried_cap;
    bool over;
    unsigned order; /* in which they were over, from 1 */

    bool is_place;          /* a session's, which has child runs and is none */
    struct run_place place; /* its texts are the run's */
    char *question, *model;
    struct lm *lm;                                                    /* writes the code */
    void (*replied)(struct rlm_run *r, const struct lm_reply *reply); /* turn_take_reply */
    struct account account;
    bool reserved;     /* the first call of a child, when it was asked for */
    rlm_done_fn *done; /* NULL: cancelled, not called */
    void *done_arg;

    struct session *session;
    struct session_options session_options;
    struct prepare prepared; /* what came before the first block, and the tools that there are */
    struct broker *broker;
    struct json_object *variables; /* what each of its contexts became; NULL: not known yet */
    struct chat chat;
    bool in_cell; /* the session runs one */
    unsigned restarts;

    struct message *messages;
    size_t message_count, message_cap;
    size_t recorded;  /* messages that are in the record already */
    size_t inherited; /* messages of the questions before this one */

    /* compact.c */
    bool compacting;          /* the model is being asked for a summary */
    size_t counted;           /* messages whose tokens are known: */
    int64_t counted_tokens;   /* so many */
    int64_t compacted_tokens; /* when it was last shortened */
    unsigned summaries;       /* the third message is one if there were some */
    bool shortened;           /* the chat's history is what was said, message by message */
    size_t in_history;        /* messages that are in it then, or need not be */

    unsigned turn;
    struct lm_call *call;
    int64_t call_record;
    struct budget_hold hold;
    struct cost_wait cost;       /* of a call that asks for its costs; */
    char asked_key[LM_KEY_SIZE]; /* its key, "": there is none. It is recorded already */
    unsigned last;               /* how often the model was asked for an answer without code */

    struct buf reply; /* the reply whose blocks are being run */
    size_t at;        /* behind the last block that began */
    unsigned block;
    bool failed;     /* some cell of this turn did */
    unsigned errors; /* turns in a row of which that is true */
    int64_t cell_record;
    struct buf feedback;
    struct images images;   /* of this turn, which go with the feedback */
    size_t images_left_out; /* of this turn */

    struct resume *resume;           /* NULL: a new run */
    struct recorded_call *replayed;  /* whose reply comes next */
    struct recorded_cell *same_cell; /* that runs again */
    struct buf submitted;            /* the answer, where only the end of the run is missing */
    struct error diverged;           /* the root's: why the whole tree stops */
    struct timer *step; /* takes what the record has next: not from within what came before */

    struct timer *deadline, *later;
    uint64_t start_ns;
    bool finished;
    struct rlm_result result;
    struct artifacts *artifacts;       /* NULL: none were asked for, or not yet */
    void (*artifacts_done)(void *arg); /* called when they are saved */
    void *artifacts_arg;
    session_finished_fn *written_back; /* called at the end of rlm_finish */
    void *written_back_arg;
};

/* run.c: where it is, and what it tells. */
/* The run itself, or that of a candidate. */
struct rlm_run *run_owner(struct rlm_run *r);
/* The model that answers calls of this depth. */
struct lm *tree_lm(const struct tree *tree, unsigned depth);
bool run_may_have_children(const struct rlm_run *run);
/* The type of its answer; NULL: any, as of all but the root. */
struct schema *run_answer_type(const struct rlm_run *run);
size_t run_context_count(const struct rlm_run *run);
/* The run whose conversation this one goes on with; NULL: it begins one. */
struct rlm_run *run_before(const struct rlm_run *run);
void run_tell(struct rlm_run *run, enum rlm_event_kind kind, const char *text, size_t len);
void run_tell_event(struct rlm_run *run, struct rlm_event *event);
void run_calls_changed(void *run);
/* The broker's `call_event`. */
void run_tell_call(void *run, const struct broker_call_event *event);
/* `call` is 0 of the run's own. */
void run_tell_retry(
    struct rlm_run *r, uint64_t call, const char *model, const struct lm_retry *retry);

/* Describes for events why a cell failed: the traceback, or the reason. */
const char *run_cell_complaint(const struct cell_result *c);

/* run_start.c: what fails is told to the record and by the return, not by `done`; the call that was
 * reserved for it is the run's in either case. */
int run_start(struct tree *tree, const struct run_place *place, rlm_done_fn *done, void *arg,
    struct rlm_run **out, struct error *err);
/* Of one that has ended; not from within its callbacks. */
void run_free(struct rlm_run *run);

/* run_end.c */
void run_end(struct rlm_run *run, enum rlm_status status, const struct error *why);
/* Ends it as the error says, but for a tree that has left the path of the record: it ends whole. */
void run_fail(struct rlm_run *run, const struct error *why);
/* Ends it as the error says. */
void run_end_badly(struct rlm_run *run, const struct error *why);
/* Ends it with this answer, which it takes; NULL means lack of memory. */
void run_answered(struct rlm_run *r, char *json, enum rlm_status status);
void run_time_is_up(void *run); /* the timer's */
/* Ends a candidate with its call; its cell is lost. */
void candidate_end(struct rlm_run *c, const char *by);
/* The code of a candidate has ended, or its reply had none. */
void candidate_over(struct rlm_run *c);
/* Takes the result of a cell, with its code, for the selector and for events. */
void candidate_note_cell(struct rlm_run *c, struct cell_result *result);

/* run_broker.c */
int run_open_broker(struct rlm_run *r, struct error *err);
/* Whether its code may call the user's tools. */
bool run_has_tools(const struct rlm_run *r);
extern const struct session_events run_guest_events; /* of the session of a run or candidate */

/* run_session.c: a run gets its session, and then has its first turn. */
int run_session_start(struct rlm_run *r, struct error *err);
void run_session_restart(void *run); /* the timer's: the sandbox died under a cell */

/* messages.c: what a run and its model have said to each other. */
/* Takes ownership of the text; NULL fails for lack of memory. */
int message_add(struct rlm_run *r, const char *role, char *text, size_t len, struct error *err);
/* Takes what is in the buffer. */
int message_add_buf(struct rlm_run *r, const char *role, struct buf *text, struct error *err);
/* What the model said, copied. */
int message_add_reply(struct rlm_run *r, const char *text, size_t len, struct error *err);
/* What the model gets before its first turn: all, or the next question of a conversation. */
int message_add_first(struct rlm_run *r, struct error *err);

void message_free(struct message *m);

/* images.c: images of rich results that the model sees. */
void images_free(struct images *images);
int images_copy(struct images *to, const struct images *from, struct error *err);
/* How many images of a turn the run's model sees. */
size_t images_most(const struct rlm_run *r);
/* Takes those of a cell into r->images. */
int images_take(struct rlm_run *r, const struct bundles *results, struct error *err);
/* The same of the root's contexts, if they are to be shown. */
int images_take_contexts(struct rlm_run *r, struct error *err);
/* The model's provider must read the addresses of images, if the run has any. */
int images_check(const struct rlm_run *r, struct error *err);
/* Whether this is one of them, which the record then needs. */
bool images_have(const struct rlm_run *r, const struct bundle_item *item);
/* Says that they follow the text. */
void images_tell(const struct rlm_run *r, const char *whose, struct buf *out);
/* Moves them to the last message. */
void images_attach(struct rlm_run *r);
void images_drop(struct rlm_run *r);
/* In a recorded request: a member `images` with types, sizes and hashes. */
void images_put_json(const struct images *images, struct buf *out);
int images_recall(
    const struct rlm_run *r, struct json_object *message, struct images *images, struct error *err);
/* A message's text and images as parts, 1 + images.count of them. */
size_t images_parts(const struct message *m, struct lm_part *parts);

/* model_call.c: asks the model; r->replied gets the reply, or why there is none. */
int model_call_begin(struct rlm_run *r, struct error *err);
/* Waits for an approval of a recorded call's costs; `go` is called later, from the loop. */
int model_call_ask(struct rlm_run *r, const struct budget_call *call, const char *key,
    void (*go)(void *run), struct error *err);

/* turn.c: what a run does once its session is there. */
void turn_next(struct rlm_run *r);       /* the next one, or a summary before it */
void turn_begin(struct rlm_run *r);      /* asks the model */
void turn_next_block(struct rlm_run *r); /* of its reply */
void turn_finish(struct rlm_run *r);     /* tells it what became of them */
void turn_take_reply(struct rlm_run *r, const struct lm_reply *reply);

/* candidates.c: several replies to a turn, each with a fork of the session. A candidate is an
 * rlm_run with `of` set: it has a session, a broker and the state of a turn of its own, and
 * everything else is that of its run. Its turn ends in candidate_over. */
/* Begins the turn with several candidates, or with one where there are no more. `kept` goes on with
 * the turn of the one that was kept, if it neither answered nor died. */
int candidates_begin(struct rlm_run *r, void (*kept)(struct rlm_run *r), struct error *err);
/* Closes their sessions: outside of all callbacks. */
void candidates_free(struct rlm_run *r);

/* compact.c: a conversation that is too long. */
/* What a provider counted of the call that has just ended. */
void compact_count(struct rlm_run *r, const struct lm_usage *usage);
/* Whether a summary comes before the next turn. */
bool compact_is_due(struct rlm_run *r);
int compact_begin(struct rlm_run *r, struct error *err);
/* Puts it in place of the messages. */
int compact_take_summary(struct rlm_run *r, const char *summary, size_t len, struct error *err);
/* Whether the code has the messages as `history`: the guest has our helpers. */
bool compact_has_history(const struct rlm_run *r);
/* Of the run that this one goes on from, whose messages it has. */
void compact_take_over(struct rlm_run *r, const struct rlm_run *last);

/* replay.c: the steps of a run that is resumed. */
int replay_open(struct rlm_run *r, struct error *err);
/* As broker_children has it: the child had ended. */
int replay_skip_child(void *run, const struct recorded_run *child, struct error *err);
/* The call that comes next, with the messages that the model got; NULL: it is a new one. */
int replay_next_call(struct rlm_run *r, struct recorded_call **out, struct error *err);
/* The reply to a call that had ended comes from the record, soon. */
int replay_reply(struct rlm_run *r, struct recorded_call *call, const struct lm_request *request,
    struct error *err);
/* The cell that comes next. 0: it is to run, as r->same_cell if it is not new; otherwise nothing of
 * it is needed, as of all cells of a sandbox that died, or it is the one in which the sandbox died.
 */
enum { REPLAY_SKIPPED = 1, REPLAY_DIED };
int replay_next_block(struct rlm_run *r, const struct reply_block *block, struct error *err);
/* The end of r->same_cell, which must be as it was. */
int replay_check_cell(struct rlm_run *r, const struct cell_result *result, struct error *err);
void replay_step(void *run); /* the timer's */

/* replay_end.c: the end of a run that is resumed. */
/* The run does not do what the record says: its tree stops, as soon as it may be closed. */
void run_diverged(void *run, const struct error *why);
/* Ends the whole tree soon, from the loop, because a step could not be recorded. The record is
 * as if the process had died there, so a resumed run pays for nothing twice. */
void run_unrecorded(struct rlm_run *r, const struct error *why);
/* Whether the tree, whose root ends so, was suspended, or was not replayed to its end and can be
 * tried again; then nothing more of it is written to the record. Below the root it is what the root
 * said. */
bool replay_goes_back(struct rlm_run *r, enum rlm_status status);
void replay_go_back(struct rlm_run *r);
/* At its end: what of it was replayed, for whoever resumed the tree. */
void replay_tell(struct rlm_run *r);

/* skip_recorded.c: reports calls that are not repeated to recordings. For a run, these are all
 * of its calls and those of its child runs. */
int skip_recorded_call(const struct tree *tree, struct replay_log *recorded,
    const struct recorded_call *call, struct error *err);
int skip_recorded_run(const struct tree *tree, struct replay_log *recorded,
    const struct recorded_run *run, struct error *err);

/* child.c: child runs. */
extern const struct broker_children run_children;
void tree_look(void *tree); /* timer callback: starts waiting and frees completed children */
void tree_free_children(struct tree *tree, bool all);

/* run_record.c: records a run; does nothing without a record. */
int run_record_begin(struct rlm_run *r, struct error *err);
/* Records a child that was cancelled before it started. */
void run_record_unstarted(const struct run_place *place, struct tree *tree, enum rlm_status status,
    const struct error *why);
int run_record_isolation(struct rlm_run *r, struct error *err);
void run_record_end(struct rlm_run *r);    /* a failure becomes the result's error */
void run_record_failed(struct rlm_run *r); /* after its end: the error is the result's */
void run_record_release(struct rlm_run *r);
int run_record_turn(struct rlm_run *r, struct error *err);
/* The messages that are new since the last call, as JSON; the record keeps each once. */
void run_record_messages(const struct rlm_run *r, struct buf *out);
/* A call, or another one under the same key where r->call_record is there already. */
int run_record_call(struct rlm_run *r, const char *key, struct error *err);
/* The call of the model that chooses a candidate. */
int run_record_select(
    struct rlm_run *r, const struct buf *prompt, const char *key, struct error *err);
/* Which candidate of this turn is kept; the others are over. */
int run_record_kept(struct rlm_run *r, unsigned candidate, const char *reason, const char *state,
    struct error *err);
int run_record_call_end(struct rlm_run *r, const struct lm_reply *reply, struct error *err);
int run_record_cell(struct rlm_run *r, const char *code, size_t len, struct error *err);
int run_record_cell_end(struct rlm_run *r, const struct cell_result *c, struct error *err);
/* Records that the current cell ended with the run; `by` is the reason. */
void run_record_cell_lost(struct rlm_run *r, const char *by);
