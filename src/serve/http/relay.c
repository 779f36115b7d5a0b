/* serve/http/relay.c: see relay.h.
 *
 * Back-pressure goes both ways: a client is not read from while the worker does not read, and the
 * worker is not read from while the client does not read. Answers whose length is known and small
 * are sent with it; others are streamed.
 */
#include "serve/http/relay.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "serve/http/nodes.h"
#include "serve/http/request.h"
#include "serve/http/upgrade.h"
#include "serve/http/upstream.h"

enum { RELAY_WHOLE_MAX = 1 << 20 };
/* What waits for a slow client here: the worker that answers keeps SERVE_UNREAD_MAX beside it. */
enum { RELAY_UNREAD_MAX = 64 << 10 };

struct relay {
    struct request *r;      /* NULL: it has ended */
    struct upstream *u;     /* NULL: it has ended */
    bool is_chunked;        /* the request */
    bool is_streamed;       /* the answer */
    struct upgrade upgrade; /* of an answer with 101 */
    struct buf head, body;
    char type[128];
    void (*lost)(struct request *r); /* NULL: it was a worker */
};

/* ---- which worker ---- */

/* Ids begin with the worker in two digits and its generation in four. */
static bool relay_parse_id(const char *id, unsigned *worker, unsigned *generation)
{
    char digits[7];
    if (strlen(id) != SERVE_ID_SIZE - 1 || strspn(id, "0123456789abcdef") < 6)
        return false;
    memcpy(digits, id, 6);
    digits[6] = '\0';
    unsigned long n = strtoul(digits, NULL, 16);
    *worker = (unsigned)(n >> 16);
    *generation = (unsigned)(n & 0xffff);
    return true;
}

unsigned relay_place(const struct server *s)
{
    unsigned best = s->worker;
    for (unsigned i = 0; i < s->table->workers; i++)
        if (s->table->worker[i].pid > 0 && s->table->worker[i].sandboxes + (best == s->worker) * 2 <
                                               s->table->worker[best].sandboxes)
            best = i;
    return best;
}

unsigned relay_place_by(const struct server *s, const char *word)
{
    return hash_word(HASH_WORD, word) % s->table->workers;
}

/* A repeated request must come to the worker that keeps the first one's answer. */
static unsigned relay_place_key(const struct request *r, const char *key)
{
    char word[KEY_ID_SIZE + 256];
    snprintf(word, sizeof word, "%s%s", r->account->key.id, key);
    return relay_place_by(r->server, word);
}

static unsigned relay_worker_of_id(struct request *r)
{
    struct server *s = r->server;
    unsigned worker, generation;
    bool of_run = r->route && r->route->of_run;
    if (of_run) /* by any worker with that index: the record has it */
        return relay_parse_id(r->id, &worker, &generation) ? worker % s->table->workers : s->worker;
    if (!relay_parse_id(r->id, &worker, &generation) || worker >= s->table->workers)
        return s->worker;
    const struct table_worker *w = &s->table->worker[worker];
    bool is_gone = generation > 0 && (w->pid == 0 || generation != (w->generation & 0xffff));
    if (is_gone && (r->routes->identify || r->routes->knows_lost))
        return s->worker; /* says in its protocol's way that there is no such sandbox */
    if (is_gone)
        request_refuse(r, 410, "worker_lost",
            "the worker process that had this sandbox died, and the sandbox with it");
    return worker;
}

/* The worker where the circle of those that are asked began. */
static unsigned relay_first(struct request *r)
{
    const char *text = r->client->is_relay ? request_header_of(r, RELAY_FIRST) : NULL;
    unsigned long n = text ? strtoul(text, NULL, 10) : r->server->worker;
    return n < r->server->table->workers ? (unsigned)n : r->server->worker;
}

/* The next one of the circle, which ends before the worker where it began; this one at its end. */
static unsigned relay_next(struct request *r)
{
    const struct table *table = r->server->table;
    unsigned own = r->server->worker, first = relay_first(r);
    for (unsigned i = (own + 1) % table->workers; i != first && i != own;
         i = (i + 1) % table->workers)
        if (table->worker[i].pid > 0)
            return i;
    return own;
}

