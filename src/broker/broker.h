/* broker/broker.h: answers the calls of guests.
 *
 * A call of a guest has one or more prompts. Each becomes a model call (llm_query) or a child run
 * (rlm_query), subject to the budget and the record, and the answers return together, in order. If
 * no child run may start, a plain model call replaces it. A prompt that fails is an error of its
 * item; the budget refuses whole calls before anything is spent. A call that takes longer than
 * `answer_timeout` returns the available answers, and errors for the other prompts. A tool call has
 * one item.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "broker/options.h"

struct broker;
struct session;
struct session_call;

int broker_open(const struct broker_options *options, struct broker **out, struct error *err);
/* Cancels all calls; sessions get no answers. NULL is allowed. */
void broker_close(struct broker *b);

/* Cancels all calls of a session with this error. */
void broker_give_up(struct broker *b, struct session *s, const struct error *why);

/* Cancels the session's open calls, including child runs, when a cell has reached its deadline
 * with this message (may be NULL). The interrupt has already made the cell's main thread drop
 * its calls. */
void broker_deadline(struct broker *b, struct session *s, const char *message);

/* Stops recording; open calls stay open in the record. */
void broker_abandon(struct broker *b);

/* Sets the guest's position for the record; the previous cell is over. */
void broker_place(struct broker *b, int64_t turn, unsigned candidate, int64_t cell);

/* The callbacks of a session whose `arg` is a broker. */
void broker_call(struct broker *b, struct session *s, const struct session_call *call);
void broker_drop(struct broker *b, struct session *s, uint64_t id);
