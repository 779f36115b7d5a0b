/* rlm/resume.h: resumes a run whose process has ended.
 *
 * The loop runs as usual, and takes recorded steps from the record: replies of the model, and calls
 * of cells that run again. At the end of the record, the run continues live. Cells of a sandbox
 * that died are not repeated, because nothing of them was left. The model's messages come from the
 * record, whatever a cell prints this time.
 */
#pragma once

#include "broker/budget.h"
#include "broker/replay/replay_log.h"
#include "session/session.h"

struct resume;

/* Takes over the run; with `again`, only reads one that has ended. */
int resume_open(
    struct store *store, const char *run, bool again, struct resume **out, struct error *err);
/* For the root: counts once in the budget what the record says the whole tree has spent. Open
 * calls count when they end. */
int resume_count(
    struct resume *r, struct budget *budget, struct account *account, struct error *err);
/* For a child: counts in its account; the budget and the accounts above already have it. */
void resume_count_child(struct resume *r, struct account *account);
/* Counts the loop's own steps; the time between processes does not count. */
double resume_seconds(struct resume *r);
/* Whether the cell's sandbox died, so that its requests will not be repeated. */
bool resume_is_gone_cell(const struct resume *r, int64_t cell);
/* NULL is allowed. */
void resume_free(struct resume *r);
struct replay_log *resume_recorded(struct resume *r);

/* Whether recorded steps are left to replay. */
bool resume_is_behind(struct resume *r);
bool resume_has_turn(const struct resume *r, int64_t turn);
/* Returns the fields of the last cell's submission if the run was killed before its end;
 * otherwise false. */
bool resume_submitted(struct resume *r, struct buf *out, struct error *err);

/* What the record says about the candidates of a turn. */
enum resume_turn {
    RESUME_TURN_NEW,   /* nothing, or that some have begun */
    RESUME_TURN_ALONE, /* it has none: the session could not be forked */
    RESUME_TURN_KEPT,  /* that `candidate` was kept; the others are passed over */
};
enum resume_turn resume_candidates(struct resume *r, int64_t turn, unsigned *candidate);
/* How many candidates of the turn got a reply. */
size_t resume_replies(struct resume *r, int64_t turn);
/* The model's call that chooses one, if it is recorded. */
struct recorded_call *resume_next_select(struct resume *r, int64_t turn);

/* Takes the loop's next recorded call; NULL: a new one. An error if the recorded call is of
 * another turn. */
int resume_next_call(struct resume *r, int64_t turn, unsigned candidate, struct recorded_call **out,
    struct error *err);
/* Returns the turn's next recorded cell; NULL: a new one. An error if its code differs. */
int resume_next_cell(struct resume *r, int64_t turn, unsigned candidate, const char *code,
    size_t len, struct recorded_cell **out, struct error *err);
/* Whether nothing of the cell's effects is left; then resume_cell_result is its result. */
bool resume_is_gone(const struct resume *r, const struct recorded_cell *cell);
int resume_cell_result(
    struct resume *r, const struct recorded_cell *cell, struct cell_result *out, struct error *err);
/* Whether the cell ended as before and repeated all its requests. */
int resume_check_cell(struct resume *r, const struct recorded_cell *cell,
    const struct cell_result *result, struct error *err);

/* Child runs that were active and were not requested again stay as they are. */
void resume_leave(struct resume *r, struct store *store);
/* Adds the number of replayed calls, and {"turn":…,"cell":…,"call":…} for each repeated one,
 * with a member `run` unless that is NULL, and `candidate` if the call is of one. */
void resume_tell(struct resume *r, const char *run, size_t *replayed, struct buf *repeated);
