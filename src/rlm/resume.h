/* rlm/resume.h: a run whose process is gone, taken over in order to go on with it.
 *
 * The loop runs as ever; where the record has its next step, that is what happens: the model's
 * reply comes from there, a cell runs again and its calls are answered from there. Where the record
 * ends the run goes on live. Cells of a sandbox that died are not run again, as nothing of them was
 * left. What the model was told is taken from the record, whatever a cell prints this time.
 */
#ifndef DROSTE_RLM_RESUME_H
#define DROSTE_RLM_RESUME_H

#include "broker/budget.h"
#include "broker/replay/replay_log.h"
#include "session/session.h"

struct resume;

/* Makes the run this process's; with `again` one that has ended is only read. */
int resume_open(
    struct store *store, const char *run, bool again, struct resume **out, struct error *err);
/* Of the root: counts in the budget what the record says that the whole tree has spent, once. What
 * was under way is counted when it ends. */
int resume_count(
    struct resume *r, struct budget *budget, struct account *account, struct error *err);
/* Of a child: the budget has it, and the accounts above it. */
void resume_count_child(struct resume *r, struct account *account);
/* Of the loop's own steps; the time in which nobody ran it does not count. */
double resume_seconds(struct resume *r);
/* True if the cell's sandbox died: what it asked will not be asked again. */
bool resume_is_gone_cell(const struct resume *r, int64_t cell);
/* NULL is fine. */
void resume_free(struct resume *r);
struct replay_log *resume_recorded(struct resume *r);

/* True while a step of the record is still to be replayed. */
bool resume_is_behind(struct resume *r);
bool resume_has_turn(const struct resume *r, int64_t turn);
/* The fields that the last cell submitted, where the run was killed between that and its end:
 * false if it was not. */
bool resume_submitted(struct resume *r, struct buf *out, struct error *err);

/* The loop's next call, or NULL: it is a new one. It is taken. An error if the record has the call
 * of another turn. */
int resume_next_call(struct resume *r, int64_t turn, struct recorded_call **out, struct error *err);
/* The next cell of the turn, or NULL: it is a new one. An error if it is other code. */
int resume_next_cell(struct resume *r, int64_t turn, const char *code, size_t len,
    struct recorded_cell **out, struct error *err);
/* True if there is nothing left of what the cell did: then resume_cell_result is its result. */
bool resume_is_gone(const struct resume *r, const struct recorded_cell *cell);
int resume_cell_result(
    struct resume *r, const struct recorded_cell *cell, struct cell_result *out, struct error *err);
/* Whether the cell ended as it did before, and asked all that it asked before. */
int resume_check_cell(struct resume *r, const struct recorded_cell *cell,
    const struct cell_result *result, struct error *err);

/* Runs below that were under way, and that nobody asked for again: they stay as they are. */
void resume_leave(struct resume *r, struct store *store);
/* Adds how many calls were answered from the record, and {"turn":…,"cell":…,"call":…} for each that
 * was made again; with a member `run` if that is not NULL. */
void resume_tell(struct resume *r, const char *run, size_t *replayed, struct buf *repeated);

#endif
