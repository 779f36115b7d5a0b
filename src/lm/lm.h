/* lm/lm.h: language models behind one interface: a chat request in, text and usage out.
 *
 * `lm_open` picks the client from the model's name; above this layer nobody knows which one it
 * is. Everything is asynchronous on the caller's loop: a call ends with exactly one `done`, or with
 * none if it was cancelled first; either way its handle is gone then. Retries, rate limits,
 * deadlines and recording happen below this line, so that one call here is one answer that the
 * caller pays for. Inside `done` and `delta` everything here may be called, lm_close too.
 */
#ifndef DROSTE_LM_LM_H
#define DROSTE_LM_LM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/list.h"
#include "base/loop.h"

enum lm_part_kind {
    LM_PART_TEXT,     /* well-formed UTF-8 */
    LM_PART_IMAGE,    /* the bytes of an image file */
    LM_PART_DOCUMENT, /* the bytes of another file, such as a PDF */
};

struct lm_part {
    enum lm_part_kind kind;
    const char *media_type; /* "image/png", "application/pdf"; NULL for text */
    const char *data;
    size_t len;
};

struct lm_message {
    const char *role; /* "system", "user", "assistant" */
    const char *text; /* well-formed UTF-8, not NUL-terminated */
    size_t len;
    const struct lm_part *parts; /* of a message that is not one text: these, instead of it */
    size_t part_count;
};

struct lm_request {
    const char *model; /* overrides the opened model's name; NULL: that one */
    const struct lm_message *messages;
    size_t message_count;
    unsigned depth;       /* of the run that asks; kept in recordings */
    double timeout;       /* seconds for the call once it leaves the queue; 0: none */
    int64_t max_tokens;   /* 0: the provider's default */
    double temperature;   /* negative: that of the model's sampling */
    const char *sampling; /* the model's, not a caller's: members of JSON, each behind a comma */
    const char *key;      /* lm_key's, by which a server knows the call again; NULL: one is made */
};

struct lm_usage {
    int64_t input_tokens;
    int64_t output_tokens;
    bool estimated;        /* the provider did not say; counted as a token per 4 bytes */
    int64_t cached_tokens; /* of the input: read from the provider's own cache, and cheaper */
};

struct lm_reply {
    struct error error; /* code ERROR_NONE: the call succeeded */
    const char *text;   /* UTF-8, NUL-terminated; valid during the callback; "" on failure */
    size_t len;
    const char *finish;    /* "stop", "length"…; "" where the provider did not say */
    struct lm_usage usage; /* also of failed calls, as far as it is known */
    double cost;           /* dollars for that usage; negative: nobody knows the price */
    unsigned attempts;     /* requests that left for the provider: 1 + retries; 0: the answer was
                              known, or is that of the same call, and it cost nothing */
    double seconds;        /* from the end of queueing to the answer */
};

typedef void lm_done_fn(void *arg, const struct lm_reply *reply);
/* A piece of a streamed answer, as it arrives (never half a character); NULL where nobody
 * watches. What an attempt streamed is never taken back: it is not retried after that. */
typedef void lm_delta_fn(void *arg, const char *text, size_t len);

struct lm;
struct lm_call;

/* Keeps the limits of hosts for all models that are opened with it; they hold it, so that it may be
 * freed before them. NULL without memory. */
struct lm_queue;
struct lm_queue *lm_queue_new(struct loop *loop);
/* NULL is fine. */
void lm_queue_free(struct lm_queue *queue);

/* A model in the embedding program: answers each call by exactly one lm_answer, at once or later,
 * from the loop's thread; also a call that was cancelled or ran out of time meanwhile, whose answer
 * is dropped. `request` and `call` are valid until then, or until lm_close, which ends the duty. */
typedef void lm_callback_fn(void *arg, const struct lm_request *request, struct lm_call *call);

/* One provider's server and the key that goes there, and nowhere else. */
struct lm_account {
    const char *base_url; /* NULL or "": the provider's own */
    const char *api_key;  /* NULL or "": none is sent, which only a server of one's own allows */
};

