/* serve/server.c: see server.h. */
#include "serve/server.h"

#include <stdio.h>
#include <string.h>

#include "base/os/random.h"
#include "cluster/registry.h"

/* relay.c reads the worker and its generation, nodes.c the node. */
int server_make_id(const struct server *s, char id[SERVE_ID_SIZE])
{
    char prefix[SERVE_ID_PLACE + 1];
    size_t len = s->nodes ? SERVE_ID_PLACE : 6;
    snprintf(prefix, sizeof prefix, "%02x%04x%04x", s->worker & 0xff,
        s->figures->generation & 0xffff, s->nodes ? registry_own(s->nodes) : 0);
    memcpy(id, prefix, len);
    return random_hex(id + len, SERVE_ID_SIZE - 1 - len, NULL);
}

void server_wake(struct server *s)
{
    s->woken = true;
    if (!s->closing)
        uv_timer_start(&s->http_timer, s->on_http_timer, 0, 0);
}

droste_record *server_record(struct server *s, droste_error *err)
{
    if (!s->record)
        (void)droste_record_open(s->d, &s->record, err);
    return s->record;
}
