/* lm/call.h: what a call of a model consists of: request, reply, and the options of a model.
 *
 * The files of this layer share these; lm.h has the functions for the layers above.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/hold.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/rate.h"

enum lm_part_kind {
    LM_PART_TEXT,      /* well-formed UTF-8 */
    LM_PART_IMAGE,     /* the bytes of an image file */
    LM_PART_DOCUMENT,  /* the bytes of another kind of file, such as a PDF */
    LM_PART_IMAGE_URL, /* the address of an image, which the provider reads (lm_reads_urls) */
};

struct lm_part {
    enum lm_part_kind kind;
    const char *media_type; /* "image/png", "application/pdf"; NULL for texts and addresses */
    const char *data;
    size_t len;
};

struct lm_message {
    const char *role; /* "system", "user", "assistant" */
    const char *text; /* well-formed UTF-8, not NUL-terminated */
    size_t len;
    const struct lm_part *parts; /* of a message with several parts: these replace `text` */
    size_t part_count;
};

/* The pause before another attempt of a call. */
struct lm_retry {
    const struct error *why;    /* of the attempt that failed */
    const char *message;        /* as in lm_reply */
    double pause;               /* seconds until the next one */
    unsigned attempt, attempts; /* the number of the next one, and of the last that is allowed */
};
/* May do what `delta` may. */
typedef void lm_retry_fn(void *arg, const struct lm_retry *retry);

struct lm_request {
    const char *model; /* overrides the opened model; NULL: no */
    const struct lm_message *messages;
    size_t message_count;
    unsigned depth;          /* of the asking run; kept in recordings */
    unsigned sample;         /* two requests with different ones get answers of their own */
    double timeout;          /* seconds after leaving the queue; 0: none */
    int64_t max_tokens;      /* 0: the provider's default */
    double temperature;      /* negative: from the model's sampling parameters */
    const char *sampling;    /* set by lm.c, not by callers: members of JSON, each after a comma */
    const char *key;         /* an idempotency key from lm_key; NULL: generated */
    const char *traceparent; /* of the run, of whose trace a recorded call is a span; or NULL */
    bool is_recorded;        /* otherwise it is only a part of the span that traceparent names */
    struct hold *hold;       /* each attempt passes it; NULL: none */
    lm_retry_fn *retry;      /* is told of each pause, with the `arg` of lm_start; may be NULL */
};

struct lm_usage {
    int64_t input_tokens;
    int64_t output_tokens;
    bool estimated;        /* the provider did not report it; a token for 4 bytes */
    int64_t cached_tokens; /* of the input: read from the provider's cache, at a lower price */
};

struct lm_reply {
    struct error error;  /* code ERROR_NONE: the call succeeded */
    const char *message; /* all that the provider said; NULL: `error` has it all */
    const char *text;    /* UTF-8, NUL-terminated; valid during the callback; "" on failure */
    size_t len;
    const char *finish;    /* "stop", "length"…; "" if the provider did not say */
    struct lm_usage usage; /* also of failed calls, as far as known */
    double cost;           /* dollars for that usage; negative: unknown price */
    /* requests sent to the provider: 1 + retries; 0: the answer came from the cache or an
     * identical call and was free */
    unsigned attempts;
    double seconds; /* from the end of queueing to the answer */
};

static inline const char *lm_reply_message(const struct lm_reply *r)
{
    return r->message ? r->message : r->error.text;
}

typedef void lm_done_fn(void *arg, const struct lm_reply *reply);
/* A piece of a streamed answer, ending between characters; NULL if not needed. After the first
 * piece, the call is not retried, because streamed text cannot be taken back. */
typedef void lm_delta_fn(void *arg, const char *text, size_t len);

struct lm;
struct lm_call;
struct lm_queue;

/* A model in the embedding program. It answers each call by exactly one lm_answer, at once or
 * later, from the loop's thread, even if the call has ended meanwhile; that answer is dropped.
 * `request` and `call` are valid until then, or until lm_close, which ends the obligation. */
typedef void lm_callback_fn(void *arg, const struct lm_request *request, struct lm_call *call);

/* A provider's server, and the key, which is sent nowhere else. */
struct lm_account {
    const char *base_url; /* NULL or "": the provider's default */
    const char *api_key;  /* NULL or "": none is sent, which only custom servers accept */
};

struct lm_options {
    const char *model; /* "gpt-5-mini", "PROVIDER/MODEL", "exec:PROGRAM"… */
    struct lm_account openai, anthropic, gemini, azure, openrouter, portkey, vllm;
    const char *azure_version;   /* of Azure's older interface; NULL: the newer one */
    const char *cache;           /* file with cached answers; NULL: none */
    const struct list *sampling; /* NAME=VALUE, see sampling.h; NULL: none */
    bool deduplicate;            /* merges identical concurrent calls, even without a cache */
    const char *record;          /* file to append every finished call to; NULL: none */
    const char *ca_file;         /* certificates to trust; NULL: the system's */
    const char *prices;          /* the user's table of prices; NULL: only the built-in one */
    struct lm_queue *queue;      /* shared with other models; NULL: a queue of its own */
    unsigned concurrency;        /* calls in flight to one host; 0: 64 */
    unsigned model_concurrency;  /* and to one model; 0: no separate limit */
    struct rate_amount rate;     /* of one model in a minute; 0: no limit */
    unsigned retries;            /* attempts after the first */
    bool stream;                 /* request streamed answers */
    double connect_timeout;      /* seconds; 0: 10 */
    double first_timeout;        /* seconds to the first byte of an answer; 0: no separate limit */
    double stall_timeout;        /* seconds between bytes of an answer; 0: 60 */
    lm_callback_fn *callback;    /* for the models "callback" and "callback:NAME" */
    void *callback_arg;
};

/* What is taken out of a model's limits per minute that other processes share. `ask` answers with
 * lm_queue_grant, later. */
struct lm_share_ask {
    uint64_t ticket;
    const char *model;                     /* with its host */
    struct rate_amount limit, least, most; /* most 0: nothing is asked for */
    const struct rate_slice *changes;      /* of slices that were taken before */
    size_t change_count;
};
struct lm_share {
    void (*ask)(void *arg, const struct lm_share_ask *ask);
    void *arg;
};

/* Shares hosts' limits among all models that are opened with it. They hold references, so it may
 * be freed before them. NULL without memory. */
struct lm_queue *lm_queue_new(struct loop *loop);
/* NULL is fine. */
void lm_queue_free(struct lm_queue *queue);
/* From now on, limits per minute are shared. */
void lm_queue_share(struct lm_queue *queue, const struct lm_share *share);
/* The answer to an ask; NULL: there is no slice, ask again after so long. */
void lm_queue_grant(
    struct lm_queue *queue, uint64_t ticket, const struct rate_slice *granted, int64_t wait_ms);

/* Generates an idempotency key, which a record can keep to repeat the same call. */
enum { LM_KEY_SIZE = 33 };
int lm_key(char out[LM_KEY_SIZE], struct error *err);
/* Lists what each provider needs, for users: "openai OPENAI_API_KEY, …" (provider.c). */
void lm_list_needs(struct buf *out);
