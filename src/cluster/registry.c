/* cluster/registry.c: see registry.h. */
#include "cluster/registry.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "base/json/json.h"
#include "base/os/random.h"
#include "base/text.h"

/* A lost node's key stays for an hour, so that those who look later see that it is lost. */
enum { NODES_MOST = 1024, NODE_BEAT_MS = 500, NODE_LOST_MS = 1500, NODE_TTL_MS = 3600000 };
enum { REGISTRY_OPEN_SECONDS = 10, SECRET_SIZE = 65 };

static const char registry_bucket[] = "droste-nodes", secret_bucket[] = "droste-cluster";

struct registry {
    struct registry_options options;
    struct bus *bus;
    uv_loop_t *loop;
    uv_timer_t *timer;
    struct node nodes[NODES_MOST];
    size_t count;
    char secret[SECRET_SIZE], made[SECRET_SIZE];
    unsigned own;
    char key[16], name[NODE_NAME_SIZE], address[NODE_ADDRESS_SIZE];
    uint64_t sandboxes, most;
    bool is_draining, is_known, is_claimed;
    uint64_t connected_ns;     /* since when the bus is there; 0: it is not */
    uint64_t probe_ns;         /* when the beat whose answer is awaited was sent; 0: none is */
    uint64_t proven_ns;        /* the same of the last one that was stored */
    struct error failure;      /* of joining, the last one */
    bool has_failed, is_final; /* it did; trying again does not help */
};

/* ---- nodes ---- */

unsigned registry_own(const struct registry *g)
{
    return g->own;
}

static struct node *registry_find(struct registry *g, unsigned number)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->nodes[i].number == number)
            return &g->nodes[i];
    return NULL;
}

const struct node *registry_node(const struct registry *g, unsigned number)
{
    return registry_find((struct registry *)g, number);
}

const struct node *registry_at(const struct registry *g, size_t index)
{
    return index < g->count ? &g->nodes[index] : NULL;
}

bool registry_is_replaced(const struct registry *g, const struct node *node)
{
    for (size_t i = 0; node->is_lost && i < g->count; i++) {
        const struct node *other = &g->nodes[i];
        bool is_later = !other->is_lost || other->written_ms > node->written_ms;
        if (other != node && is_later && strcmp(other->name, node->name) == 0)
            return true;
    }
    return false;
}

bool registry_is_gone(const struct registry *g, const struct node *node)
{
    return node->has_left || registry_is_replaced(g, node);
}

static void node_lose(struct registry *g, struct node *node)
{
    if (node->is_lost)
        return;
    node->is_lost = true;
    if (g->options.lost)
        g->options.lost(g->options.arg, node);
}

/* A place for a new one: that of the one that was lost first, if there is no other. */
static struct node *registry_add(struct registry *g, unsigned number)
{
    struct node *node = NULL;
    if (g->count < NODES_MOST) {
        node = &g->nodes[g->count++];
    } else {
        for (size_t i = 0; i < g->count; i++)
            if (g->nodes[i].is_lost && (!node || g->nodes[i].seen_ns < node->seen_ns))
                node = &g->nodes[i];
    }
    if (node)
        *node = (struct node){ .number = number };
    return node;
}

static unsigned node_number_of(const char *key)
{
    char *end = NULL;
    unsigned long number = strncmp(key, "node.", 5) == 0 ? strtoul(key + 5, &end, 16) : 0;
    return end && *end == '\0' && number < 65536 ? (unsigned)number : 0;
}

static uint64_t registry_count(struct json_object *o, const char *name)
{
    int64_t n = json_get_int(o, name, 0);
    return n > 0 ? (uint64_t)n : 0;
}

bool registry_read_node(const char *data, size_t len, struct node *out)
{
    static const struct json_limits limits = { 4096, 4, 64 };
    cleanup_json struct json_object *o = NULL;
    *out = (struct node){ 0 };
    if (json_parse(data, len, &limits, &o, NULL) < 0 || !json_object_is_type(o, json_type_object))
        return false;
    const char *name = json_get_string(o, "name", ""), *address = json_get_string(o, "address", "");
    if (!text_is_name(name) || strlen(name) >= NODE_NAME_SIZE ||
        strlen(address) >= NODE_ADDRESS_SIZE)
        return false;
    snprintf(out->name, sizeof out->name, "%s", name);
    snprintf(out->address, sizeof out->address, "%s", address);
    snprintf(out->version, sizeof out->version, "%s", json_get_string(o, "version", ""));
    out->sandboxes = registry_count(o, "sandboxes");
    out->most = registry_count(o, "most");
    out->is_draining = json_get_bool(o, "draining", false);
    return true;
}

