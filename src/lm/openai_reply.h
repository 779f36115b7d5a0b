/* lm/openai_reply.h: what an OpenAI-compatible server's bytes mean.
 *
 * Nothing here waits or sends. Servers differ, and some are hostile: every text of theirs that goes
 * into an error is bounded, on one line, and without our key.
 */
#ifndef DROSTE_LM_OPENAI_REPLY_H
#define DROSTE_LM_OPENAI_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

/* Whom errors speak of, and the key that they must not say. */
struct openai_where {
    const char *peer, *model;
    const char *key; /* "": none */
};

struct openai_answer {
    struct buf text, refusal;
    char finish[32];
    int64_t input_tokens, output_tokens; /* -1: the server did not say */
    bool choice;                         /* a choice was there */
    bool finished;                       /* the server said that the text is whole */
};

void openai_answer_reset(struct openai_answer *a);
void openai_answer_free(struct openai_answer *a);

/* Adds an event of a stream ("[DONE]" or a chunk) or takes a whole reply. */
int openai_answer_event(struct openai_answer *a, const struct openai_where *where, const char *json,
    size_t len, struct error *err);
int openai_answer_whole(struct openai_answer *a, const struct openai_where *where, const char *json,
    size_t len, struct error *err);
/* 0 if it is an answer: a choice with a text, which may be empty. */
int openai_answer_check(
    const struct openai_answer *a, const struct openai_where *where, struct error *err);

/* Sets the error for a status that is none of success; true if the request may be sent again. */
bool openai_status_error(
    const struct openai_where *where, long status, const char *body, size_t len, struct error *err);

/* Overwrites each occurrence of the key with asterisks. */
void openai_mask(char *text, size_t len, const char *key);
/* How many of the last bytes could be the beginning of the key. */
size_t openai_held_back(const char *text, size_t len, const char *key);

#endif
