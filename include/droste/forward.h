/* droste/forward.h: requests in OpenAI's form that go to a model's provider as they are, for
 * servers between clients and providers. */
#ifndef DROSTE_FORWARD_H
#define DROSTE_FORWARD_H

#include <stddef.h>
#include <stdint.h>

#include "droste/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct droste_forward droste_forward;

/* How one ended. Valid during the call. */
typedef struct droste_forward_end {
    const droste_error *error; /* NULL: an answer came, whatever its status */
    int status;                /* of the provider's answer; 0: there was none */
    const char *body; /* of an answer in one piece: JSON after success, otherwise any text; NULL:
                         there was a stream, or no answer */
    size_t len;
    double retry_after; /* seconds for which the provider asks; 0: it does not */
    int64_t input_tokens, output_tokens;
    int estimated; /* the provider did not report the tokens */
    double cost;   /* US dollars; negative: unknown */
} droste_forward_end;

/* A request for chat completions. `begin` and `event` are of a stream: it begins, and one event's
 * data. `end` comes last, never from droste_forward_start. They must not wait. */
typedef struct droste_forward_request {
    const char *model; /* as in the setting of that name */
    const char *body; /* a JSON object, copied. `model` is replaced by the provider's name. A stream
                          has its usage asked for; the event with it is left out unless the body
                          asks, too. */
    size_t len;
    int priced; /* refuses a model whose price is unknown: ERROR_BUDGET_COST */
    void (*begin)(void *arg);
    void (*event)(void *arg, const char *data, size_t len);
    void (*end)(void *arg, const droste_forward_end *end);
    void *arg;
    const char *traceparent; /* the field of that name, of W3C Trace Context; NULL: none */
} droste_forward_request;

/* Sends a request with the keys of the settings, which appear nowhere in the answer. Nothing is
 * retried, recorded or counted in a budget. ERROR_UNSUPPORTED: the model is not a provider's, or
 * its provider has another protocol. */
DROSTE_API int droste_forward_start(
    droste *d, const droste_forward_request *request, droste_forward **out, droste_error *err);
/* Stops reading the answer while a client does not, and continues. */
DROSTE_API void droste_forward_pause(droste_forward *f, int on);
/* Ends it. Calls `end` with ERROR_CANCELLED, and what it may have cost, before it returns. */
DROSTE_API void droste_forward_cancel(droste_forward *f);

#ifdef __cplusplus
}
#endif

#endif
