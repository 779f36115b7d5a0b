/* broker/child_run.h: rlm_query. */
#pragma once

#include <stddef.h>

#include "base/error.h"

struct ask;
struct frame_parts;
struct item;
struct json_object;

/* The function "rlm_query" of guests (struct broker_function). */
int child_take(
    struct ask *ask, struct json_object *head, struct frame_parts *rest, struct error *err);
int child_find(struct item *item, const char *text, size_t len, struct error *err);
/* Bytes that the record needs for the request with a prompt of `len` bytes. */
size_t child_record_bytes(const struct item *item, size_t len);
int child_start(struct item *item, const char *prompt, size_t len, struct error *err);
void child_cancel(struct item *item, const struct error *why);
