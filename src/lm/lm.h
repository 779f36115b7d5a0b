/* lm/lm.h: language models behind one interface: a chat request in, text and usage out.
 *
 * `lm_open` chooses the client from the model's name; higher layers do not know it. Everything is
 * asynchronous on the caller's loop. A call ends with exactly one `done`, or with none if it was
 * cancelled first; its handle is then invalid. Retries, rate limits, deadlines and recording are
 * internal, so that one call is one answer that the caller pays for. `done` and `delta` may call
 * everything here, including lm_close.
 */
#pragma once

#include "lm/call.h"

/* Checks the options and opens the files; does not connect yet. ERROR_CONFIG (no model, a
 * missing key, a bad URL, an unreadable ca_file), ERROR_NOT_FOUND, ERROR_ARGUMENT (a recording
 * to replay), ERROR_PROTOCOL (a recording to append to). */
int lm_open(
    struct loop *loop, const struct lm_options *options, struct lm **out, struct error *err);
/* Cancels all calls. NULL is fine. */
void lm_close(struct lm *lm);

/* The model's name for records: "openai/gpt-5-mini", "replay:demo.jsonl". */
const char *lm_name(const struct lm *lm);
/* Whether its provider reads images by their addresses. Programs and recordings get addresses as
 * they are. */
bool lm_reads_urls(const struct lm *lm);
/* The model that a call was opened with ("callback:mine"), and the one that it asks for: the
 * same without the prefix if the call names none. */
const char *lm_call_opened(const struct lm_call *call);
const char *lm_call_model(const struct lm_call *call);
/* Describes where answers come from: "https://api.openai.com/v1, a key is set". */
void lm_describe(const struct lm *lm, struct buf *out);

/* Starts or queues a call; the request's memory may be freed on return. Never calls `done`
 * itself. ERROR_ARGUMENT: no messages, an unknown role, or text that is not UTF-8. */
int lm_start(struct lm *lm, const struct lm_request *request, lm_done_fn *done, lm_delta_fn *delta,
    void *arg, struct lm_call **out, struct error *err);
/* True for a name that is a provider's model, not a recording, a program or a function. */
bool lm_is_of_provider(const char *model);
/* True for a replayed recording. */
bool lm_is_recording(const struct lm *lm);
/* Marks a call as answered in an earlier process of the run: a replayed recording skips the line
 * with that answer. Other models ignore it. */
int lm_skip_recorded(struct lm *lm, const struct lm_request *request, struct error *err);
/* Stops a call without `done` or a record. *spent (may be NULL) receives what it may have cost
 * (usage, cost, attempts, seconds; empty texts): nothing while queued, an estimate once sent. */
void lm_cancel(struct lm_call *call, struct lm_reply *spent);
/* Dollars for this usage of the model (NULL: the opened one); negative: unknown. */
double lm_cost(const struct lm *lm, const char *model, const struct lm_usage *usage);

/* Ends a callback model's call with a text, or an error (err->code is not ERROR_NONE). A NULL
 * `usage` is estimated. */
void lm_answer(struct lm_call *call, const char *text, size_t len, const struct lm_usage *usage,
    const struct error *error);
