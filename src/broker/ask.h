/* broker/ask.h: a guest's call (an ask) and its prompts (items), from their start to the reply.
 *
 * broker.c starts the items of an ask; model_call.c, child_run.c, tool_call.c or the record
 * (replay/replay_match.c) end them. The reply goes out when the last item has ended.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/json/json.h"
#include "base/list.h"
#include "broker/budget.h"
#include "broker/options.h"
#include "droste/network.h"
#include "lm/lm.h"

struct ask;
struct child;
struct frame_parts;
struct item;
struct map_fork;
struct recorded_call;
struct recorded_run;
struct session;
struct session_call;
struct shared_value;
struct timer;
struct tool;
struct tool_call;

/* A function that guests may call. */
struct broker_function {
    const char *name;
    /* Parses the rest of the head; `rest` are the parts after the prompts. */
    int (*take)(
        struct ask *ask, struct json_object *head, struct frame_parts *rest, struct error *err);
    /* Looks for an item in the record. */
    int (*find)(struct item *item, const char *text, size_t len, struct error *err);
    /* Returns the bytes that the request needs in the record. */
    size_t (*record_bytes)(const struct item *item, size_t len);
    int (*start)(struct item *item, const char *text, size_t len, struct error *err);
    bool needs_model, is_free; /* is_free: is not a call of the budget */
};

/* What an item waits for; the first two only in a resumed run. */
enum waits {
    WAITS_NOT,
    WAITS_FOR_OTHERS, /* this call is not recorded, and recorded calls of the cell are still due */
    WAITS_FOR_CELL,   /* when recorded, its answer came after the end of the cell */
    WAITS_FOR_FORK,   /* an item of fork_map, until others have ended */
    WAITS_FOR_COST,   /* a model call, until its costs are approved */
};

struct item {
    struct ask *ask;
    struct lm_call *call; /* at most one of these four is open; NULL: not started, or ended */
    struct child *child;
    struct tool_call *tool;
    struct map_fork *fork;
    int64_t record;  /* id in the record; 0: none */
    uint64_t notice; /* its broker_call_event.id; 0: its start was not reported */
    struct budget_hold hold;
    struct cost_wait cost;
    bool asks;        /* it is recorded in this process, to ask for its costs */
    int64_t reserved; /* calls reserved in the budget */
    size_t unwritten; /* bytes reserved in the record and not yet written */
    char *text;       /* the answer */
    size_t len;
    char *values; /* of a tool's answer: the typed value (wire/values.h); NULL: JSON is all */
    size_t values_len;
    char *failure; /* a tool's exception: {"type", "message"} */
    bool is_messages;
    bool is_run;                  /* its answer is JSON */
    struct shared_value *context; /* of a child run: one of the ask's, or NULL */
    struct error error;
    const char *asked; /* the prompt, valid while the item is started */
    size_t asked_len;

    struct recorded_call *replay_call; /* its step in the record; NULL: none */
    struct recorded_run *replay_run;
    enum waits waits;
    char *kept; /* the prompt of an item that waits for others */
};

/* A call of fork_map. */
struct fork_map {
    unsigned most; /* forks at once; 0: the call is another one */
    unsigned depth, number, running;
    size_t next;    /* items before this one have begun */
    double timeout; /* seconds of each item; negative: the session's */
    size_t output_left;
    size_t bytes;                /* of the values that are there */
    struct json_object *outputs; /* {"3": [standard output, standard error]}; NULL: none */
};

/* Requests to the network about which a call asks; network_ask.c. */
struct network_question {
    const struct tool *tool; /* that is called */
    char *destination;
    droste_network_request **requests; /* that wait for the decision */
    size_t count;
    void (*reply)(struct ask *ask); /* it is decided; frees the ask */
    void (*drop)(struct ask *ask);  /* refuses what still waits */
};
/* The tool's name in questions and in the record; no function has it. */
#define NETWORK_TOOL "allow-net"