/* Of the keys that were there when this node began to watch, some are of lost nodes: those that
 * were written long before the latest one, by the clock of the NATS server. */
static void registry_know(struct registry *g)
{
    int64_t latest_ms = 0;
    for (size_t i = 0; i < g->count; i++)
        if (g->nodes[i].written_ms > latest_ms)
            latest_ms = g->nodes[i].written_ms;
    for (size_t i = 0; i < g->count && !g->is_known; i++)
        g->nodes[i].is_lost = latest_ms - g->nodes[i].written_ms > NODE_LOST_MS;
    g->is_known = true;
}

static void registry_on_entry(void *arg, const struct bus_entry *entry)
{
    struct registry *g = arg;
    struct node read;
    if (!entry->key) {
        registry_know(g);
        return;
    }
    unsigned number = node_number_of(entry->key);
    struct node *node = number ? registry_find(g, number) : NULL;
    if (!entry->data && node) {
        node->has_left = true;
        node_lose(g, node);
    }
    if (!number || !entry->data || !registry_read_node(entry->data, entry->len, &read))
        return;
    if (!node)
        node = registry_add(g, number);
    if (!node || node->revision == entry->revision)
        return; /* a watch that begins again repeats what it has said */
    read.number = number;
    read.revision = entry->revision;
    read.written_ms = entry->written_ms;
    read.seen_ns = clock_ns();
    if (number == g->own) /* an earlier beat had none */
        memcpy(read.address, g->address, sizeof read.address);
    *node = read;
}

/* ---- heartbeats ---- */

static void registry_write(const struct registry *g, struct buf *out)
{
    field_open(out, NULL, '{');
    field_string(out, "name", g->name);
    field_string(out, "address", g->address);
    field_string(out, "version", DROSTE_VERSION);
    field_int(out, "sandboxes", (int64_t)g->sandboxes);
    field_int(out, "most", (int64_t)g->most);
    field_bool(out, "draining", g->is_draining);
    field_close(out, '}');
}

/* The bucket is gone when the servers have restarted: it is only in their memory. */
static void registry_make_bucket(struct registry *g, bus_done_fn *done)
{
    bus_bucket_make(g->bus,
        &(struct bus_bucket){ .name = registry_bucket,
            .ttl_ms = NODE_TTL_MS,
            .value_max = 4096,
            .is_in_memory = true },
        done, g);
}

static void registry_on_beat(void *arg, const struct bus_answer *a)
{
    struct registry *g = arg;
    if (a->result == BUS_OK)
        g->proven_ns = g->probe_ns;
    g->probe_ns = 0;
    if (a->result == BUS_NO_RESPONDERS || a->result == BUS_NOT_FOUND)
        registry_make_bucket(g, NULL);
}

static void registry_beat(struct registry *g)
{
    cleanup_buf struct buf text = { 0 };
    registry_write(g, &text);
    if (!g->is_claimed || buf_failed(&text))
        return;
    bool is_probe = g->probe_ns == 0;
    if (is_probe)
        g->probe_ns = clock_ns();
    bus_put(g->bus, registry_bucket, g->key, buf_text(&text), text.len,
        is_probe ? registry_on_beat : NULL, g);
}

static void registry_join(struct registry *g);

static void registry_on_timer(uv_timer_t *timer)
{
    struct registry *g = timer->data;
    uint64_t now = clock_ns();
    if (g->has_failed && !g->is_final)
        registry_join(g);
    registry_beat(g);
    if (!bus_is_connected(g->bus))
        g->connected_ns = 0;
    else if (g->connected_ns == 0)
        g->connected_ns = now;
    /* After the bus was away, or this node slept, others get their time again. */
    uint64_t heard = g->connected_ns;
    for (size_t i = 0; heard && i < g->count; i++) {
        struct node *node = &g->nodes[i];
        uint64_t since = node->seen_ns > heard ? node->seen_ns : heard;
        if (node->number != g->own && now - since > NODE_LOST_MS * 1000000ull)
            node_lose(g, node);
    }
}

