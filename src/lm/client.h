/* lm/client.h: the interface between lm.c and its clients.
 *
 * A client makes attempts; lm.c decides when, how often and for how long. lm.c calls `attempt`, and
 * the client reports its end by one lm_attempt_done, at once or later, unless `abort` came first.
 * Only src/lm includes this file.
 */
#pragma once

#include <sys/queue.h>

#include "base/buf.h"
#include "base/hash.h"
#include "lm/allowance.h"
#include "lm/call.h"
#include "lm/limits.h"

enum call_state {
    CALL_QUEUED,
    CALL_ATTEMPT,      /* the client is working on it */
    CALL_BACKOFF,      /* waiting for the next attempt */
    CALL_HELD,         /* waiting for its hold to let the attempt begin */
    CALL_OWED,         /* over, but a callback model still owes its lm_answer */
    CALL_FOLLOWS,      /* waiting for the answer of an identical call */
    CALL_SHARED_VALUE, /* answered without an attempt */
};

struct lm_call {
    TAILQ_ENTRY(lm_call) link;
    TAILQ_ENTRY(lm_call) lane_link; /* lm/queue.h's, as are the next six */
    struct lane *lane;              /* NULL: not queued */
    bool running;                   /* it has begun and has not left its lane */
    bool is_late;                   /* it has begun, and waits for an allowance */
    void (*begin)(struct lm_call *call);
    struct allowance_part reserved, sent; /* for the next request, and by the last one */
    struct lm *lm;
    void *client;
    void *own; /* the client's state for this call, from `prepare` to `release` */
    enum call_state state;
    struct lm_request
        request; /* its messages are gone after `prepare`, unless that replaced them */
    char *model;
    /* {"model":…,"messages":[…] without the end: the head of an OpenAI request's body, and the
     * middle of a recorded line; a client may append after head_len. Empty if not needed. */
    struct buf body;
    size_t head_len, messages_at;       /* the head ends with the messages */
    char messages_hash[HASH_TEXT_SIZE]; /* for record_key; "": not computed yet */
    char cache_key[HASH_TEXT_SIZE];     /* "": no cache */
    /* the call that a follower waits for; a leader's is itself */
    struct lm_call *leader;
    struct shared_answer *shared_answer;
    size_t input_bytes;
    unsigned attempts;
    uint64_t started_ns;
    struct timer *deadline, *backoff, *give;
    struct hold_wait held;
    lm_done_fn *done;
    lm_delta_fn *delta;
    void *arg;
    bool *ended; /* set when the call ends during a delta; NULL otherwise */
};
TAILQ_HEAD(lm_call_list, lm_call);
TAILQ_HEAD(lane_list, lm_call);

/* The outcome of an attempt. */
struct lm_outcome {
    struct error error;
    const char *message; /* as in lm_reply; it and `text` are valid during lm_attempt_done */
    const char *text;
    size_t len;
    const char *finish;
    struct lm_usage usage;
    bool retry;         /* another attempt may succeed and is not charged twice */
    double retry_after; /* seconds that the server requested; 0: none */
};

struct lm_client_ops {
    bool needs_body;   /* call->body is written before `prepare` */
    bool owes_answers; /* the embedding program keeps the call's handle until lm_answer */
    int (*open)(struct loop *loop, const struct lm_options *options, const char *model,
        void **client, struct error *err);
    void (*close)(void *client);
    /* The host whose concurrency and limits the calls share; may be NULL: the model has its own. */
    const char *(*host)(const void *client);
    void (*describe)(const void *client, struct buf *out); /* see lm_describe */
    /* Creates call->own and takes what the attempts need from the request; may be NULL. */
    int (*prepare)(struct lm_call *call, const struct lm_request *request, struct error *err);
    /* Frees call->own (NULL is fine) when no attempt is running. May be NULL. */
    void (*release)(struct lm_call *call);
    void (*attempt)(struct lm_call *call);
    /* Stops the running attempt; returns what it may have cost. */
    struct lm_usage (*abort)(struct lm_call *call);
};

extern const struct lm_client_ops lm_chat;
extern const struct lm_client_ops lm_program;
extern const struct lm_client_ops lm_replay;
extern const struct lm_client_ops lm_callback;

/* Ends the running attempt. This runs the caller's code; afterwards, the call and the client
 * must not be touched. */
void lm_attempt_done(struct lm_call *call, const struct lm_outcome *outcome);
/* Passes on a piece of the answer. Returns false if the caller ended the call meanwhile; the
 * call and the client must then not be touched. */
bool lm_attempt_delta(struct lm_call *call, const char *text, size_t len);
/* Reports the headers of the server's response to the running attempt. */
void lm_attempt_headers(struct lm_call *call, limits_header_fn *header, void *arg);
/* Estimates the usage that a provider did not report: a token for 4 bytes. */
struct lm_usage lm_usage_estimate(const struct lm_call *call, size_t output_bytes);
