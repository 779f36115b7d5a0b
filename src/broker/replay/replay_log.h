/* broker/replay/replay_log.h: the record of a resumed run and its child runs, and which of its
 * steps were requested again.
 *
 * A resumed run is replayed: its cells run again, and recorded requests are answered from the
 * record. A call is matched by its cell and the hash of its request; of several matches the first
 * unused one, so that calls of a batch or of threads may come in any order. If the call's own cell
 * has no match, one of another cell is used: a thread that outlives its cell may be faster or
 * slower than before. A fork of a fork_map (broker/fork_map.h) only gets the answers of the fork
 * that had its place, so it does not matter in which order forks ask. Child runs are matched in
 * the same way, by the hashes of their question and context.
 *
 * Values are read from the record on demand. Nothing here writes.
 */
#pragma once

#include "base/hash.h"
#include "lm/lm.h"
#include "store/store.h"

struct recorded_value {
    char hash[HASH_TEXT_SIZE]; /* "": none */
    size_t len;
};

struct recorded_turn {
    int64_t turn;
    unsigned kept; /* candidate, from 1; 0: none, or none yet */
    bool before,
        lost; /* its session died: continued with that from before the turn, or with none */
};

struct recorded_call {
    unsigned candidate;             /* of the turn, from 1; 0: it has none */
    bool select;                    /* the loop's, to choose a candidate */
    int64_t id, turn, cell, number; /* `number` counts the cell's calls from 1 */
    size_t run;                     /* for a child run: its index, as in replay_log_run_at */
    bool root, summary;             /* a call of the loop; one that compacts the conversation */
    bool tool;
    bool ended;         /* otherwise open when the process died, and repeated */
    bool asked;         /* in this life */
    bool late;          /* the guest got no answer: dropped, or its cell was over */
    char *model, *fork; /* fork NULL: of the cell itself */
    char key[LM_KEY_SIZE];
    struct recorded_value request, reply, reply_values;
    char *finish;
    struct error error;
    struct lm_usage usage;
    double cost;
    unsigned attempts, depth;
    double seconds;
    int64_t started_ms, ended_ms;
};

struct recorded_cell {
    unsigned candidate;
    bool skipped;             /* nothing of its effects is left, as its candidate died */
    int64_t id, turn, number; /* `number` counts the turn's cells from 1 */
    bool ended, died;         /* `died`: the sandbox died in this cell … */
    bool undone;              /* … or was rolled back to the state before it */
    bool begun;               /* in this life */
    char *status, *killed;
    struct recorded_value code, out, err, submit, error;
    double seconds;
    int64_t started_ms, ended_ms;
    int64_t numbers; /* number of its calls */
    size_t calls;    /* unused calls and child runs of it */
};

/* A child run. `own`: requested by a cell of this run; otherwise a descendant of such a child. */
struct recorded_run {
    char id[STORE_RUN_ID_SIZE];
    bool own;
    size_t top; /* index of the own child that it is or descends from (replay_log_run_at) */
    int64_t seq, cell;
    unsigned depth;
    bool begun; /* it has called its model */
    bool ended; /* otherwise open when the process died, and continued */
    bool asked; /* in this life; so with `on`: it goes on in it */
    bool on;
    bool late; /* the cell's deadline passed before it ended */
    char *model, *fork;
    struct recorded_value question, answer;
    char context[HASH_TEXT_SIZE]; /* "": it has none */
    struct error error;
    int64_t started_ms, ended_ms;
};

struct replay_log;

/* Reads all steps of the run. */
int replay_log_load(
    struct store *store, const char *run, struct replay_log **out, struct error *err);
void replay_log_free(struct replay_log *r);

int64_t replay_log_turns(const struct replay_log *r);
/* Bytes of all values of the run and its child runs; counts duplicates twice. */
size_t replay_log_bytes(const struct replay_log *r);
/* Of them, bytes of rich results. */
size_t replay_log_result_bytes(const struct replay_log *r);
/* Returns the steps in order of their start; NULL after the last. */
struct recorded_call *replay_log_call_at(struct replay_log *r, size_t index);
struct recorded_cell *replay_log_cell_at(struct replay_log *r, size_t index);
/* Child runs, parents before children, and their calls. */
struct recorded_run *replay_log_run_at(struct replay_log *r, size_t index);
struct recorded_call *replay_log_below_at(struct replay_log *r, size_t index);
/* Returns NULL for a cell that is not recorded. */
struct recorded_cell *replay_log_cell_find(struct replay_log *r, int64_t id);

/* The next call of the loop, or the next cell; NULL: not recorded. */
struct recorded_call *replay_log_next_root(struct replay_log *r);
struct recorded_cell *replay_log_next_cell(struct replay_log *r);
/* The same for one candidate of a turn; 0: turns without candidates. */
struct recorded_call *replay_log_next_root_of(struct replay_log *r, unsigned candidate);
struct recorded_cell *replay_log_next_cell_of(struct replay_log *r, unsigned candidate);
/* NULL: the turn is not recorded. */
const struct recorded_turn *replay_log_turn(const struct replay_log *r, int64_t turn);

/* Where a request of a guest comes from. */
struct replay_place {
    int64_t cell, turn;
    unsigned candidate; /* of the turn; 0: none */
    const char *fork;   /* fork_map_path; NULL: the cell itself */
};

/* Finds the guest's call with this request; NULL: none. `model` is the name that the guest gave,
 * or NULL, and then `fallback` answers; or it is a tool's name. Does not mark it as used: see
 * replay_log_take. */
struct recorded_call *replay_log_find(struct replay_log *r, const struct replay_place *at,
    bool tool, const char *model, const char *fallback, const char hash[HASH_TEXT_SIZE]);
void replay_log_take(struct replay_log *r, struct recorded_call *call);
/* Marks it as unused again. */
void replay_log_untake(struct replay_log *r, struct recorded_call *call);
/* The same for child runs, by both hashes; `context` is "" for none. */
struct recorded_run *replay_log_find_run(struct replay_log *r, const struct replay_place *at,
    const char *model, const char *fallback, const char *question, const char *context);
void replay_log_take_run(struct replay_log *r, struct recorded_run *run);
void replay_log_untake_run(struct replay_log *r, struct recorded_run *run);
/* Counts the cell's calls that were requested again. */
int64_t replay_log_asked(const struct replay_log *r, int64_t cell);
/* Returns the cell's first unused call; NULL: none. */
struct recorded_call *replay_log_unasked(struct replay_log *r, int64_t cell);
struct recorded_run *replay_log_unasked_run(struct replay_log *r, int64_t cell);
/* Returns the milliseconds from the cell's start to the last of those, as recorded. */
int64_t replay_log_unasked_ms(struct replay_log *r, int64_t cell);

/* Whether a recorded model must skip this call: always, except when a run is only gone over
 * `again`, which may have used another model. */
bool replay_log_is_of(const struct recorded_call *call, struct lm *lm, bool again);
/* Returns a completed call's usage for budget_recall. */
struct lm_reply replay_log_spent(const struct recorded_call *call);

/* Reads the complete value of a step into `out`. */
int replay_log_read(
    struct replay_log *r, const struct recorded_value *value, struct buf *out, struct error *err);