unsigned relay_worker_of(struct request *r)
{
    struct server *s = r->server;
    if (s->table->workers == 1)
        return s->worker;
    if (r->routes && r->routes->is_elsewhere && r->routes->is_elsewhere(r))
        return relay_next(r);
    if (r->id[0])
        return relay_worker_of_id(r);
    if (r->routes && r->routes->place && !r->client->is_relay)
        return r->routes->place(r);
    if (!r->route || !r->route->creates || r->client->is_relay)
        return s->worker;
    const char *key = request_header_of(r, "Idempotency-Key");
    return key ? relay_place_key(r, key) : relay_place(s);
}

/* ---- the request ---- */

static bool relay_is_one_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

static enum MHD_Result relay_on_field(void *arg, enum MHD_ValueKind kind, const char *name,
    size_t name_len, const char *value, size_t len)
{
    static const char *const own[] = { "Connection", "Keep-Alive", "Transfer-Encoding",
        "Content-Length", "Expect", "Upgrade", "TE", "Trailer", "X-Request-Id", "traceparent",
        RELAY_TICKET, RELAY_ACCOUNT, RELAY_CLIENT, RELAY_FIRST, RELAY_TEMPLATE };
    struct buf *head = arg;
    if (relay_is_one_of(name, own, array_length(own)))
        return MHD_YES;
    buf_printf(head, "%s: ", name);
    buf_append(head, value ? value : "", len);
    buf_puts(head, "\r\n");
    return MHD_YES;
}

/* The head without the fields about the body, and without its end. */
static void relay_write_head(struct request *r, struct buf *head)
{
    buf_printf(head, "%s %s HTTP/1.1\r\n", r->method, r->target);
    if (!request_header_of(r, MHD_HTTP_HEADER_HOST))
        buf_puts(head, "Host: localhost\r\n");
    MHD_get_connection_values_n(r->connection, MHD_HEADER_KIND, relay_on_field, head);
    buf_printf(
        head, "X-Request-Id: %s\r\n" RELAY_CLIENT ": %s\r\n", r->request_id, r->client->address);
    char trace[TRACEPARENT_SIZE];
    if (trace_field(&r->trace.span, trace))
        buf_printf(head, "traceparent: %s\r\n", trace);
    if (r->account)
        buf_printf(head, RELAY_ACCOUNT ": %s\r\n", r->account->key.id);
}

static void relay_on_piece(struct request *r, const char *data, size_t len)
{
    struct relay *relay = r->state;
    char size[24];
    if (!relay->u)
        return;
    if (relay->is_chunked) {
        snprintf(size, sizeof size, "%zx\r\n", len);
        upstream_send(relay->u, size, strlen(size));
    }
    upstream_send(relay->u, data, len);
    if (relay->is_chunked)
        upstream_send(relay->u, "\r\n", 2);
    if (upstream_unsent(relay->u) > UPSTREAM_UNSENT_MAX)
        request_suspend(r);
}

static void relay_on_complete(struct request *r)
{
    struct relay *relay = r->state;
    if (relay->u && relay->is_chunked)
        upstream_send(relay->u, "0\r\n\r\n", 5);
}

static void relay_on_sent(void *arg)
{
    struct relay *relay = arg;
    if (relay->r && relay->r->upgrade)
        upgrade_pause(&relay->upgrade, false);
    else if (relay->r && !relay->r->complete)
        request_resume(relay->r);
}

/* ---- the answer ---- */

static void relay_on_answer_field(void *arg, const char *name, const char *value)
{
    static const char *const ours[] = { "Date", "X-Request-Id", "Cache-Control",
        "X-Content-Type-Options", "Keep-Alive" };
    struct relay *relay = arg;
    if (relay_is_one_of(name, ours, array_length(ours)))
        return;
    if (strcasecmp(name, RELAY_ABOUT) == 0 && relay->r)
        snprintf(relay->r->about, sizeof relay->r->about, "%s", value);
    else if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_TYPE) == 0)
        snprintf(relay->type, sizeof relay->type, "%s", value);
    else
        buf_printf(&relay->head, "%s%c%s%c", name, 0, value, 0);
}

