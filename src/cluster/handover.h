/* cluster/handover.h: where the loop's thread and the others of the bus meet: a queue in each
 * direction under one lock, bounded in bytes, and the thread that writes to the socket.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "cluster/bus.h"
#include "cluster/nats_library.h"

struct call;

enum { HANDOVER_BYTES_MAX = 64 << 20 };

struct item {
    struct item *next;
    nats_message *m;
    struct subscription *subscription; /* of one that has come; NULL: the inbox */
    size_t bytes;
};

struct items {
    struct item *first, **end;
    size_t bytes;
};

struct handover {
    const struct nats_library *nats;
    pthread_mutex_t lock;
    pthread_cond_t in_taken, out_added, left;
    uv_async_t *async;
    nats_connection *connection;
    pthread_t sender;
    struct items in, out;
    unsigned users; /* callbacks of libnats that may still come */
    bool is_connected, was_lost, is_closed;
};

struct subscription {
    struct handover *x;
    struct bus *b;
    nats_subscription *handle;
    bus_message_fn *on_message; /* of bus_subscribe; NULL: forgotten, or of an operation */
    void *arg;
    struct call *call; /* of an operation: the one that receives now; NULL: none */
    char inbox[64];    /* of an operation: its subscription without the last word */
    char consumer[2 * BUS_NAME_MAX + 2]; /* of fetches: "STREAM.CONSUMER" */
    struct subscription *next;
};

struct handover *handover_new(const struct nats_library *nats);
void handover_free(struct handover *x);
/* Starts the sender, with all signals blocked. */
int handover_start(struct handover *x, struct error *err);
/* Waits until no thread of libnats can call back any more. False: one still may. */
bool handover_end(struct handover *x);

/* Queues a message to be sent, which it takes. False: there is no connection, or too much waits. */
bool handover_add_out(struct handover *x, nats_message *m);
/* All messages that have come, for the caller to free; whether there is a connection, and whether
 * one was lost since the last call. */
struct item *handover_take_in(struct handover *x, bool *is_connected, bool *was_lost);

/* Functions for libnats, with the exchange as their argument. */
nats_connection_fn handover_on_disconnected, handover_on_reconnected, handover_on_closed;
nats_error_fn handover_on_error;
/* NULL: to the inbox. *out is set if there is something to unsubscribe. */
nats_status handover_subscribe(struct handover *x, const char *subject, const char *group,
    struct subscription *subscription, nats_subscription **out);
