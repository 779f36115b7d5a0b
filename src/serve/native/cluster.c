/* serve/native/cluster.c: GET /v1/cluster: what each node is doing, and figures of /metrics that
 * name nodes. A node says what it knows of itself; those that do not answer are in the list, too,
 * with what the registry last heard of them.
 */
#include <string.h>

#include "cluster/registry.h"
#include "serve/http/nodes.h"
#include "serve/http/relay.h"
#include "serve/native/native.h"
#include "serve/queue/queue.h"

static uint64_t cluster_gauge(const struct table *t, enum table_gauge which)
{
    uint64_t sum = 0;
    for (unsigned w = 0; w < t->workers; w++)
        sum += t->worker[w].gauges[which];
    return sum;
}

static struct json_object *cluster_node(const struct node *n)
{
    struct json_object *o = json_object_new_object();
    json_put_text(o, "name", n->name);
    json_put_text(o, "version", n->version);
    json_put_text(o, "address", n->address);
    json_put_text(o, "state", n->is_lost ? "lost" : n->is_draining ? "draining" : "silent");
    json_put(o, "sandboxes", json_object_new_int64((int64_t)n->sandboxes));
    json_put(o, "most", json_object_new_int64((int64_t)n->most));
    return o;
}

static struct json_object *cluster_own(const struct server *s, const struct node *n, bool sees_cost)
{
    const struct table *t = s->table;
    struct json_object *o = cluster_node(n);
    double cost = 0;
    uint64_t tokens = 0;
    for (int i = 0; i < TABLE_ACCOUNTS && t->accounts[i].id[0]; i++) {
        cost += (double)t->accounts[i].cost_nanodollars / 1e9;
        tokens += t->accounts[i].input_tokens + t->accounts[i].output_tokens;
    }
    json_put_text(o, "state", s->draining ? "draining" : "up");
    json_put(o, "sandboxes", json_object_new_int64((int64_t)table_sandboxes(t)));
    json_put(o, "runs", json_object_new_int64((int64_t)cluster_gauge(t, GAUGE_RUNS)));
    json_put(o, "room", json_object_new_int64((int64_t)s->queue->room));
    if (!sees_cost)
        return o;
    json_put(o, "tokens", json_object_new_int64((int64_t)tokens));
    json_put(o, "cost", json_object_new_double(cost));
    return o;
}

/* Whether a node has answered for itself. */
static bool cluster_has(struct json_object *all, const struct node *n)
{
    for (size_t i = 0; i < json_length(all); i++) {
        struct json_object *o = json_object_array_get_idx(all, i);
        if (strcmp(json_get_string(o, "address", ""), n->address) == 0 &&
            strcmp(json_get_string(o, "name", ""), n->name) == 0)
            return true;
    }
    return false;
}

static void cluster_reply(struct request *r, struct json_object *all)
{
    const struct server *s = r->server;
    const struct node *n;
    struct json_object *o = json_object_new_object();
    for (size_t i = 0; !r->client->is_relay && (n = nodes_peer_at(s, i)); i++)
        if (!cluster_has(all, n) && !registry_is_gone(s->nodes, n))
            json_object_array_add(all, cluster_node(n));
    json_put(o, "nodes", all);
    json_put(o, "queued", json_object_new_int64((int64_t)cluster_gauge(s->table, GAUGE_QUEUED)));
    request_reply_json(r, 200, o);
}

void handle_cluster(struct request *r)
{
    const struct server *s = r->server;
    struct json_object *list = json_object_new_array();
    const struct node *own = s->queue ? registry_node(s->nodes, registry_own(s->nodes)) : NULL;
    bool sees_cost = r->account->key.scopes & (SCOPE_METRICS | SCOPE_ADMIN);
    if (own)
        json_object_array_add(list, cluster_own(s, own, sees_cost));
    relay_gather(r, "nodes", list, cluster_reply);
}

/* ---- figures ---- */

/* A version is a text of another node's. */
static void cluster_put_label(struct buf *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\')
            buf_putc(out, '\\');
        buf_putc(out, (unsigned char)*p < ' ' ? '?' : *p);
    }
}

void cluster_put_metrics(const struct server *s, struct buf *out)
{
    const struct node *n;
    if (!s->nodes)
        return;
    buf_puts(out, "# HELP droste_cluster_node_up Whether a node of the cluster is heard of.\n"
                  "# TYPE droste_cluster_node_up gauge\n");
    for (size_t i = 0; (n = nodes_peer_at(s, i)); i++) {
        if (registry_is_gone(s->nodes, n))
            continue;
        buf_printf(out, "droste_cluster_node_up{node=\"%s\",version=\"", n->name);
        cluster_put_label(out, n->version);
        buf_printf(out, "\"} %d\n", !n->is_lost);
    }
    buf_puts(out, "# HELP droste_cluster_node_sandboxes Sandboxes of a node.\n"
                  "# TYPE droste_cluster_node_sandboxes gauge\n");
    for (size_t i = 0; (n = nodes_peer_at(s, i)); i++)
        if (!n->is_lost)
            buf_printf(out, "droste_cluster_node_sandboxes{node=\"%s\"} %llu\n", n->name,
                (unsigned long long)n->sandboxes);
}
