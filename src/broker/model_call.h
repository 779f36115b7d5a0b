/* broker/model_call.h: llm_query, and model calls that replace child runs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "store/store.h"

struct ask;
struct frame_parts;
struct item;
struct json_object;
struct lm_reply;

/* The function "llm_query" of guests (struct broker_function). */
int model_take(
    struct ask *ask, struct json_object *head, struct frame_parts *rest, struct error *err);
int model_find(struct item *item, const char *text, size_t len, struct error *err);
int model_start(struct item *item, const char *text, size_t len, struct error *err);
void model_cancel(struct item *item, const struct error *why);
/* Asks for an answer to a text, or to the list of messages that it contains. */
int model_ask(struct item *item, const char *text, size_t len, bool is_messages, struct error *err);

/* Returns the part of a reply that is recorded; it points into the reply. */
droste_record_call model_call_end(const struct lm_reply *reply);