/* The fields of the answer, which are kept as name NUL value NUL. */
static void relay_put_fields(struct relay *relay)
{
    const char *p = relay->head.data, *end = p + relay->head.len;
    while (p && p < end) {
        const char *value = p + strlen(p) + 1;
        request_header(relay->r, p, value);
        p = value + strlen(value) + 1;
    }
}

static void relay_on_drained(struct request *r)
{
    struct relay *relay = r->state;
    if (relay->u)
        upstream_pause(relay->u, false);
}

/* ---- an answer with 101 ---- */

static void relay_on_client_bytes(void *arg, const char *data, size_t len)
{
    struct relay *relay = arg;
    if (!relay->u)
        return;
    upstream_send(relay->u, data, len);
    if (upstream_unsent(relay->u) > UPSTREAM_UNSENT_MAX)
        upgrade_pause(&relay->upgrade, true);
}

static void relay_on_client_sent(void *arg)
{
    struct relay *relay = arg;
    if (relay->u)
        upstream_pause(relay->u, false);
}

static void relay_on_client_closed(void *arg)
{
    struct relay *relay = arg;
    if (relay->u)
        upstream_drop(steal(&relay->u));
}

static void relay_upgrade(struct relay *relay)
{
    relay->upgrade = (struct upgrade){ .arg = relay,
        .on_bytes = relay_on_client_bytes,
        .on_sent = relay_on_client_sent,
        .on_closed = relay_on_client_closed };
    upgrade_begin(relay->r, &relay->upgrade);
    relay_put_fields(relay);
}

static void relay_on_head(void *arg)
{
    struct relay *relay = arg;
    struct upstream *u = relay->u;
    if (relay->r && u->status == 101) {
        relay_upgrade(relay);
        return;
    }
    bool is_small = u->has_length && u->left <= RELAY_WHOLE_MAX;
    if (!relay->r || is_small)
        return;
    relay->is_streamed = true;
    relay->r->on_drained = relay_on_drained;
    request_stream_as(
        relay->r, u->status, relay->type[0] ? relay->type : "application/octet-stream");
    relay_put_fields(relay);
}

static void relay_on_data(void *arg, const char *data, size_t len)
{
    struct relay *relay = arg;
    if (!relay->r)
        return;
    if (relay->r->upgrade) {
        upgrade_send(&relay->upgrade, data, len);
        if (upgrade_unsent(&relay->upgrade) > RELAY_UNREAD_MAX)
            upstream_pause(relay->u, true);
        return;
    }
    if (!relay->is_streamed) {
        buf_append(&relay->body, data, len);
        return;
    }
    request_push(relay->r, data, len);
    if (request_unread(relay->r) > RELAY_UNREAD_MAX)
        upstream_pause(relay->u, true);
}

static void relay_refuse_lost(struct request *r)
{
    const struct relay *relay = r->state;
    if (relay->lost)
        relay->lost(r);
    else if (r->server->draining)
        request_refuse(r, 503, "draining", "the server is stopping; use another one");
    else if (r->route && r->route->of_run)
        request_refuse(r, 502, "worker_lost",
            "the worker process of this run died while it answered; resume the run");
    else
        request_refuse(r, 502, "worker_lost",
            "the worker process of this sandbox died while it answered; the sandbox is gone");
}

static void relay_on_end(void *arg, bool is_whole)
{
    struct relay *relay = arg;
    struct request *r = relay->r;
    unsigned status = relay->u->status;
    relay->u = NULL;
    if (!r)
        return;
    if (r->upgrade) {
        upgrade_end(&relay->upgrade);
    } else if (relay->is_streamed && is_whole) {
        request_end(r);
    } else if (relay->is_streamed) {
        request_cut(r);
    } else if (!is_whole || buf_failed(&relay->body) || buf_failed(&relay->head)) {
        relay_refuse_lost(r);
    } else {
        request_reply(r, status, relay->type[0] ? relay->type : NULL, buf_text(&relay->body),
            relay->body.len);
        relay_put_fields(relay);
    }
}

