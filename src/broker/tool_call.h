/* broker/tool_call.h: one call of a tool, as the tool and the broker see it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct ask;
struct frame_parts;
struct item;
struct json_object;
struct tool_call;

/* Answers with a JSON value; if it is invalid, the guest gets a RuntimeError. */
void tool_call_answer(struct tool_call *call, const char *json, size_t len);
/* The same with the value in the encoding of docs/values.md, which the guest takes instead; the
 * record has the JSON. */
void tool_call_answer_values(
    struct tool_call *call, const char *json, size_t len, const char *values, size_t values_len);
/* The arguments that JSON does not keep, valid until the tool's function returns; NULL: none. */
const char *tool_call_values(const struct tool_call *call, size_t *len);
/* Fails with the exception of this name: one of Python's, else ToolError. */
void tool_call_fail(struct tool_call *call, const char *type, const char *message);
/* Whether the call was cancelled. */
bool tool_call_is_cancelled(const struct tool_call *call);
/* Sets the function to call on cancellation; it may answer the call. Not called if the call is
 * already cancelled. */
typedef void tool_cancel_fn(void *arg, struct tool_call *call);
void tool_call_on_cancel(struct tool_call *call, tool_cancel_fn *fn, void *arg);

/* The function "tool" of guests (struct broker_function). */
int tool_take(
    struct ask *ask, struct json_object *head, struct frame_parts *rest, struct error *err);
int tool_find(struct item *item, const char *text, size_t len, struct error *err);
int tool_start(struct item *item, const char *text, size_t len, struct error *err);
/* The guest no longer waits; item->error says why. */
void tool_cancel(struct item *item);
