/* lm/reply.h: what all dialects share when reading replies.
 *
 * A dialect (lm/dialect.h) turns a server's JSON into a `model_answer`. The rest is common: the
 * meaning of statuses, what may be shown, and where the key must not appear. Some servers are
 * hostile: every text of theirs in an error is bounded, on one line, and without the key. What is
 * longer than an error's text is kept beside it, up to 64 KiB. Nothing here does I/O.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/json/json.h"
#include "lm/call.h"

/* The server's name for errors, and the key to mask in them. */
struct reply_where {
    const char *peer, *model;
    const char *key;          /* "": none */
    const char *key_variable; /* the variable in which a user sets it */
};

struct model_answer {
    struct buf text, refusal;
    struct buf message;                  /* the whole of one that its error has in part */
    char finish[32];                     /* in Droste's words: "stop", "length"… */
    int64_t input_tokens, output_tokens; /* -1: not reported */
    int64_t cached_tokens;
    bool choice;   /* there was an answer, possibly empty */
    bool finished; /* the server marked the text as complete */
    bool retry;    /* it failed in a way that may pass and is not charged */
};

void model_answer_reset(struct model_answer *a);
void model_answer_free(struct model_answer *a);
/* The reported usage; false if there was none. */
bool model_answer_usage(const struct model_answer *a, struct lm_usage *out);
/* 0 if there is an answer with a text, which may be empty. */
int model_answer_check(struct model_answer *a, const struct reply_where *where, struct error *err);

/* Checks a server's JSON for in-place access (base/json/span.h). */
int reply_check(const struct reply_where *where, const char *json, size_t len, struct error *err);
/* Checks and builds a server's JSON; NULL for JSON null. */
int reply_parse(const struct reply_where *where, const char *json, size_t len,
    struct json_object **out, struct error *err);
/* The error for a reply of an unexpected shape. */
int reply_shape_error(const struct reply_where *where, const char *what, struct error *err);
/* An error that replaced the answer after a successful status. */
int reply_broke_off(struct model_answer *a, const struct reply_where *where,
    struct json_object *root, const char *json, size_t len, struct error *err);
/* reply_parse, and reply_broke_off if the reply has an `error`. The caller frees *out always. */
int reply_read(struct model_answer *a, const struct reply_where *where, const char *json,
    size_t len, struct json_object **out, struct error *err);
/* Sets the error for an unsuccessful status; true if the request may be sent again. *retry_after
 * (seconds) is set if the body requests it. */
bool reply_status_error(struct model_answer *a, const struct reply_where *where, long status,
    const char *body, size_t len, double *retry_after, struct error *err);

/* A member of an object; NULL if absent, or if `o` is not an object. */
struct json_object *reply_get(struct json_object *o, const char *key);
/* Appends a string; ignores other values. */
void reply_append_text(struct buf *out, struct json_object *text);
/* Droste's word for a server's finish reason, from a table that a NULL ends; the server's own
 * word if it is not listed. */
struct finish_word {
    const char *theirs, *ours;
};
void reply_set_finish(struct model_answer *a, const struct finish_word *words, const char *theirs);

/* How many of the last bytes could begin the key. */
size_t reply_held_back(const char *text, size_t len, const char *key);

/* Says in the error, and in the whole message, after how many attempts it came. The reply refers to
 * `message` then. */
void reply_count_attempts(struct lm_reply *reply, struct buf *message);
