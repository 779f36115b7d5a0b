/* session/answer.h: determines the answer in a submission or a model's text, and checks its type.
 */
#pragma once

#include "base/error.h"
#include "base/json/schema.h"

/* Extracts the answer from a submission, a JSON object: the whole object if the type describes
 * an object by its properties, otherwise the member `answer` or `output` if it is the only one,
 * otherwise the whole object. Returns JSON on one line, to be freed; NULL without memory. `type`
 * may be NULL. */
char *answer_of(const char *submit, size_t len, const struct schema *type);

/* Checks a submission against the type. ERROR_ARGUMENT has the path and the expected type. */
int answer_check(const struct schema *type, const char *submit, size_t len, struct error *err);

/* Converts an answer in words to JSON (to be freed). Without a type, the words become a string.
 * With a type, tries the words as JSON, with or without a code fence, and as a string; takes the
 * first that has the type, or fails with ERROR_ARGUMENT. */
int answer_from_words(
    const struct schema *type, const char *text, size_t len, char **out, struct error *err);
