/* lm/dialect.h: the protocols of model servers, as tables of functions.
 *
 * lm/chat.c transfers the bytes: it builds the URL, sends, reads the stream, retries. A dialect
 * knows their meaning: how to write a request, and how to read an event or a complete reply. It
 * does no I/O, so that it can be tested and fuzzed on bytes alone.
 */
#pragma once

#include "base/json/span.h"
#include "lm/client.h"
#include "lm/reply.h"
#include "lm/sampling.h"

struct dialect_style {
    bool stream;
    bool new_limit_name; /* "max_completion_tokens", which OpenAI's newer models require */
};

struct dialect {
    const char *headers[2]; /* in addition to the common ones; NULL: no more */
    enum sampling_names sampling;
    bool has_head;   /* a request begins with the head of a recorded line: see lm_call */
    bool reads_urls; /* of images (LM_PART_IMAGE_URL) */
    /* Appends the request to *out, which already contains the head, if any. Called once: each
     * attempt sends the same bytes. */
    int (*write)(const struct lm_call *call, const struct lm_request *request,
        const struct dialect_style *style, struct buf *out, struct error *err);
    /* Processes an event of a stream, or a complete reply. */
    int (*event)(struct model_answer *a, const struct reply_where *where, const char *json,
        size_t len, struct error *err);
    int (*whole)(struct model_answer *a, const struct reply_where *where, const char *json,
        size_t len, struct error *err);
};

extern const struct dialect dialect_openai;
/* The member `usage` of an answer in OpenAI's form; false: it does not have both counts. */
bool openai_read_usage(struct json_span usage, struct lm_usage *out);
extern const struct dialect dialect_anthropic;
extern const struct dialect dialect_gemini;

/* A message's parts, or its text as the only part, stored in *room. */
const struct lm_part *dialect_parts(
    const struct lm_message *message, struct lm_part *room, size_t *count);
/* The texts of all system messages, separated by empty lines, for dialects that keep them apart
 * from the other messages. */
bool dialect_is_system(const struct lm_message *message);
void dialect_append_system(struct buf *out, const struct lm_request *request);
/* The error for a part that a dialect does not support. */
int dialect_refuse_part(const struct lm_part *part, const char *takes, struct error *err);