uint64_t registry_proven_ns(const struct registry *g)
{
    return g->proven_ns;
}

bool registry_is_silent(const struct registry *g, const char *name, int ms)
{
    uint64_t now = clock_ns(), most = (uint64_t)ms * 1000000u;
    bool hears_itself = false;
    if (!g->connected_ns || now - g->connected_ns < most)
        return false;
    for (size_t i = 0; i < g->count; i++) {
        const struct node *node = &g->nodes[i];
        if (strcmp(node->name, name) == 0 && now - node->seen_ns < most)
            return false;
        hears_itself |= node->number == g->own && now - node->seen_ns < NODE_LOST_MS * 1000000ull;
    }
    return hears_itself;
}

void registry_announce(struct registry *g, const char *address)
{
    struct node *own = registry_find(g, g->own);
    if (!own && (own = registry_add(g, g->own))) /* its first beat has not come back yet */
        own->seen_ns = clock_ns();
    snprintf(g->address, sizeof g->address, "%s", address);
    if (own) { /* a node may ask itself at once */
        snprintf(own->name, sizeof own->name, "%s", g->name);
        snprintf(own->address, sizeof own->address, "%s", address);
    }
    registry_beat(g);
}

void registry_report(struct registry *g, uint64_t sandboxes, uint64_t most, bool is_draining)
{
    g->sandboxes = sandboxes;
    g->most = most;
    g->is_draining = is_draining;
}

/* ---- tickets ---- */

int registry_sign(const struct registry *g, const char *text, char out[TICKET_SIZE])
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    if (!g->secret[0] || !HMAC(EVP_sha256(), g->secret, (int)strlen(g->secret),
                             (const unsigned char *)text, strlen(text), mac, &len))
        return -ERROR_MEMORY;
    text_hex(mac, 32, out);
    return 0;
}

bool registry_verify(const struct registry *g, const char *text, const char *ticket)
{
    char own[TICKET_SIZE];
    return registry_sign(g, text, own) == 0 && strlen(ticket) == TICKET_SIZE - 1 &&
           CRYPTO_memcmp(own, ticket, TICKET_SIZE - 1) == 0;
}

/* ---- joining ---- */

/* A stream has no leader for a moment while servers elect one, or one of them starts. */
static void registry_fail(struct registry *g, const char *what, const struct bus_answer *a)
{
    error_set(&g->failure, ERROR_IO, "%s: %s", what, a->why);
    g->is_final = a->result == BUS_REFUSED;
    g->has_failed = true;
}

static void registry_claim(struct registry *g);

static void registry_on_claimed(void *arg, const struct bus_answer *a)
{
    struct registry *g = arg;
    if (a->result == BUS_OK) {
        g->is_claimed = true;
        g->proven_ns = g->probe_ns;
    }
    g->probe_ns = 0;
    if (a->result == BUS_CONFLICT)
        registry_claim(g);
    else if (a->result != BUS_OK)
        registry_fail(g, "claiming a number for this node", a);
}

static void registry_claim(struct registry *g)
{
    cleanup_buf struct buf text = { 0 };
    uint16_t number = 0;
    while (number == 0)
        if (random_bytes(&number, sizeof number, &g->failure) < 0) {
            g->has_failed = g->is_final = true;
            return;
        }
    g->own = number;
    snprintf(g->key, sizeof g->key, "node.%04x", g->own);
    registry_write(g, &text);
    g->probe_ns = clock_ns();
    bus_create(g->bus, registry_bucket, g->key, buf_text(&text), text.len, registry_on_claimed, g);
}

static void registry_on_secret(void *arg, const struct bus_answer *a)
{
    struct registry *g = arg;
    if (a->result != BUS_OK || a->len != SECRET_SIZE - 1)
        registry_fail(g, "reading the secret of the cluster", a);
    else
        memcpy(g->secret, a->data, SECRET_SIZE);
    if (g->secret[0])
        registry_claim(g);
}

