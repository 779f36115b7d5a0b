/* lm/reply.h: what the dialects of model servers have in common when their bytes are read.
 *
 * A dialect (lm/dialect.h) turns a server's JSON into a `model_answer`; the rest of an answer's life
 * is the same for all: which statuses mean what, which words may be shown, where the key must not
 * appear. Servers differ, and some are hostile: every text of theirs that goes into an error is
 * bounded, on one line, and without our key. Nothing here waits or sends.
 */
#ifndef DROSTE_LM_REPLY_H
#define DROSTE_LM_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/json/json.h"
#include "lm/lm.h"

/* Whom errors speak of, and the key that they must not say. */
struct reply_where {
    const char *peer, *model;
    const char *key;          /* "": none */
    const char *key_variable; /* where a user sets it */
};

struct model_answer {
    struct buf text, refusal;
    char finish[32];                     /* in the house's words: "stop", "length"… */
    int64_t input_tokens, output_tokens; /* -1: the server did not say */
    int64_t cached_tokens;
    bool choice;   /* an answer was there, maybe an empty one */
    bool finished; /* the server said that the text is whole */
    bool retry;    /* it failed in a way that may pass and costs nothing */
};

void model_answer_reset(struct model_answer *a);
void model_answer_free(struct model_answer *a);
/* The usage that the server gave; false if it gave none. */
bool model_answer_usage(const struct model_answer *a, struct lm_usage *out);
/* 0 if it is an answer: one with a text, which may be empty. */
int model_answer_check(
    const struct model_answer *a, const struct reply_where *where, struct error *err);

/* Checks a server's JSON, for who looks into it where it stands (base/json/span.h). */
int reply_check(const struct reply_where *where, const char *json, size_t len, struct error *err);
/* Checks and builds a server's JSON; it may be NULL for JSON null. */
int reply_parse(const struct reply_where *where, const char *json, size_t len,
    struct json_object **out, struct error *err);
/* A reply that does not have the shape of one. */
int reply_shape_error(const struct reply_where *where, const char *what, struct error *err);
/* An error that came in the place of an answer, after a status of success. */
int reply_broke_off(struct model_answer *a, const struct reply_where *where,
    struct json_object *root, const char *json, size_t len, struct error *err);
/* Sets the error for a status that is none of success; true if the request may be sent again.
 * *retry_after (seconds) is set where the body says so. */
bool reply_status_error(const struct reply_where *where, long status, const char *body, size_t len,
    double *retry_after, struct error *err);

/* A member of an object; NULL where absent, and where `o` is no object. */
struct json_object *reply_get(struct json_object *o, const char *key);
/* Appends a string's bytes; anything else is nothing. */
void reply_append_text(struct buf *out, struct json_object *text);
/* Why the text ended: the word of the house that stands for the server's own in the table (which a
 * NULL ends), else the server's own. */
struct finish_word {
    const char *theirs, *ours;
};
void reply_set_finish(struct model_answer *a, const struct finish_word *words, const char *theirs);

/* How many of the last bytes could be the beginning of the key. */
size_t reply_held_back(const char *text, size_t len, const char *key);

#endif
