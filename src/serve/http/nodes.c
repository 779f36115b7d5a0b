/* serve/http/nodes.c: see nodes.h. */
#include "serve/http/nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/os/file.h"
#include "base/text.h"
#include "serve/http/listen.h"
#include "serve/http/upstream.h"
#include "serve/http/request.h"

/* Clocks of nodes may differ by less than this. */
enum { TICKET_LIFE_MS = 60000 };
/* Keys of upstreams to nodes, beside those to workers. */
enum { NODES_KEY = 0x10000 };

/* ---- the cluster ---- */

static int nodes_refuse_record(int fd, const char *record, struct error *err)
{
    char name[NODE_NAME_SIZE] = "";
    struct flock held = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    ssize_t n = pread(fd, name, sizeof name - 1, 0);
    name[n > 0 ? (size_t)n : 0] = '\0';
    if (fcntl(fd, F_GETLK, &held) < 0 || held.l_type == F_UNLCK)
        held.l_pid = 0;
    return error_set(err, ERROR_CONFIG,
        "the node '%s' (process %ld) uses the record %.160s; give each node of a machine its own "
        "DROSTE_HOME",
        name, (long)held.l_pid, record);
}

/* A node removes copies of runs that others go on with, so no two may have one record. The lock is
 * fcntl's: it ends with this process, also if a child of it lives on. */