static void relay_on_free(struct request *r)
{
    struct relay *relay = r->state;
    if (relay->u)
        upstream_drop(relay->u);
    buf_free(&relay->head);
    buf_free(&relay->body);
    upgrade_free(&relay->upgrade);
    free(relay);
}

/* The client has left: so does this end, and the worker sees it. */
static void relay_on_gone(struct request *r)
{
    struct relay *relay = r->state;
    if (relay->u)
        upstream_drop(steal(&relay->u));
}

/* The client may get a connection of another protocol: a route that has one, or a server in a
 * sandbox. */
static bool relay_upgrades(struct request *r)
{
    bool may = r->route && (r->route->status == 101 || r->route == r->routes->any);
    return may && request_header_of(r, MHD_HTTP_HEADER_UPGRADE);
}

static void relay_copy_field(struct request *r, const char *name, struct buf *head)
{
    const char *value = request_header_of(r, name);
    if (value)
        buf_printf(head, "%s: %s\r\n", name, value);
}

/* Takes the upstream. NULL: there is none, or no memory. */
static struct relay *relay_new(struct request *r, struct upstream *u)
{
    struct relay *relay = u ? calloc(1, sizeof *relay) : NULL;
    if (!relay) {
        if (u)
            upstream_drop(u);
        return NULL;
    }
    relay->r = r;
    relay->u = u;
    relay->is_chunked = request_header_of(r, MHD_HTTP_HEADER_TRANSFER_ENCODING) != NULL;
    r->state = relay;
    r->is_relayed = true;
    r->on_piece = relay_on_piece;
    r->on_complete = relay_on_complete;
    r->on_gone = relay_on_gone;
    r->on_free = relay_on_free;
    u->arg = relay;
    u->on_field = relay_on_answer_field;
    u->on_head = relay_on_head;
    u->on_data = relay_on_data;
    u->on_sent = relay_on_sent;
    u->on_end = relay_on_end;
    u->is_head = strcmp(r->method, MHD_HTTP_METHOD_HEAD) == 0;
    u->may_upgrade = relay_upgrades(r);
    return relay;
}

