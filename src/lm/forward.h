/* lm/forward.h: requests in OpenAI's form that are passed to a model's provider as they are.
 *
 * For a server that stands between clients and providers. What the request asks for (tools, images,
 * sampling) is not looked at; only the model's name is replaced by the provider's. Nothing is
 * retried: the client does that. The provider's key does not appear in what comes back.
 */
#pragma once

#include "lm/call.h"

struct forwarder;
struct forward;

/* Prepares for the model that the options name; does not connect yet. ERROR_UNSUPPORTED: its
 * provider has another protocol, or it is not a provider's. Otherwise as lm_open. */
int forwarder_open(
    struct loop *loop, const struct lm_options *options, struct forwarder **out, struct error *err);
/* All requests must have ended. */
void forwarder_close(struct forwarder *forwarder);

/* Whether the price of its model is known. */
bool forwarder_is_priced(const struct forwarder *forwarder);

struct forward_end {
    struct error error; /* ERROR_NONE: an answer came, whatever its status */
    long status;
    const char *body; /* of an answer in one piece: JSON after success, otherwise any text */
    size_t len;
    double retry_after; /* seconds; 0: not requested */
    struct lm_usage usage;
    double cost; /* dollars; negative: unknown price */
};

struct forward_handler {
    void (*begin)(void *arg); /* a stream of events begins */
    void (*event)(void *arg, const char *data, size_t len);
    /* Last. May come from within forward_pause(f, false), never from forward_start. */
    void (*end)(void *arg, const struct forward_end *end);
};

/* Sends a request for chat completions, a JSON object, which is part of the span `traceparent`, or
 * of none (NULL). If it asks for a stream, it also asks for
 * the usage; the event that has it is left out if the client did not ask. ERROR_ARGUMENT: it is no
 * JSON object. */
int forward_start(struct forwarder *forwarder, const char *body, size_t len,
    const char *traceparent, const struct forward_handler *handler, void *arg, struct forward **out,
    struct error *err);
/* Stops reading the answer, and continues. */
void forward_pause(struct forward *f, bool on);
/* Ends it without `end`. *usage and *cost receive what it may have cost. */
void forward_cancel(struct forward *f, struct lm_usage *usage, double *cost);
