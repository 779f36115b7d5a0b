/* broker/internal.h: what the files of the broker share: a guest's call and its prompts. */
#ifndef DROSTE_BROKER_INTERNAL_H
#define DROSTE_BROKER_INTERNAL_H

#include "broker/broker.h"
#include "broker/prompt.h"

/* Of an item in a run that is resumed. */
enum waits {
    WAITS_NOT,
    WAITS_FOR_OTHERS, /* the record has calls of this cell that should come, and not this one */
    WAITS_FOR_CELL,   /* its answer came after the end of the cell, and must not come before now */
};

struct item {
    struct ask *ask;
    struct lm_call *call; /* NULL once it ended, or before it began; so with the child */
    struct child *child;
    struct tool_call *tool;
    int64_t record; /* its id there; 0: none */
    uint64_t told;  /* its number in `told`; 0: it was not told of */
    struct budget_hold hold;
    int64_t reserved;  /* calls in the budget, when it was asked for */
    size_t unrecorded; /* bytes that have room in the record, and are not there yet */
    char *text;
    size_t len;
    char *failure; /* what a tool raised: {"type", "message"} */
    bool is_messages;
    bool is_run;                  /* its answer is JSON */
    struct shared_value *context; /* of a run: one of the ask's, or NULL */
    struct error error;
    const char *asked; /* the prompt, while the item is started */
    size_t asked_len;

    struct recorded_call *known; /* what the record has of it; NULL: nothing */
    struct recorded_run *replay_match_run;
    enum waits waits;
    char *kept; /* the prompt of one that waits for others */
};

struct function;

struct ask {
    struct ask *next;
    struct broker *broker;
    struct session *session;
    uint64_t id;
    const struct function *function;
    char *model; /* may be NULL; of a tool its name */
    bool is_tool;
    struct shared_value **contexts;
    size_t context_count;
    size_t count, done;
    uint64_t spent_ns;         /* of processor time on its answers */
    size_t bytes;              /* of its prompts */
    struct json_limits limits; /* what its lists of messages may still have */
    char key[LM_KEY_SIZE];     /* of which its items' keys are made; "": none was needed yet */
    bool starting;             /* within broker_call: the reply waits for its end */
    struct timer *patience;    /* until the guest is told that no answer comes; NULL: for ever */
    struct item items[];
};

struct broker {
    struct broker_options options;
    uint64_t told; /* calls that were told of */
    int64_t turn, cell;
    size_t under_way; /* bytes of prompts in `asks` */
    struct ask *asks;
    struct timer *doubt; /* about items that wait for others; NULL where nothing is recorded */
    bool parked;         /* there may be such */
    uint64_t seen_ns, busy_ns; /* when their guest was looked at, and what it had been busy then */
    uint64_t idle_ms;          /* since when nothing came of it */
};

/* broker.c */
void item_start(struct item *item, const char *text, size_t len);
/* The text of an answer, as a JSON string if `quote`; without memory the item has an error. */
void item_keep_text(struct item *item, const char *text, size_t len, bool quote);
void item_over(struct item *item);
/* What it has room for in the record is there now, or will be. */
void item_recorded(struct item *item);
void ask_reply(struct ask *ask);
void broker_tell_changed(struct broker *b); /* a call has ended */

/* What guests may ask for, each in a file of its own: `take` what else the head says, where `rest` are
 * the parts behind the prompts; `find` what the record has of an item; `start` it. `cancel`: nobody
 * waits any more, item->error says why. */

/* model_call.c: the function "llm_query". */
int model_take(
    struct ask *ask, struct json_object *head, struct frame_parts *rest, struct error *err);
int model_find(struct item *item, const char *text, size_t len, struct error *err);
int model_start(struct item *item, const char *text, size_t len, struct error *err);
void model_cancel(struct item *item, const struct error *why);
/* Asks for an answer to the text, or to the list of messages that it is. */
int model_ask(struct item *item, const char *text, size_t len, bool is_messages, struct error *err);
/* Makes the model's call: a new one, or that of item->record once more, by request->key. */
int model_begin(struct item *item, const struct lm_request *request, const struct budget_call *call,
    const char *text, size_t len, struct error *err);

/* child_run.c: the function "rlm_query". */
int child_take(
    struct ask *ask, struct json_object *head, struct frame_parts *rest, struct error *err);
int child_find(struct item *item, const char *text, size_t len, struct error *err);
/* Bytes of the request that the record will have of a prompt of so many. */
size_t child_record_bytes(const struct item *item, size_t len);
int child_start(struct item *item, const char *prompt, size_t len, struct error *err);
void child_cancel(struct item *item, const struct error *why);
/* Begins the child run, or goes on with the one of the record. */
int child_begin(struct item *item, const char *prompt, size_t len, const struct recorded_run *known,
    struct error *err);

/* tool_call.c: the function "tool". */
int tool_take(
    struct ask *ask, struct json_object *head, struct frame_parts *rest, struct error *err);
int tool_find(struct item *item, const char *text, size_t len, struct error *err);
int tool_start(struct item *item, const char *text, size_t len, struct error *err);
void tool_cancel(struct item *item);
/* The end of a recorded call becomes the item's. */
void tool_keep_recorded(struct item *item, const struct recorded_call *call);

/* known.c: what the record knows of an item, in a run that is resumed. */
/* Looks for a call that asks `text`, and takes it: item->known. */
int replay_match_find_call(struct item *item, const char *text, size_t len, struct error *err);
/* Looks for a child run, and takes it: item->replay_match_run. The hash of its context is "" for none. */
int replay_match_find_run(
    struct item *item, const char *question, size_t len, const char *context, struct error *err);
void replay_match_forget(struct item *item);
int replay_match_start_tool(struct item *item, struct error *err); /* as replay_match_start */
/* 1: the item is taken care of; 0: it is to be begun, as the record knows nothing of it. */
int replay_match_start(struct item *item, struct lm_request *request,
    const struct budget_call *call, const char *text, size_t len, struct error *err);
/* An error where nobody is to be asked any more; then the run is told that it left its path. */
int replay_match_may_ask(struct item *item, struct error *err);
int replay_match_start_run(struct item *item, const char *prompt, size_t len, struct error *err);
/* Nobody is to wait for the item any more; it has its error, or what came late then. */
void replay_match_cancel(struct item *item);
/* Items that wait for others look again. */
void replay_match_start_waiting(struct broker *b);
void replay_match_doubt(void *broker); /* the timer's: may who should have come first still come? */

#endif