static int nodes_lock_record(struct server *s, struct error *err)
{
    droste_error why = { 0 };
    cleanup_buf struct buf path = { 0 };
    const char *record = droste_record_path(s->d, &why);
    if (!record)
        return error_set(err, (enum error_code)why.code, "%s", why.text);
    if (strcmp(record, "none") == 0)
        return 0;
    const char *slash = strrchr(record, '/');
    buf_append(&path, record, slash ? (size_t)(slash - record) : 0);
    if (!buf_failed(&path) && path.len > 0 && file_make_directories(path.data, err) < 0)
        return -(int)err->code;
    buf_clear(&path);
    buf_printf(&path, "%s.node", record);
    if (buf_failed(&path))
        return error_memory(err);
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    cleanup_fd int fd = open(path.data, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set_errno(err, ERROR_STORE, "opening %s", path.data);
    if (fcntl(fd, F_SETLK, &lock) < 0)
        return errno == EACCES || errno == EAGAIN
                   ? nodes_refuse_record(fd, record, err)
                   : error_set_errno(err, ERROR_STORE, "locking %s", path.data);
    /* The name is for messages only: a full disk is no reason not to start. */
    if (ftruncate(fd, 0) < 0 || pwrite(fd, s->options->node, strlen(s->options->node), 0) < 0)
        errno = 0;
    s->node_lock = steal_fd(&fd);
    return 0;
}

static void nodes_on_lost(void *arg, const struct node *node)
{
    upstream_lose(arg, NODES_KEY + node->number);
}

int nodes_join(struct server *s, struct error *err)
{
    const struct serve_options *o = s->options;
    if (!o->join)
        return 0;
    const struct registry_options options = { .bus = { .urls = o->join,
                                                  .name = o->node,
                                                  .credentials = o->nats_credentials,
                                                  .ca = o->nats_ca },
        .name = o->node,
        .lost = nodes_on_lost,
        .arg = s };
    int rc = nodes_lock_record(s, err);
    return rc < 0 ? rc : registry_open(&s->loop, &options, &s->nodes, err);
}

void nodes_sweep(struct server *s)
{
    if (s->nodes)
        registry_report(
            s->nodes, table_sandboxes(s->table), s->options->max_sandboxes, s->draining);
}

void nodes_announce(struct server *s, const char *address)
{
    const char *own = s->options->advertise ? s->options->advertise : address;
    nodes_sweep(s); /* with its room */
    if (s->nodes)
        registry_announce(s->nodes, strncmp(own, "http://", 7) == 0 ? own + 7 : own);
}

void nodes_leave(struct server *s)
{
    registry_leave(s->nodes);
}

void nodes_close(struct server *s)
{
    registry_close(steal(&s->nodes));
    close_fd(&s->node_lock);
}

const struct node *nodes_peer_at(const struct server *s, size_t index)
{
    return s->nodes ? registry_at(s->nodes, index) : NULL;
}

/* ---- where a request belongs ---- */

/* server_make_id: the node's number stands behind the worker and its generation. */
static unsigned nodes_number_in(const char *id)
{
    char digits[5] = "";
    if (strlen(id) != SERVE_ID_SIZE - 1 || strspn(id, "0123456789abcdef") != SERVE_ID_SIZE - 1)
        return 0;
    memcpy(digits, id + 6, 4);
    return (unsigned)strtoul(digits, NULL, 16);
}

/* A repeated run must come to the node that keeps the first one's answer. */
static bool nodes_may_place(struct request *r)
{
    const char *path = r->route ? r->route->path : "";
    if (!r->route || !r->route->creates || strcmp(r->method, "POST") != 0)
        return false;
    return strcmp(path, "/v1/sandboxes") == 0 || strcmp(path, "/sandboxes") == 0 ||
           (strcmp(path, "/v1/runs") == 0 && request_header_of(r, "Idempotency-Key"));
}

static bool nodes_has_room(const struct node *node)
{
    return !node->is_lost && !node->is_draining && node->address[0] && node->sandboxes < node->most;
}

/* This one. */
static bool nodes_is_full(const struct server *s)
{
    return table_sandboxes(s->table) >= s->options->max_sandboxes || s->draining;
}

/* The same node for the same word while the same nodes are there (rendezvous hashing). */
static unsigned nodes_place_by(const struct registry *g, const char *word)
{
    const struct node *node;
    unsigned best = 0, most = 0;
    for (size_t i = 0; (node = registry_at(g, i)); i++) {
        unsigned hash = hash_word(HASH_WORD ^ node->number * 2654435761u, word);
        if (!node->is_lost && node->address[0] && hash >= most) {
            most = hash;
            best = node->number;
        }
    }
    return best == registry_own(g) ? 0 : best;
}

static unsigned nodes_place(struct request *r)
{
    struct server *s = r->server;
    const struct node *node, *best = NULL;
    const char *key = request_header_of(r, "Idempotency-Key");
    if (key)
        return nodes_place_by(s->nodes, key);
    uint64_t own = table_sandboxes(s->table);
    bool is_full = nodes_is_full(s);
    for (size_t i = 0; (node = registry_at(s->nodes, i)); i++)
        if (node->number != registry_own(s->nodes) && nodes_has_room(node) &&
            (!best || node->sandboxes < best->sandboxes))
            best = node;
    return best && (is_full || best->sandboxes + 2 < own) ? best->number : 0;
}

/* The record outlives its node's process. 0: this one has it, or asks all. */
static unsigned nodes_of_run(const struct registry *g, const struct node *lost)
{
    const struct node *node;
    for (size_t i = 0; (node = registry_at(g, i)); i++)
        if (!node->is_lost && node->address[0] && strcmp(node->name, lost->name) == 0)
            return node->number == registry_own(g) ? 0 : node->number;
    return 0;
}

/* That of its node, or, if that is full or lost, where a sandbox would be made: the template is
 * made there of its recipe. */
static unsigned nodes_of_template(struct request *r, const struct node *node)
{
    struct server *s = r->server;
    bool is_own = node->number == registry_own(s->nodes);
    bool is_full = nodes_is_full(s), may_move = strstr(r->route->path, "/sandboxes") != NULL;
    unsigned home = is_own || node->is_lost ? 0 : node->number;
    bool has_room = is_own ? !is_full : nodes_has_room(node);
    /* A repetition comes to the same node while that is there. */
    bool is_repeatable = !node->is_lost && request_header_of(r, "Idempotency-Key");
    if (!may_move || has_room || is_repeatable)
        return home;
    unsigned other = nodes_place(r);
    return other == 0 && is_full ? home : other;
}

static unsigned nodes_of_id(struct request *r)
{
    const struct registry *g = r->server->nodes;
    unsigned number = nodes_number_in(r->id);
    const struct node *node = number ? registry_node(g, number) : NULL;
    if (node && r->route && strncmp(r->route->path, "/v1/templates/", 14) == 0)
        return nodes_of_template(r, node);
    if (!node || number == registry_own(g))
        return 0; /* says that there is no such sandbox, if there is none */
    if (!node->is_lost)
        return number;
    if (r->route && r->route->of_run)
        return nodes_of_run(g, node);
    if (!r->routes->identify && !r->routes->knows_lost)
        request_refuse(r, 410, "node_lost",
            "the node '%s' of the cluster is lost, and what it had with it", node->name);
    return 0; /* others say in their protocol's way that there is no such sandbox */
}

unsigned nodes_route(struct request *r)
{
    if (!r->server->nodes || r->client->is_relay || !r->routes)
        return 0;
    if (r->id[0])
        return nodes_of_id(r);
    return nodes_may_place(r) ? nodes_place(r) : 0;
}

unsigned nodes_next(const struct server *s, unsigned first)
{
    const struct node *node;
    unsigned next = 0, nearest = UINT16_MAX + 1;
    unsigned own = (registry_own(s->nodes) - first) & UINT16_MAX;
    for (size_t i = 0; (node = registry_at(s->nodes, i)); i++) {
        unsigned distance = (node->number - first) & UINT16_MAX;
        bool answers = !node->is_lost && !node->is_draining && node->address[0];
        if (!answers || distance <= own || distance >= nearest)
            continue;
        nearest = distance;
        next = node->number;
    }
    return next;
}

/* A node that is stopping, or is lost and has not come back; NULL: there is none. */
static const struct node *nodes_missing(const struct server *s)
{
    const struct node *node;
    for (size_t i = 0; (node = nodes_peer_at(s, i)); i++)
        if (node->is_lost ? !registry_is_replaced(s->nodes, node) : node->is_draining)
            return node;
    return NULL;
}

bool nodes_refuse_lost(struct request *r, const char *kind, const char *name)
{
    const struct node *node = nodes_missing(r->server);
    if (node)
        request_refuse(r, 503, "node_lost",
            "no node that answers has the %s '%.64s', and the node '%s' is %s", kind,
            text_is_name(name) ? name : "?", node->name, node->is_lost ? "lost" : "stopping");
    return node;
}

void nodes_refuse_absent(struct request *r, const char *kind, const char *name, const char *made)
{
    name = text_is_name(name) ? name : "?";
    if (!nodes_refuse_lost(r, kind, name))
        request_refuse(r, 404, "not_found", "there is no %s '%.64s'; POST /v1/%s%s %s one", kind,
            name, kind, strcmp(kind, "batch") == 0 ? "es" : "s", made);
}

/* ---- connections ---- */

struct upstream *nodes_connect(struct server *s, unsigned number)
{
    struct sockaddr_storage address;
    const struct node *node = registry_node(s->nodes, number);
    socklen_t len = node ? listen_parse(node->address, &address) : 0;
    return len > 0
               ? upstream_open_node(s, NODES_KEY + number, (const struct sockaddr *)&address, len)
               : NULL;
}

/* ---- tickets ---- */

static void ticket_write(struct buf *out, unsigned node, const char *method, const char *target,
    const char *account, const char *client, int64_t expires_ms)
{
    buf_printf(out, "%04x\n%s\n%s\n%s\n%s\n%lld", node, method, target, account, client,
        (long long)expires_ms);
}

static void ticket_put(struct server *s, unsigned number, const char *method, const char *target,
    const char *account, const char *client, struct buf *head)
{
    cleanup_buf struct buf text = { 0 };
    char ticket[TICKET_SIZE];
    long long expires_ms = clock_wall_ms() + TICKET_LIFE_MS;
    ticket_write(&text, number, method, target, account, client, expires_ms);
    if (!buf_failed(&text) && registry_sign(s->nodes, buf_text(&text), ticket) == 0)
        buf_printf(head, RELAY_TICKET ": %lld %s\r\n", expires_ms, ticket);
}

void nodes_put_ticket(struct request *r, unsigned number, struct buf *head)
{
    ticket_put(r->server, number, r->method, r->target, r->account ? r->account->key.id : "",
        r->client->address, head);
}

struct upstream *nodes_ask_as(struct server *s, unsigned number, const char *account,
    const char *method, const char *target, const char *fields, const void *body, size_t len)
{
    cleanup_buf struct buf out = { 0 };
    buf_printf(&out, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, target, fields);
    ticket_put(s, number, method, target, account, "", &out);
    if (account[0])
        buf_printf(&out, RELAY_ACCOUNT ": %s\r\n", account);
    if (strcmp(method, "GET") != 0)
        buf_printf(&out, "Content-Length: %zu\r\n", len);
    buf_puts(&out, "\r\n");
    buf_append(&out, body, len);
    struct upstream *u = buf_failed(&out) ? NULL : nodes_connect(s, number);
    if (u)
        upstream_send(u, buf_text(&out), out.len);
    return u;
}

struct upstream *nodes_ask(
    struct server *s, unsigned number, const char *method, const char *target)
{
    return nodes_ask_as(s, number, "", method, target, "", "", 0);
}

bool nodes_read_ticket(const char *field, int64_t now_ms, int64_t *expires_ms, const char **mac)
{
    char *end = NULL;
    if (field[0] < '0' || field[0] > '9')
        return false;
    *expires_ms = strtoll(field, &end, 10);
    *mac = end + 1;
    return *end == ' ' && *expires_ms >= now_ms && *expires_ms <= now_ms + 2 * TICKET_LIFE_MS;
}

static bool ticket_is_valid(struct request *r, const char *field)
{
    cleanup_buf struct buf text = { 0 };
    const char *account = request_header_of(r, RELAY_ACCOUNT);
    const char *client = request_header_of(r, RELAY_CLIENT);
    const char *mac;
    int64_t expires_ms;
    if (!nodes_read_ticket(field, clock_wall_ms(), &expires_ms, &mac))
        return false;
    ticket_write(&text, registry_own(r->server->nodes), r->method, r->target,
        account ? account : "", client ? client : "", expires_ms);
    return !buf_failed(&text) && registry_verify(r->server->nodes, buf_text(&text), mac);
}

bool nodes_check_ticket(struct request *r)
{
    const char *field =
        r->server->nodes && !r->client->is_worker ? request_header_of(r, RELAY_TICKET) : NULL;
    if (r->client->is_worker)
        return true;
    r->client->is_relay = field && ticket_is_valid(r, field);
    if (!field || r->client->is_relay)
        return true;
    request_refuse(r, 401, "ticket", "the ticket of this request between nodes is not valid");
    return false;
}
