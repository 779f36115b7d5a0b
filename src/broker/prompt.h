/* broker/prompt.h: parses a guest's prompt for a model: a text, or a list of messages as JSON.
 *
 * A message is {"role", "content"}, its content a text or a list of parts: {"type": "text",
 * "text"}, or {"type": "image" or "document", "media_type", "data"} with base64 data. The model
 * clients check the rest (lm/request.h): media types and what a provider accepts.
 */
#pragma once

#include "base/error.h"
#include "base/json/json.h"
#include "lm/lm.h"

struct prompt {
    struct lm_message *messages;
    size_t count;
    struct lm_message single;
    struct json_object *list; /* memory of the texts */
    struct lm_part *parts;    /* parts of all messages, consecutively */
    size_t part_count;
};

/* Checks a prompt: not empty, UTF-8. ERROR_ARGUMENT. */
int prompt_check(const char *text, size_t len, struct error *err);
/* Limits for all lists of messages of one call. Each value costs the host some 180 bytes and
 * 0.25 µs. */
extern const struct json_limits prompt_limits;
/* The text must outlive the prompt. The values of a list count against `limits`. ERROR_ARGUMENT. */
int prompt_open(struct prompt *out, const char *text, size_t len, bool is_messages,
    struct json_limits *limits, struct error *err);
void prompt_close(struct prompt *prompt);