static void registry_on_secret_made(void *arg, const struct bus_answer *a)
{
    struct registry *g = arg;
    if (a->result == BUS_CONFLICT) {
        bus_get(g->bus, secret_bucket, "secret", registry_on_secret, g);
    } else if (a->result == BUS_OK) {
        memcpy(g->secret, g->made, SECRET_SIZE);
        registry_claim(g);
    } else {
        registry_fail(g, "making the secret of the cluster", a);
    }
}

static void registry_on_secret_bucket(void *arg, const struct bus_answer *a)
{
    struct registry *g = arg;
    if (a->result != BUS_OK) {
        registry_fail(g, "making the bucket droste-cluster", a);
        return;
    }
    bus_create(
        g->bus, secret_bucket, "secret", g->made, SECRET_SIZE - 1, registry_on_secret_made, g);
}

static void registry_on_bucket(void *arg, const struct bus_answer *a)
{
    struct registry *g = arg;
    if (a->result != BUS_OK)
        registry_fail(g, "making the bucket droste-nodes", a);
    else if (g->options.name)
        bus_bucket_make(g->bus, &(struct bus_bucket){ .name = secret_bucket, .value_max = 4096 },
            registry_on_secret_bucket, g);
}

static void registry_join(struct registry *g)
{
    g->has_failed = false;
    registry_make_bucket(g, registry_on_bucket);
}

static void registry_free_handle(uv_handle_t *handle)
{
    free(handle);
}

static int registry_await(struct registry *g, struct error *err)
{
    uint64_t began = clock_ns();
    uv_timer_start(g->timer, registry_on_timer, NODE_BEAT_MS, NODE_BEAT_MS);
    while (!g->is_known || (g->options.name && !g->is_claimed)) {
        bool is_late = clock_seconds_since(began) > REGISTRY_OPEN_SECONDS;
        if (is_late && g->failure.code == ERROR_NONE)
            error_set(&g->failure, ERROR_TIMEOUT,
                "JetStream of the NATS server does not answer; "
                "start nats-server with -js");
        if (is_late || (g->has_failed && g->is_final)) {
            if (err)
                *err = g->failure;
            return -(int)g->failure.code;
        }
        uv_run(g->loop, UV_RUN_ONCE);
    }
    return 0;
}

int registry_open(uv_loop_t *loop, const struct registry_options *options, struct registry **out,
    struct error *err)
{
    struct registry *g = calloc(1, sizeof *g);
    uv_timer_t *timer = calloc(1, sizeof *timer);
    if (!g || !timer || random_hex(g->made, 32, err) < 0 || random_hex(g->made + 32, 32, err) < 0) {
        free(g);
        free(timer);
        return error_memory(err);
    }
    g->options = *options;
    g->loop = loop;
    if (options->name)
        snprintf(g->name, sizeof g->name, "%s", options->name);
    uv_timer_init(loop, timer);
    timer->data = g;
    g->timer = timer;
    int rc = bus_open(loop, &options->bus, &g->bus, err);
    if (rc == 0)
        rc = bus_watch(g->bus, registry_bucket, "node.*", registry_on_entry, g, err);
    if (rc == 0) {
        registry_join(g);
        rc = registry_await(g, err);
    }
    if (rc < 0)
        registry_close(steal(&g));
    *out = g;
    return rc;
}

struct bus *registry_bus(const struct registry *g)
{
    return g->bus;
}

void registry_leave(struct registry *g)
{
    if (!g || !g->is_claimed)
        return;
    g->is_claimed = false;
    uv_timer_stop(g->timer);
    /* An orderly end: others need not wait for silence. */
    bus_delete(g->bus, registry_bucket, g->key, 0, NULL, NULL);
    for (int i = 0; i < 20; i++) /* lets it be sent */
        if (uv_run(g->loop, UV_RUN_NOWAIT) == 0)
            break;
}

void registry_close(struct registry *g)
{
    if (!g)
        return;
    registry_leave(g);
    uv_timer_stop(g->timer);
    bus_close(g->bus);
    uv_close((uv_handle_t *)g->timer, registry_free_handle);
    OPENSSL_cleanse(g->secret, sizeof g->secret);
    OPENSSL_cleanse(g->made, sizeof g->made);
    free(g);
}
