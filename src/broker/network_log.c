/* broker/network_log.c: the requests of a run's sandbox to the network, in the record.
 *
 * A request is recorded before it goes on, and again when it has ended. In a resumed run, cells
 * that are executed again make their requests again, which are recorded as such.
 */
#include "broker/network_log.h"

#include <stdio.h>
#include <stdlib.h>

#include "broker/ask.h"
#include "egress/egress.h"
#include "store/store.h"

enum { LOG_PATH_MAX = 2000 };

/* A request that has begun. */
struct network_log {
    struct network_log *next;
    uint64_t number;
    int64_t record;
};

static struct network_log *network_log_take(struct broker *b, uint64_t number)
{
    for (struct network_log **at = &b->requests; *at; at = &(*at)->next) {
        struct network_log *found = *at;
        if (found->number != number)
            continue;
        *at = found->next;
        return found;
    }
    return NULL;
}

static bool network_log_begin(struct broker *b, const struct egress_request *request,
    const droste_record_request *row, struct error *err)
{
    struct network_log *log = request->has_ended ? NULL : calloc(1, sizeof *log);
    int64_t record;
    if ((!log && !request->has_ended) ||
        store_request_begin(b->options.store, row, &record, err) < 0) {
        free(log);
        return false;
    }
    if (log) {
        *log = (struct network_log){ b->requests, request->number, record };
        b->requests = log;
    }
    return true;
}

bool network_log_add(struct broker *b, const struct egress_request *request)
{
    char path[LOG_PATH_MAX + 1];
    struct network_log *log = request->has_ended ? network_log_take(b, request->number) : NULL;
    const droste_record_request row = { .run = b->options.run,
        .turn = b->turn,
        .cell = b->cell,
        .method = request->method,
        .host = request->host,
        .port = request->port,
        .path = request->path ? path : NULL,
        .address = request->address,
        .refused = request->is_refused,
        .why = request->why,
        .status = request->status,
        .sent = (int64_t)request->sent,
        .received = (int64_t)request->received,
        .started_ms = request->started_ms,
        .seconds = request->seconds };
    snprintf(path, sizeof path, "%s", request->path ? request->path : "");
    struct error err = { 0 };
    bool recorded = true;
    if (b->options.store && log)
        recorded = store_request_end(b->options.store, log->record, &row, &err) == 0;
    else if (b->options.store && (!request->has_ended || request->is_refused))
        recorded = network_log_begin(b, request, &row, &err);
    broker_unrecorded(b, &err);
    free(log);
    return recorded;
}

void network_log_free(struct broker *b)
{
    while (b->requests)
        free(network_log_take(b, b->requests->number));
}