struct lm_options {
    const char *model; /* "gpt-5-mini", "PROVIDER/MODEL", "exec:PROGRAM"… */
    struct lm_account openai, anthropic, gemini, azure, openrouter, portkey, vllm;
    const char *azure_version; /* of Azure's older interface; NULL: the newer one */
    const char *cache;         /* give answers from this file, and keep them there; NULL: do not */
    const struct list *sampling; /* NAME=VALUE, as sampling.h has them; NULL: none */
    bool deduplicate;       /* identical calls at the same time are one, also without a cache */
    const char *record;     /* append every finished call to this file; NULL: do not */
    const char *ca_file;    /* certificates to trust instead of the system's; NULL: the system's */
    const char *prices;     /* a table of prices of the user's; NULL: the built-in one alone */
    struct lm_queue *queue; /* shared with other models; NULL: one of its own */
    unsigned concurrency;   /* calls in flight at once to one host; 0: 64 */
    unsigned model_concurrency; /* and to one model; 0: no limit of its own */
    unsigned retries;           /* attempts after the first */
    bool stream;                /* ask for streamed answers */
    double connect_timeout;     /* seconds; 0: 10 */
    double first_timeout;       /* seconds to the first byte of an answer; 0: no own limit */
    double stall_timeout;       /* seconds between bytes of an answer; 0: 60 */
    lm_callback_fn *callback;   /* for the models "callback" and "callback:NAME" */
    void *callback_arg;
};

/* Checks the options and opens what they name; connects to nothing yet. Errors: ERROR_CONFIG (no
 * model, no key where one is needed, a bad URL, an unreadable ca_file), ERROR_NOT_FOUND,
 * ERROR_ARGUMENT (a recording to replay), ERROR_PROTOCOL (one to append to). */
int lm_open(
    struct loop *loop, const struct lm_options *options, struct lm **out, struct error *err);
/* Cancels what is in flight. NULL is fine. */
void lm_close(struct lm *lm);

/* The model's name as records show it: "openai/gpt-5-mini", "replay:demo.jsonl". */
const char *lm_name(const struct lm *lm);
/* Of a call: the model as it was opened ("callback:mine"), and the one that is asked for, which is the same
 * without the first word where the call names none. */
const char *lm_call_opened(const struct lm_call *call);
const char *lm_call_model(const struct lm_call *call);
/* Where its answers come from, in words: "https://api.openai.com/v1, a key is set". */
void lm_describe(const struct lm *lm, struct buf *out);
/* Of each provider what has to be set, for people: "openai OPENAI_API_KEY, …" (provider.c). */
void lm_list_needs(struct buf *out);

/* Starts a call (or queues it); the request's memory is the caller's again on return. `done` is
 * never called from within lm_start. ERROR_ARGUMENT: no messages, an unknown role, or text that is
 * not UTF-8. */
int lm_start(struct lm *lm, const struct lm_request *request, lm_done_fn *done, lm_delta_fn *delta,
    void *arg, struct lm_call **out, struct error *err);
/* A key for one call, so that whoever records it can make the same call again. */
enum { LM_KEY_SIZE = 33 };
int lm_key(char out[LM_KEY_SIZE], struct error *err);
/* True of a recording that is replayed. */
bool lm_is_recording(const struct lm *lm);
/* The call was answered in an earlier life of the run: a recording that is replayed passes over the
 * line with that answer, as it did then. Nothing happens with other models. */
int lm_skip_recorded(struct lm *lm, const struct lm_request *request, struct error *err);
/* Stops a call: no `done` comes after, and no record is kept. What it may have cost is filled in if
 * `spent` is not NULL (usage, cost, attempts, seconds; the texts are empty): nothing while it was
 * queued, an estimate once it was sent. */
void lm_cancel(struct lm_call *call, struct lm_reply *spent);
/* Dollars for this usage of the model (NULL: the opened one's own); negative: nobody knows. */
double lm_cost(const struct lm *lm, const char *model, const struct lm_usage *usage);

/* Ends a callback model's call: the text, or an error (err->code not ERROR_NONE). `usage` may be
 * NULL: it is estimated then. */
void lm_answer(struct lm_call *call, const char *text, size_t len, const struct lm_usage *usage,
    const struct error *error);

#endif
