/* session/submission.h: what a cell submitted: a JSON object whose long texts came beside it.
 *
 * To write a long text as JSON, to read it again and to look at it once more in between takes much longer than to
 * carry it. So the guest sends an outline, the object with JSON_HOLE in the place of each long text, and these as they
 * are. Whoever wants text takes them so; whoever wants JSON has it put together, once.
 */
#ifndef DROSTE_SESSION_SUBMISSION_H
#define DROSTE_SESSION_SUBMISSION_H

#include "base/error.h"
#include "base/json/json.h"
#include "wire/frame.h"

enum {
    SUBMISSION_TEXTS_MAX = 4096
}; /* what is long for the guest, so often, is more than a frame */

struct submission;

/* Of the parts of a RESULT: its head says which is the outline (`submitted`), and how many behind it are texts
 * (`texts`). Where there are some, it takes the memory of the parts, `body`. *out is NULL where nothing was
 * submitted. ERROR_PROTOCOL: no honest guest sends this. ERROR_ARGUMENT: it is no object of strict JSON, or too
 * large. */
int submission_read(struct json_object *head, const struct frame_parts *parts, struct buf *body,
    struct submission **out, struct error *err);
void submission_free(struct submission *s);

/* All of it as JSON, with a NUL behind it; NULL without memory, and where there is none. */
const char *submission_json(struct submission *s, size_t *len);

/* The outline, and the texts in their order, UTF-8 without a NUL; NULL after the last. */
const char *submission_outline(const struct submission *s, size_t *len);
const char *submission_text(const struct submission *s, size_t index, size_t *len);

#endif
