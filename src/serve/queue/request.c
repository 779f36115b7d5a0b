/* serve/queue/request.c: what requests for the queue have in common. */
#include "serve/queue/queue.h"

#include <string.h>

struct run_queue *queue_of(struct request *r)
{
    struct run_queue *q = r->server->queue;
    if (!q)
        request_refuse(r, 501, "unsupported", "this server is in no cluster (--join)");
    else if (!bus_is_connected(q->bus) || !queue_is_ready(q))
        request_refuse(r, 503, "unavailable", "the queue of the cluster cannot be reached");
    return r->reply ? NULL : q;
}

const char *queue_key_of(const struct request *r)
{
    const char *id = r->account->key.id;
    return id[0] ? id : "all";
}

bool queue_id_is_ok(const char *id)
{
    size_t n = strlen(id);
    return n > 0 && n <= QUEUE_ID_MAX &&
           strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == n;
}

void queue_refuse_bus(struct request *r, const struct bus_answer *a)
{
    request_refuse(r, 503, "unavailable", "the queue of the cluster: %s", a->why);
}
