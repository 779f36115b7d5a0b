/* rlm/candidates.h: several replies to one turn, each of which is executed on a fork of the
 * session; a selector keeps one.
 *
 * A candidate is an rlm_run with `of` set: it has a session, a broker and the state of a turn of
 * its own, and everything else is that of its run. Its turn ends in candidate_over.
 */
#ifndef DROSTE_RLM_CANDIDATES_H
#define DROSTE_RLM_CANDIDATES_H

#include <stddef.h>

#include "base/error.h"

struct cell_result;
struct rlm_run;

enum { SELECT_NAME_SIZE = 41 };
enum rlm_select { SELECT_FIRST, SELECT_VOTE, SELECT_MODEL, SELECT_PROGRAM, SELECT_COUNT };

/* What a function of the program chooses from: candidates with a reply. Valid until it has chosen,
 * or the run has ended. */
struct rlm_candidate {
    unsigned number; /* from 1 */
    const char *reply;
    size_t reply_len;
    const char *output; /* what the model would see of its cells */
    size_t output_len;
    const char *answer; /* JSON; NULL: it submits none */
    int failed;         /* its last cell ended with an error */
};
struct rlm_choice;
/* Calls rlm_choose once, at once or later, from the loop's thread. */
typedef void rlm_choose_fn(
    void *arg, const struct rlm_candidate *all, size_t count, struct rlm_choice *choice);
/* The name of the selector, as rlm_options have it. */
const char *rlm_choice_name(const struct rlm_choice *choice);
/* Keeps the candidate of this number, or ends the run with an error (`why`; else NULL). Does
 * nothing if the run has ended. Frees the choice. */
void rlm_choose(struct rlm_choice *choice, unsigned number, const struct error *why);

/* "callback" and "callback:NAME" are SELECT_PROGRAM. ERROR_ARGUMENT for another name. */
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