struct ask {
    struct ask *next;
    struct broker *broker;
    struct session *session;
    uint64_t id;
    const struct broker_function *function;
    char *model; /* the requested model, or NULL; for a tool its name */
    bool is_tool;
    struct network_question *network; /* it asks for these requests, not for code; NULL: for code */
    char *values; /* of a tool: the arguments that JSON does not keep; NULL: none */
    size_t values_len;
    struct shared_value **contexts;
    size_t context_count;
    size_t count, done;
    uint64_t spent_ns;         /* processor time of the host for its answers */
    size_t bytes;              /* of its prompts */
    struct json_limits limits; /* what is left for its lists of messages */
    char key[LM_KEY_SIZE];     /* prefix of its items' keys; "": not needed yet */
    bool starting;             /* items are being started: the reply waits for the end of that */
    struct fork_map map;
    struct timer *patience; /* ends the ask without an answer; NULL: no limit */
    uint64_t held_ns;       /* the budget's time of holds when that was started */
    struct item items[];
};

struct broker {
    struct broker_options options;
    uint64_t notices; /* calls reported to options.call_event */
    int64_t turn, cell;
    unsigned candidate; /* of the turn; 0: none */
    size_t under_way;   /* bytes of prompts in `asks` */
    struct ask *asks;
    const struct session_events *fork_events; /* of forks, to the broker */
    /* Starts the time limit of a call that was approved. */
    int (*begin_patience)(struct ask *ask, struct error *err);
    /* Begins a call that asks for requests to the network. */
    int (*ask_network)(struct broker *b, struct session *s, const struct session_call *call,
        struct network_question *network, struct error *err);
    LIST_HEAD(, map_fork) forks;      /* fork_map.c */
    unsigned forks_at[3];             /* by their depth */
    unsigned maps;                    /* calls of fork_map in this cell */
    TAILQ_HEAD(, approval) approvals; /* approval.c: those that wait, the oldest first */
    struct approval_hook *hook;       /* NULL: nothing was announced yet */
    struct timer *look;               /* at the record, while some wait; NULL: none yet */
    uint64_t looks;
    struct list allowed, denied;  /* destinations that were decided; network_ask.c */
    int64_t seen_version;         /* of the record; -1: look at it again */
    size_t map_bytes;             /* of all values in the maps of `asks` */
    struct timer *doubt;          /* checks items that wait for others; NULL: nothing is recorded */
    struct network_log *requests; /* to the network; network_log.c */
    bool parked;                  /* there may be such items */
    uint64_t seen_ns, busy_ns; /* the last check, and the guest's processor time at that moment */
    uint64_t idle_ms;          /* how long the guest has been idle since the last call */
};

/* Starts an item with its function. A failure ends the item. */
void item_start(struct item *item, const char *text, size_t len);
/* Starts one that waited, with the prompt that it has kept. */
void item_start_again(struct item *item);
/* Sets the text of an answer, as a JSON string if `quote`. Without memory the item has an error. */
void item_keep_text(struct item *item, const char *text, size_t len, bool quote);
/* Sets the typed value beside a tool's answer. */
void item_keep_values(struct item *item, const char *values, size_t len);
/* Takes a tool's exception; NULL: out of memory. */
void item_keep_failure(struct item *item, char *json);
/* Ends an item that has its answer or error; the last one of an ask sends the reply. */
void item_over(struct item *item);
/* The request is in the record now, or will be: its reserved bytes are used. */
void item_recorded(struct item *item);

/* Replies, also for items without an answer, and frees the ask. */
void ask_reply(struct ask *ask);
void ask_refuse(struct session *s, uint64_t id, const struct error *why);
void ask_unlink(struct ask *ask);
void ask_free(struct ask *ask);

/* Reports that a call has ended. */
void broker_tell_changed(struct broker *b);
/* What the guest asked for, or its end, could not be recorded: the run stops, if this is why. */
void broker_unrecorded(const struct broker *b, const struct error *why);
