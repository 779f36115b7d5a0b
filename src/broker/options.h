/* broker/options.h: what a broker is opened with, and how it starts child runs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "broker/approval_hook.h"

struct account;
struct approval;
struct budget;
struct lm;
struct lm_reply;
struct loop;
struct recorded_run;
struct replay_log;
struct shared_value;
struct store;
struct tools;
struct droste_approval;
struct hold;
struct list;
struct child; /* handle of the implementation of child runs */

/* A child run that a guest requests. Pointers are valid during `start`. */
struct broker_child {
    const char *prompt; /* UTF-8 */
    size_t len;
    struct shared_value *context; /* NULL: none */
    const char *model;            /* as in lm_request; NULL: the default of its depth */
    int64_t cell;                 /* id of the calling cell in the record; 0: none */
    const char *fork;             /* of a fork_map that calls (fork_map.h); NULL: none */
    const char *resume;           /* recorded run to continue; NULL: a new one */
    bool reserved;                /* one call is reserved; the child takes it over */
};

/* The end of a child run: its answer as JSON, an error, or both (the last output). */
typedef void broker_child_fn(void *arg, const char *json, size_t len, const struct error *error);

/* Runs child runs; implemented by the layer above. */
struct broker_children {
    /* Starts or continues a run. Calls `done` later, from the loop, unless it is cancelled
     * first; after either, the handle is invalid. */
    int (*start)(void *arg, const struct broker_child *child, broker_child_fn *done, void *done_arg,
        struct child **out, struct error *err);
    void (*cancel)(struct child *child, const struct error *why);
    /* The record has the end of this run; reports it without starting the run. */
    int (*skip)(void *arg, const struct recorded_run *run, struct error *err);
};

/* A model call of the guest's code: its start or its end. */
struct broker_call_event {
    uint64_t id; /* number within this broker, from 1 */
    const char *model;
    const char *text; /* the prompt, at the start */
    size_t len;
    const struct lm_reply *reply; /* NULL: the start, or a pause */
    const struct lm_retry *retry; /* the pause before another attempt; NULL: none */
};

/* Calls that ask for an approval (approval.h). */
struct approval_rules {
    const struct list *tools; /* of which tools; "*": of all; NULL: of none */
    double timeout;           /* seconds for which they wait; 0: no limit */
    bool deadline_approves;   /* what happens then */
    struct approval_hook_options hook;
    /* Lends the approval to the program, which answers or leaves it; may be NULL. */
    void (*show)(void *arg, struct approval *approval);
    void *arg;
};

struct broker_options {
    struct lm *lm;                          /* for model calls; NULL: all fail with `no_model` */
    const struct broker_children *children; /* NULL: no child runs */
    void *children_arg;
    const struct tools *tools; /* tools for guests; NULL: none */
    struct budget *budget;
    struct account *account; /* charged account; may be NULL */
    double call_timeout;     /* seconds per model call; 0: no limit */
    const char *traceparent; /* of which model calls are spans; NULL: none */
    struct loop *loop;
    double answer_timeout; /* seconds per guest call; 0: no limit */
    double tool_timeout;   /* seconds per tool call; 0: no limit */
    int64_t max_tokens;    /* tokens per answer; 0: the provider's default */
    struct approval_rules ask;
    /* A call waits for an approval, or no longer; may be NULL. */
    void (*waits)(void *waits_arg, bool on);
    void *waits_arg;
    unsigned depth;              /* depth of the calls made here */
    struct store *store;         /* NULL: no record */
    struct hold *hold;           /* what costs something passes it; NULL: none */
    const char *run, *root;      /* run ids in the record, of the tree's root, too; must outlive the
                                    broker */
    bool recorded_only;          /* stop the run, as `diverged`, for unrecorded calls */
    struct replay_log *recorded; /* log of a resumed run; NULL: a new run */
    /* Called if a guest's call differs from the record, possibly within broker_call, so it must
     * not close the broker. NULL if nothing is recorded. */
    void (*diverged)(void *arg, const struct error *why);
    /* Called if a call, or a request to the network, cannot be recorded, before its guest hears of
     * it; as above. May be NULL. */
    void (*unrecorded)(void *arg, const struct error *why);
    void (*changed)(void *arg); /* called after each call; may be NULL */
    /* May be NULL; must not close anything. */
    void (*call_event)(void *arg, const struct broker_call_event *event);
    /* An approval is asked for (`status` NULL), "approved", "denied", or "unannounced": the webhook
     * was not told of it, for the reason `text`. As call_event. */
    void (*approval_event)(
        void *arg, const struct droste_approval *approval, const char *status, const char *text);
    void *arg;
};