/* The fields about the body and the connection, and the end of the head. */
static void relay_send_head(struct relay *relay, struct buf *head)
{
    struct request *r = relay->r;
    const char *length = request_header_of(r, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (relay->is_chunked)
        buf_puts(head, "Transfer-Encoding: chunked\r\n");
    else if (length)
        buf_printf(head, "Content-Length: %s\r\n", length);
    if (relay->u->may_upgrade) {
        relay_copy_field(r, MHD_HTTP_HEADER_CONNECTION, head);
        relay_copy_field(r, MHD_HTTP_HEADER_UPGRADE, head);
    } else if (relay->u->is_foreign) {
        buf_puts(head, "Connection: close\r\n");
    }
    buf_puts(head, "\r\n");
    upstream_send(relay->u, buf_text(head), head->len);
}

static void relay_begin_from(struct request *r, unsigned worker, unsigned first)
{
    cleanup_buf struct buf head = { 0 };
    struct relay *relay = relay_new(r, upstream_open(r->server, worker));
    if (!relay) {
        request_refuse(r, 503, "worker", "the worker process of this sandbox does not run; retry");
        request_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
        return;
    }
    table_count(r->server->figures, COUNT_RELAYED, 1);
    relay_write_head(r, &head);
    if (first < r->server->table->workers)
        buf_printf(&head, RELAY_FIRST ": %u\r\n", first);
    relay_send_head(relay, &head);
}

void relay_begin(struct request *r, unsigned worker)
{
    bool is_circle = r->routes && r->routes->is_elsewhere;
    relay_begin_from(r, worker, is_circle ? relay_first(r) : UINT_MAX);
}

static void relay_refuse_node(struct request *r)
{
    request_refuse(r, 502, "node_lost",
        "the node of the cluster that had to answer cannot be reached, and what it had with it");
}

static void relay_begin_node_from(struct request *r, unsigned node, unsigned first)
{
    cleanup_buf struct buf head = { 0 };
    struct relay *relay = relay_new(r, nodes_connect(r->server, node));
    if (!relay) {
        relay_refuse_node(r);
        return;
    }
    relay->lost = relay_refuse_node;
    table_count(r->server->figures, COUNT_RELAYED, 1);
    relay_write_head(r, &head);
    nodes_put_ticket(r, node, &head);
    if (first > 0)
        buf_printf(&head, RELAY_FIRST ": %u\r\n", first);
    relay_send_head(relay, &head);
}

void relay_begin_node(struct request *r, unsigned node)
{
    relay_begin_node_from(r, node, 0);
}

/* A node has one worker, so the field is either's. */
static unsigned relay_first_node(struct request *r)
{
    const char *text = r->client->is_relay ? request_header_of(r, RELAY_FIRST) : NULL;
    unsigned long n = text ? strtoul(text, NULL, 10) : 0;
    return n > 0 && n <= UINT16_MAX ? (unsigned)n : registry_own(r->server->nodes);
}

bool relay_on(struct request *r)
{
    struct server *s = r->server;
    unsigned next = s->table->workers > 1 ? relay_next(r) : s->worker;
    unsigned first = s->nodes ? relay_first_node(r) : 0;
    unsigned node = s->nodes ? nodes_next(s, first) : 0;
    if (next != s->worker)
        relay_begin_from(r, next, relay_first(r));
    else if (node)
        relay_begin_node_from(r, node, first);
    else
        return false;
    if (r->reply || !r->complete)
        return true;
    if (r->body.len > 0)
        relay_on_piece(r, r->body.data, r->body.len);
    relay_on_complete(r);
    return true;
}

bool relay_on_node(struct request *r)
{
    return r->server->nodes && relay_on(r);
}

bool relay_elsewhere(struct request *r, const char *kind, const char *name)
{
    return relay_on_node(r) || nodes_refuse_lost(r, kind, name);
}

/* What is between the client and this server. */
static enum MHD_Result relay_on_port_field(void *arg, enum MHD_ValueKind kind, const char *name,
    size_t name_len, const char *value, size_t len)
{
    static const char *const own[] = { "Host", "X-Access-Token", "X-API-Key",
        "E2b-Traffic-Access-Token", "E2b-Sandbox-Id", "E2b-Sandbox-Port" };
    if (relay_is_one_of(name, own, array_length(own)))
        return MHD_YES;
    return relay_on_field(arg, kind, name, name_len, value, len);
}

void relay_through(
    struct request *r, struct upstream *u, const char *host, void (*lost)(struct request *r))
{
    cleanup_buf struct buf head = { 0 };
    struct relay *relay = relay_new(r, u);
    if (!relay) {
        lost(r);
        return;
    }
    relay->lost = lost;
    if (!host)
        host = request_header_of(r, MHD_HTTP_HEADER_HOST);
    buf_printf(
        &head, "%s %s HTTP/1.1\r\nHost: %s\r\n", r->method, r->target, host ? host : "localhost");
    MHD_get_connection_values_n(r->connection, MHD_HEADER_KIND, relay_on_port_field, &head);
    relay_send_head(relay, &head);
}

/* ---- asking all ---- */

struct gather {
    struct request *r; /* NULL: it has ended */
    const char *name;
    struct json_object *all;
    size_t open;
    void (*done)(struct request *r, struct json_object *all);
};

struct gather_one {
    struct gather *gather;
    struct upstream *u;
    struct buf body;
};

static void gather_on_field(void *arg, const char *name, const char *value)
{
}

static void gather_on_event(void *arg)
{
}

static void gather_on_data(void *arg, const char *data, size_t len)
{
    struct gather_one *one = arg;
    buf_append(&one->body, data, len);
}

static void gather_reply(struct request *r, const char *name, struct json_object *all,
    void (*done)(struct request *r, struct json_object *all))
{
    if (done)
        done(r, all);
    else
        request_reply_list(r, name, all);
}

static void gather_finish(struct gather *g)
{
    if (g->open > 0)
        return;
    if (g->r) {
        g->r->on_free = NULL;
        gather_reply(g->r, g->name, steal(&g->all), g->done);
    }
    json_object_put(g->all);
    free(g);
}

static void gather_on_end(void *arg, bool is_whole)
{
    struct gather_one *one = arg;
    struct gather *g = one->gather;
    cleanup_json struct json_object *o = NULL;
    if (is_whole && one->u->status == 200 && !buf_failed(&one->body) &&
        json_parse(buf_text(&one->body), one->body.len, &json_limits_large, &o, NULL) == 0) {
        struct json_object *list = json_get_typed(o, g->name, json_type_array);
        for (size_t i = 0; i < json_length(list); i++)
            json_object_array_add(g->all, json_object_get(json_object_array_get_idx(list, i)));
    }
    buf_free(&one->body);
    free(one);
    g->open--;
    gather_finish(g);
}

static void gather_on_free(struct request *r)
{
    struct gather *g = r->state;
    g->r = NULL; /* the workers' answers free it */
}

/* Asks over a new upstream; NULL: it cannot be asked. */
static void gather_ask(struct gather *g, struct upstream *u, const struct buf *head)
{
    struct gather_one *one = u ? calloc(1, sizeof *one) : NULL;
    if (!one) {
        if (u)
            upstream_drop(u);
        return;
    }
    one->u = u;
    one->gather = g;
    g->open++;
    one->u->arg = one;
    one->u->on_field = gather_on_field;
    one->u->on_head = one->u->on_sent = gather_on_event;
    one->u->on_data = gather_on_data;
    one->u->on_end = gather_on_end;
    upstream_send(one->u, head->data, head->len);
}

static void gather_ask_nodes(struct gather *g, struct request *r)
{
    const struct node *node;
    for (size_t i = 0; (node = nodes_peer_at(r->server, i)); i++) {
        cleanup_buf struct buf head = { 0 };
        if (node->is_lost || node->number == registry_own(r->server->nodes))
            continue;
        relay_write_head(r, &head);
        nodes_put_ticket(r, node->number, &head);
        buf_puts(&head, "\r\n");
        if (!buf_failed(&head))
            gather_ask(g, nodes_connect(r->server, node->number), &head);
    }
}

static void gather_ask_workers(struct gather *g, struct request *r)
{
    const struct server *s = r->server;
    cleanup_buf struct buf head = { 0 };
    relay_write_head(r, &head);
    buf_puts(&head, "\r\n");
    for (unsigned i = 0; i < s->table->workers && !buf_failed(&head); i++)
        if (i != s->worker && s->table->worker[i].pid > 0)
            gather_ask(g, upstream_open(r->server, i), &head);
}

static void gather_begin(struct request *r, const char *name, struct json_object *own,
    bool is_shared, void (*done)(struct request *r, struct json_object *all))
{
    const struct server *s = r->server;
    if (!own || r->client->is_relay) {
        request_reply_list(r, name, own);
        return;
    }
    bool is_alone = (s->table->workers == 1 || is_shared) && !s->nodes;
    struct gather *g = is_alone ? NULL : calloc(1, sizeof *g);
    if (!g) {
        gather_reply(r, name, own, done);
        return;
    }
    *g = (struct gather){ .r = r, .name = name, .all = own, .open = 1, .done = done };
    r->state = g;
    r->on_free = gather_on_free;
    if (!is_shared)
        gather_ask_workers(g, r);
    gather_ask_nodes(g, r);
    g->open--;
    gather_finish(g);
}

void relay_gather(struct request *r, const char *name, struct json_object *own,
    void (*done)(struct request *r, struct json_object *all))
{
    gather_begin(r, name, own, false, done);
}

void relay_gather_shared(struct request *r, const char *name, struct json_object *own,
    void (*done)(struct request *r, struct json_object *all))
{
    gather_begin(r, name, own, true, done);
}

void relay_gather_written(struct request *r, const char *name, const struct buf *own,
    void (*done)(struct request *r, struct json_object *all))
{
    struct json_object *list = NULL;
    (void)json_parse_written(own, &list, NULL);
    relay_gather(r, name, list, done);
}
