/* session/checkpoint_list.h: the checkpoints of a session. */
#pragma once

#include <sys/queue.h>

#include "session/internal.h"

struct checkpoint {
    TAILQ_ENTRY(checkpoint) link;
    struct checkpoint_info info;
    struct session *state;
};
TAILQ_HEAD(checkpoint_list, checkpoint);

struct checkpoints {
    struct checkpoint_list list; /* in the order of their ids */
    size_t count;
    unsigned last_id, at; /* at: the one that the session made or went back to last; 0: none */
    uint64_t measure_ns;  /* not earlier */
    /* the operation under way */
    struct checkpoint *pending;
    struct session *fork;
    bool rolls;
    session_done_fn *done;
    void *arg;
    struct cell_result result;
    struct timer *later;
    /* before the current cell */
    struct session *automatic; /* NULL: none */
    uint64_t automatic_id;     /* of the request without an answer; 0: none */
    struct error refusal;      /* why there is none */
    struct session **spent;    /* to be closed outside of their callbacks */
    size_t spent_count, spent_cap;
};

/* close.c */
void checkpoint_free(struct checkpoint *checkpoint);
void checkpoints_remove(struct checkpoints *c, struct checkpoint *checkpoint);
void checkpoints_close_spent(struct checkpoints *c);

/* revive.c */
/* Exchanges the sandbox of a session, and what it owns there, with those of a checkpoint. */
void checkpoints_exchange(struct session *s, struct session *state);
