/* lm/client.h: what lm.c and the clients below it know of each other.
 *
 * A client makes attempts; lm.c decides when, how often and for how long. lm.c calls `attempt`,
 * and the client reports its end by one lm_attempt_done, at once or later, unless `abort` came
 * first. Nothing outside src/lm includes this.
 */
#ifndef DROSTE_LM_CLIENT_H
#define DROSTE_LM_CLIENT_H

#include <sys/queue.h>

#include "base/buf.h"
#include "base/hash.h"
#include "lm/limits.h"
#include "lm/lm.h"

enum call_state {
    CALL_QUEUED,
    CALL_ATTEMPT,      /* the client has it */
    CALL_BACKOFF,      /* waits for the next attempt */
    CALL_OWED,         /* over, but a callback model still owes its lm_answer */
    CALL_FOLLOWS,      /* waits for the answer of another one that is the same */
    CALL_SHARED_VALUE, /* has an answer, which it did not need to ask for */
};

struct lm_call {
    TAILQ_ENTRY(lm_call) link;
    TAILQ_ENTRY(lm_call) lane_link; /* lm/queue.h's, with the next three */
    struct lane *lane;              /* NULL: it is in none */
    bool running;                   /* it began, and has not left its lane */
    void (*begin)(struct lm_call *call);
    struct lm *lm;
    void *client;
    void *own; /* the client's state of this call, from `prepare` to `release` */
    enum call_state state;
    struct lm_request
        request; /* its messages are gone after `prepare`, unless that replaced them */
    char *model;
    /* {"model":…,"messages":[…] without the end: the head of an OpenAI request's body and the middle
     * of a recorded line; a client may append after head_len. Empty where nobody needs it. */
    struct buf body;
    size_t head_len, messages_at;       /* the messages end with the head */
    char messages_hash[HASH_TEXT_SIZE]; /* record_key's; "": nobody asked yet */
    char cache_key[HASH_TEXT_SIZE];     /* "": there is no cache */
    struct lm_call *leader;             /* of a call that follows; of one that leads, itself */
    struct shared_answer *given;
    size_t input_bytes;
    unsigned attempts;
    uint64_t started_ns;
    struct timer *deadline, *backoff, *give;
    lm_done_fn *done;
    lm_delta_fn *delta;
    void *arg;
    bool *ended; /* told when the call ends during a delta; NULL else */
};
TAILQ_HEAD(lm_call_list, lm_call);
TAILQ_HEAD(lane_list, lm_call);

/* How an attempt ended. */
struct lm_outcome {
    struct error error;
    const char *text; /* valid during lm_attempt_done */
    size_t len;
    const char *finish;
    struct lm_usage usage;
    bool retry;         /* another attempt may succeed and cannot be charged twice */
    double retry_after; /* seconds that the server asked for; 0: it did not */
};

struct lm_client_ops {
    bool needs_body;   /* call->body is made before `prepare` */
    bool owes_answers; /* the embedding program keeps the call's handle until its lm_answer */
    int (*open)(struct loop *loop, const struct lm_options *options, const char *model,
        void **client, struct error *err);
    void (*close)(void *client);
    /* Whose concurrency and limits the calls share; may be NULL: those of this model alone. */
    const char *(*host)(const void *client);
    void (*describe)(const void *client, struct buf *out); /* see lm_describe */
    /* Makes call->own, and takes from the request what the attempts will need; may be NULL. */
    int (*prepare)(struct lm_call *call, const struct lm_request *request, struct error *err);
    /* Frees call->own (NULL is fine); no attempt runs then. May be NULL. */
    void (*release)(struct lm_call *call);
    void (*attempt)(struct lm_call *call);
    /* Stops the attempt that runs; returns what it may have cost. */
    struct lm_usage (*abort)(struct lm_call *call);
};

extern const struct lm_client_ops lm_chat;
extern const struct lm_client_ops lm_program;
extern const struct lm_client_ops lm_replay;
extern const struct lm_client_ops lm_callback;

/* Ends the running attempt. Runs the caller's code, after which neither the call nor the client may
 * be touched. */
void lm_attempt_done(struct lm_call *call, const struct lm_outcome *outcome);
/* Passes a piece of the answer on; false if the caller ended the call meanwhile, and then neither
 * the call nor the client may be touched. */
bool lm_attempt_delta(struct lm_call *call, const char *text, size_t len);
/* The server's answer to the running attempt has these headers. */
void lm_attempt_headers(struct lm_call *call, limits_header_fn *header, void *arg);
/* What a call costs of which the provider said nothing: a token per 4 bytes. */
struct lm_usage lm_usage_estimate(const struct lm_call *call, size_t output_bytes);

#endif
