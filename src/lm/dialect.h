/* lm/dialect.h: the ways in which model servers speak, as tables of functions.
 *
 * lm/chat.c moves the bytes: it builds the URL, sends, reads the stream, retries. A dialect knows
 * what stands in them: how a request is written, and what an event or a whole reply means. It
 * neither waits nor sends, so that all of it can be tested (and fuzzed) on bytes alone.
 */
#ifndef DROSTE_LM_DIALECT_H
#define DROSTE_LM_DIALECT_H

#include "lm/client.h"
#include "lm/reply.h"
#include "lm/sampling.h"

struct dialect_style {
    bool stream;
    bool new_limit_name; /* "max_completion_tokens", which OpenAI's newer models insist on */
};

struct dialect {
    const char *headers[2]; /* beside those of all; NULL: no more */
    enum sampling_names sampling;
    bool has_head; /* a request begins with the head of a recorded line: see lm_call */
    /* Appends the request to *out, which holds its head already where there is one. Called once:
     * each attempt sends the same bytes. */
    int (*write)(const struct lm_call *call, const struct lm_request *request,
        const struct dialect_style *style, struct buf *out, struct error *err);
    /* Adds an event of a stream, or takes a whole reply. */
    int (*event)(struct model_answer *a, const struct reply_where *where, const char *json,
        size_t len, struct error *err);
    int (*whole)(struct model_answer *a, const struct reply_where *where, const char *json,
        size_t len, struct error *err);
};

extern const struct dialect dialect_openai;
extern const struct dialect dialect_anthropic;
extern const struct dialect dialect_gemini;

/* A message as parts: its own, or its text as the only one, which is put into *room. */
const struct lm_part *dialect_parts(
    const struct lm_message *message, struct lm_part *room, size_t *count);
/* The texts of all system messages with an empty line between them. The others have that role
 * nowhere: these dialects keep it apart. */
bool dialect_is_system(const struct lm_message *message);
void dialect_append_system(struct buf *out, const struct lm_request *request);
/* A part that a dialect cannot carry. */
int dialect_refuse_part(const struct lm_part *part, const char *takes, struct error *err);

#endif
