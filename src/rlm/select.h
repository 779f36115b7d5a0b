/* rlm/select.h: which of several replies to a turn is kept, by a selector or by a function of the
 * program. candidates.c implements it.
 */
#pragma once

#include <stddef.h>

#include "base/error.h"

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
