/* broker/replay/replay_log.h: what the record holds of a run that is resumed, and of the runs below it, and
 * which of it was asked again.
 *
 * The run is replayed: its cells run again, and whoever asks what the record knows is answered from
 * there. A call is found by its cell and its request's hash; of several such the first that was not
 * asked yet, so that calls of a batch or of threads may come in any order. A call of another cell is
 * taken where its own has none: a thread that outlives its cell is faster or slower than it was. A
 * child run is found in the same way, by the hashes of its question and its context.
 *
 * Values stay in the record until they are read. Nothing here writes.
 */
#ifndef DROSTE_BROKER_REPLAY_REPLAY_LOG_H
#define DROSTE_BROKER_REPLAY_REPLAY_LOG_H

#include "base/hash.h"
#include "lm/lm.h"
#include "store/store.h"

struct recorded_value {
    char hash[HASH_TEXT_SIZE]; /* "": there is none */
    size_t len;
};

struct recorded_call {
    int64_t id, turn, cell, number; /* `number` counts the calls of its cell from 1 */
    size_t run;                     /* of one below: whose it is, as replay_log_run_at has it */
    bool root, summary;             /* of the loop itself; one that shortens its conversation */
    bool tool;
    bool ended; /* else it was under way when the process died, and is made again */
    bool asked; /* in this life */
    bool late;  /* no answer came to the guest: its code had given up, or its cell was over */
    char *model;
    char key[LM_KEY_SIZE];
    struct recorded_value request, reply;
    char *finish;
    struct error error;
    struct lm_usage usage;
    double cost;
    unsigned attempts, depth;
    double seconds;
    int64_t started_ms, ended_ms;
};

struct recorded_cell {
    int64_t id, turn, number; /* `number` counts the cells of its turn from 1 */
    bool ended, died;         /* `died`: the sandbox died under it */
    bool begun;               /* in this life */
    char *status, *killed;
    struct recorded_value code, out, err, submit, error;
    double seconds;
    int64_t started_ms, ended_ms;
    int64_t numbers; /* of its calls */
    size_t calls;    /* and child runs, of it that were not asked yet */
};

/* A run below. `own`: the child that a cell of this run asked for; else it is below one of those. */
struct recorded_run {
    char id[STORE_RUN_ID_SIZE];
    bool own;
    size_t top; /* the own child that it is, or is below, as replay_log_run_at has it */
    int64_t seq, cell;
    unsigned depth;
    bool begun; /* its model was asked */
    bool ended; /* else it was under way when the process died, and goes on */
    bool asked; /* in this life; so with `on`: it goes on in it */
    bool on;
    bool late; /* its cell reached its deadline before it ended */
    char *model;
    struct recorded_value question, answer;
    char context[HASH_TEXT_SIZE]; /* "": it has none */
    struct error error;
    int64_t started_ms, ended_ms;
};

struct replay_log;

/* All steps of the run. */
int replay_log_load(
    struct store *store, const char *run, struct replay_log **out, struct error *err);
void replay_log_free(struct replay_log *r);

int64_t replay_log_turns(const struct replay_log *r);
/* Of all values of the run and those below it, one that is there twice counted twice. */
size_t replay_log_bytes(const struct replay_log *r);
/* The steps in the order in which they began; NULL behind the last. */
struct recorded_call *replay_log_call_at(struct replay_log *r, size_t index);
struct recorded_cell *replay_log_cell_at(struct replay_log *r, size_t index);
/* The runs below, parents before children, and their calls. */
struct recorded_run *replay_log_run_at(struct replay_log *r, size_t index);
struct recorded_call *replay_log_below_at(struct replay_log *r, size_t index);
/* NULL: the record has no such cell, it is a new one. */
struct recorded_cell *replay_log_cell_find(struct replay_log *r, int64_t id);

/* The call of the loop that comes next, the cell that comes next; NULL: it is a new one. */
struct recorded_call *replay_log_next_root(struct replay_log *r);
struct recorded_cell *replay_log_next_cell(struct replay_log *r);

/* The call of guest code that asks for this; NULL: none does. `model` is as the guest named it, or
 * NULL, and then `fallback` is who answers; or it is a tool's name. Takes nothing: replay_log_take does. */
struct recorded_call *replay_log_find(struct replay_log *r, int64_t cell, bool tool,
    const char *model, const char *fallback, const char hash[HASH_TEXT_SIZE]);
void replay_log_take(struct replay_log *r, struct recorded_call *call);
/* Takes it back. */
void replay_log_untake(struct replay_log *r, struct recorded_call *call);
/* The same for child runs, by the hashes of both; `context` is "" for none. */
struct recorded_run *replay_log_find_run(struct replay_log *r, int64_t cell, const char *model,
    const char *fallback, const char *question, const char *context);
void replay_log_take_run(struct replay_log *r, struct recorded_run *run);
void replay_log_untake_run(struct replay_log *r, struct recorded_run *run);
/* How many calls of the cell were asked for in this life. */
int64_t replay_log_asked(const struct replay_log *r, int64_t cell);
/* The first call of the cell that nobody asked for; NULL: there is none. */
struct recorded_call *replay_log_unasked(struct replay_log *r, int64_t cell);
struct recorded_run *replay_log_unasked_run(struct replay_log *r, int64_t cell);
/* Milliseconds from the beginning of the cell to the last of those, as they were then. */
int64_t replay_log_unasked_ms(struct replay_log *r, int64_t cell);

/* Whether this model, if it is a recording, has to pass over the call: always, but for a run that is
 * only gone over `again`, which may have asked another one. */
bool replay_log_is_of(const struct recorded_call *call, struct lm *lm, bool again);
/* The use of a call that ended, as budget_recall takes it. */
struct lm_reply replay_log_spent(const struct recorded_call *call);

/* The whole value behind what is in `out`. */
int replay_log_read(
    struct replay_log *r, const struct recorded_value *value, struct buf *out, struct error *err);

#endif
