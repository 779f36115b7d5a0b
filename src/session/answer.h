/* session/answer.h: what the answer is, of what a cell submitted or a model said, and whether it has
 * the type that was asked for.
 */
#ifndef DROSTE_SESSION_ANSWER_H
#define DROSTE_SESSION_ANSWER_H

#include "base/error.h"
#include "base/json/schema.h"

/* The answer in a submission, which is a JSON object: all of it where the type describes an object by
 * its properties; else what stands alone under `answer` or `output`, or all of it. As JSON on one
 * line, to be freed; NULL without memory. `type` may be NULL. */
char *answer_of(const char *submit, size_t len, const struct schema *type);

/* Whether a submission has the type: ERROR_ARGUMENT says where not, and what is expected there. */
int answer_check(const struct schema *type, const char *submit, size_t len, struct error *err);

/* An answer in words, as JSON (free): the words themselves without a type; else the JSON that they are,
 * in a fence or not, or they themselves as a string, whichever has the type. ERROR_ARGUMENT. */
int answer_from_words(
    const struct schema *type, const char *text, size_t len, char **out, struct error *err);

#endif
