/* session/submission.h: a submission: a JSON object with long texts stored separately.
 *
 * Encoding a long text as JSON, parsing and checking it takes much longer than copying it. The
 * guest therefore sends an outline, the object with JSON_HOLE in place of each long text, followed
 * by the unencoded texts. Complete JSON is assembled once, on demand.
 */
#pragma once

#include "base/error.h"
#include "base/json/json.h"
#include "wire/frame.h"

enum {
    SUBMISSION_TEXTS_MAX = 4096,  /* more long texts than these exceed a frame */
    SUBMISSION_VALUES_MAX = 4096, /* parts of typed values */
};

struct submission;

/* Takes a submission from the parts of a RESULT, whose head has the index of the outline
 * (`submitted`) and the number of texts after it (`texts`), and of the first part of the typed
 * values (`values`) and their number (`pieces`). With texts or values, takes ownership of the
 * frame's memory, which the parts are in. *out is NULL if nothing was submitted. ERROR_PROTOCOL if
 * malformed; ERROR_ARGUMENT if it is not strict JSON, not an object, or too large. */
int submission_read(struct json_object *head, const struct frame_parts *parts,
    const struct frame *frame, struct submission **out, struct error *err);
/* Adds an owner. Each owner frees it. */
struct submission *submission_hold(struct submission *s);
void submission_free(struct submission *s);

/* The complete JSON, with a NUL at the end; NULL without memory or submission. */
const char *submission_json(struct submission *s, size_t *len);

/* The outline, and the texts in order, UTF-8 without a NUL; NULL after the last one. */
const char *submission_outline(const struct submission *s, size_t *len);
const char *submission_text(const struct submission *s, size_t index, size_t *len);

/* The fields that JSON does not keep, as a container (wire/values.h); NULL without such fields. */
const char *submission_values(const struct submission *s, size_t *len);
