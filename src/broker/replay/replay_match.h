/* broker/replay/replay_match.h: answers a guest's prompts from the record, in a resumed run. */
#pragma once

#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"

struct broker;
struct budget_call;
struct item;
struct lm_request;

/* Finds the recorded call with this request and marks it as used: item->replay_call. */
int replay_match_find_call(struct item *item, const char *text, size_t len, struct error *err);
/* The same for a child run: item->replay_match_run. `context` is the hash of its context, or "". */
int replay_match_find_run(
    struct item *item, const char *question, size_t len, const char *context, struct error *err);
/* Marks what the item found as unused again. */
void replay_match_forget(struct item *item);

/* These three return 1 if the item has its answer or waits for it, and 0 if the caller must start
 * the item: a new one, or one that was open when the recording process died. For an open call,
 * `item->record` and `request->key` are those of the record. */
int replay_match_start(struct item *item, struct lm_request *request,
    const struct budget_call *call, struct error *err);
int replay_match_start_run(struct item *item, struct error *err);
/* Reads the answer that a tool gave; empty if it gave none. */
int replay_match_read_reply(const struct item *item, struct buf *out, struct error *err);
int replay_match_start_tool(struct item *item, struct error *err);
/* Fails where a replay may not start anything new; the run has then diverged. */
int replay_match_may_ask(struct item *item, struct error *err);

/* Ends the item's waiting, with its error or with the answer that came late when recorded. */
void replay_match_cancel(struct item *item);
/* Starts the items again that wait for other calls of their cell. */
void replay_match_start_waiting(struct broker *b);
/* The callback of the broker's timer: whether the calls that items wait for can still come. */
void replay_match_doubt(void *broker);
