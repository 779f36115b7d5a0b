/* broker/prompt.h: what a guest asks a model, as messages: a text, or a list of messages as JSON.
 *
 * A message is {"role", "content"}, its content a text or a list of parts: {"type": "text", "text"},
 * and {"type": "image" or "document", "media_type", "data"} with the bytes as base64. Models' clients
 * check the rest (lm/request.h): media types, what a provider takes.
 */
#ifndef DROSTE_BROKER_PROMPT_H
#define DROSTE_BROKER_PROMPT_H

#include "base/error.h"
#include "base/json/json.h"
#include "lm/lm.h"

struct prompt {
    struct lm_message *messages;
    size_t count;
    struct lm_message single;
    struct json_object *list; /* what the texts point into */
    struct lm_part *parts;    /* of all messages, one behind the other */
    size_t part_count;
};

/* Whether it can be a prompt: UTF-8, and not empty. ERROR_ARGUMENT. */
int prompt_check(const char *text, size_t len, struct error *err);
/* For the lists of messages of one call together. Each value costs the host some 180 bytes and 0.25 µs. */
extern const struct json_limits prompt_limits;
/* The text must stay while the prompt is in use. The values of a list are taken from what `limits` still allows.
 * ERROR_ARGUMENT. */
int prompt_open(struct prompt *out, const char *text, size_t len, bool is_messages,
    struct json_limits *limits, struct error *err);
void prompt_close(struct prompt *prompt);

#endif
