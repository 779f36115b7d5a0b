/* rlm/candidates.h: several replies to one turn, each of which is executed on a fork of the
 * session; a selector keeps one.
 *
 * A candidate is an rlm_run with `of` set: it has a session, a broker and the state of a turn of
 * its own, and everything else is that of its run. Its turn ends in candidate_over.
 */
#ifndef DROSTE_RLM_CANDIDATES_H
#define DROSTE_RLM_CANDIDATES_H

#include "base/error.h"

struct cell_result;
struct rlm_run;

enum rlm_select { SELECT_FIRST, SELECT_VOTE, SELECT_MODEL, SELECT_COUNT };

/* ERROR_ARGUMENT for another name. */
int rlm_select_parse(const char *name, enum rlm_select *out, struct error *err);

/* The run itself, or that of a candidate. */
struct rlm_run *run_owner(struct rlm_run *r);
/* Begins the turn with several candidates, or with one where there are no more. */
int candidates_begin(struct rlm_run *r, struct error *err);
/* The code of a candidate has ended, or its reply had none. */
void candidate_over(struct rlm_run *c);
/* It has no reply, or cannot go on. */
void candidate_failed(struct rlm_run *c, const struct error *why);
/* Takes the result of a cell, with its code, for the selector and for events. */
void candidate_note_cell(struct rlm_run *c, struct cell_result *result);
/* Ends them with the run: their calls end, and their cells are lost. */
void candidates_end(struct rlm_run *r, const char *by);
/* Closes their sessions: outside of all callbacks. */
void candidates_free(struct rlm_run *r);

#endif
