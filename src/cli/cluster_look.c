/* cli/cluster_look.c: see cluster_look.h. */
#include "cli/cluster_look.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <uv.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "cli/certificate.h"
#include "cli/cli.h"
#include "cli/findings.h"
#include "cluster/registry.h"

enum {
    LANES_MAX = 256,
    HEARD_MS = 2200, /* longer than a node may be silent (cluster/registry.h) */
    ANSWER_MS = 5000,
    HTTP_SECONDS = 3,
    CLOCK_SECONDS = 10, /* beyond this, a difference is told; tickets bear a minute */
    CERTIFICATE_DAYS = 14,
    DAY_SECONDS = 86400,
};

/* Runs of a key with a priority. */
struct lane {
    char name[BUS_NAME_MAX + 1]; /* "PRIORITY.KEY" */
    uint64_t waiting, running;
};

struct look {
    const struct cluster_look *o;
    uv_loop_t loop;
    uv_timer_t timer;
    bool is_late, is_running;
    struct bus *bus;
    struct registry *nodes; /* NULL: nothing has joined yet */
    bool has_jetstream, has_nodes;
    unsigned asked; /* answers that are awaited */
    uint64_t runs, dead, last_dead;
    char why_dead[200], why[200];
    struct lane lanes[LANES_MAX];
    size_t lane_count;
};

/* ---- answers ---- */

static void look_on_late(uv_timer_t *timer)
{
    struct look *k = timer->data;
    k->is_late = true;
}

/* Runs the loop for so long; or, with `answers`, until all answers are there. */
static void look_wait(struct look *k, int ms, bool answers)
{
    k->is_late = false;
    uv_timer_start(&k->timer, look_on_late, (uint64_t)ms, 0);
    while (!k->is_late && (!answers || k->asked > 0))
        uv_run(&k->loop, UV_RUN_ONCE);
    uv_timer_stop(&k->timer);
}

static void look_on_bucket(void *arg, const struct bus_answer *a)
{
    struct look *k = arg;
    k->asked--;
    k->has_nodes = a->result == BUS_OK;
    k->has_jetstream = a->result == BUS_OK || a->result == BUS_NOT_FOUND;
    snprintf(k->why, sizeof k->why, "%s", a->why);
}

static void look_on_runs(void *arg, const struct bus_answer *a)
{
    struct look *k = arg;
    k->asked--;
    k->runs = a->result == BUS_OK ? a->messages : 0;
}

static void look_on_dead(void *arg, const struct bus_answer *a)
{
    struct look *k = arg;
    k->asked--;
    k->dead = a->result == BUS_OK ? a->messages : 0;
    k->last_dead = a->result == BUS_OK ? a->sequence : 0;
}

static void look_on_reason(void *arg, const struct bus_answer *a)
{
    struct look *k = arg;
    k->asked--;
    if (a->result == BUS_OK)
        snprintf(k->why_dead, sizeof k->why_dead, "%s", a->data);
}

static void look_on_lane(void *arg, const struct bus_entry *entry)
{
    struct look *k = arg;
    if (!entry->key || !entry->data || k->lane_count == LANES_MAX ||
        strlen(entry->key) > BUS_NAME_MAX - 2)
        return;
    snprintf(k->lanes[k->lane_count++].name, BUS_NAME_MAX + 1, "%s", entry->key);
}

struct look_lane {
    struct look *k;
    struct lane *lane;
};

static void look_on_consumer(void *arg, const struct bus_answer *a)
{
    struct look_lane *asked = arg;
    asked->k->asked--;
    if (a->result == BUS_OK) {
        asked->lane->waiting = a->messages;
        asked->lane->running = a->unacknowledged;
    }
    free(asked);
}

static void look_ask_lane(struct look *k, struct lane *lane)
{
    char consumer[BUS_NAME_MAX + 2];
    struct look_lane *asked = malloc(sizeof *asked);
    if (!asked)
        return;
    *asked = (struct look_lane){ k, lane };
    snprintf(consumer, sizeof consumer, "p%c-%s", lane->name[0], lane->name + 2);
    k->asked++;
    bus_consumer_info(k->bus, "droste_runs", consumer, look_on_consumer, asked);
}

static void look_ask_queue(struct look *k)
{
    k->asked += 2;
    bus_stream_info(k->bus, "droste_runs", look_on_runs, k);
    bus_stream_info(k->bus, "droste_dead_runs", look_on_dead, k);
    look_wait(k, ANSWER_MS, true);
    for (size_t i = 0; i < k->lane_count; i++)
        look_ask_lane(k, &k->lanes[i]);
    if (k->dead > 0) {
        k->asked++;
        bus_stream_next(
            k->bus, "droste_dead_runs", "droste.run.dead.>", k->last_dead, look_on_reason, k);
    }
    look_wait(k, ANSWER_MS, true);
}

/* ---- open and close ---- */

static struct bus_options look_options(const struct look *k)
{
    return (struct bus_options){ .urls = k->o->join,
        .name = "droste cluster",
        .credentials = k->o->credentials,
        .ca = k->o->ca };
}

/* An error: NATS does not answer. What else is missing is in the members. */
static int look_open(struct look *k, const struct cluster_look *o, struct error *err)
{
    k->o = o;
    uv_loop_init(&k->loop);
    uv_timer_init(&k->loop, &k->timer);
    k->timer.data = k;
    k->is_running = true;
    const struct bus_options options = look_options(k);
    int rc = bus_open(&k->loop, &options, &k->bus, err);
    if (rc < 0)
        return rc;
    k->asked = 1;
    bus_stream_info(k->bus, "KV_droste-nodes", look_on_bucket, k);
    look_wait(k, ANSWER_MS, true);
    if (!k->has_nodes)
        return 0;
    const struct registry_options nodes = { .bus = options };
    rc = registry_open(&k->loop, &nodes, &k->nodes, err);
    if (rc == 0)
        rc = bus_watch(k->bus, "droste_lanes", ">", look_on_lane, k, err);
    if (rc < 0)
        return rc;
    look_wait(k, HEARD_MS, false); /* a node that is silent now is lost */
    look_ask_queue(k);
    return 0;
}

static void look_close(struct look *k)
{
    if (!k->is_running)
        return;
    registry_close(k->nodes);
    bus_close(k->bus);
    uv_close((uv_handle_t *)&k->timer, NULL);
    uv_run(&k->loop, UV_RUN_DEFAULT);
    uv_loop_close(&k->loop);
}

/* By its place, NULL: there is no more. */
static const struct node *look_node(const struct look *k, size_t i)
{
    return k->nodes ? registry_at(k->nodes, i) : NULL;
}

/* ---- status ---- */

static const char *node_state(const struct node *n)
{
    return n->is_lost ? "lost" : n->is_draining ? "draining" : "up";
}

static void look_put_json(const struct look *k, struct buf *out)
{
    const struct node *n;
    field_open(out, NULL, '{');
    field_open(out, "nodes", '[');
    for (size_t i = 0; (n = look_node(k, i)); i++) {
        if (registry_is_gone(k->nodes, n))
            continue;
        field_open(out, NULL, '{');
        field_string(out, "name", n->name);
        field_string(out, "address", n->address);
        field_string(out, "version", n->version);
        field_string(out, "state", node_state(n));
        field_int(out, "sandboxes", (int64_t)n->sandboxes);
        field_int(out, "most", (int64_t)n->most);
        field_close(out, '}');
    }
    field_close(out, ']');
    field_open(out, "queue", '[');
    for (size_t i = 0; i < k->lane_count; i++) {
        field_open(out, NULL, '{');
        field_string(out, "key", k->lanes[i].name + 2);
        field_int(out, "priority", k->lanes[i].name[0] - '0');
        field_int(out, "waiting", (int64_t)k->lanes[i].waiting);
        field_int(out, "running", (int64_t)k->lanes[i].running);
        field_close(out, '}');
    }
    field_close(out, ']');
    field_int(out, "runs", (int64_t)k->runs);
    field_int(out, "dead", (int64_t)k->dead);
    field_close(out, '}');
    buf_putc(out, '\n');
}

static void look_put_text(const struct look *k, struct buf *out)
{
    const struct node *n;
    buf_printf(
        out, "%-20s %-8s %-10s %12s  %s\n", "NODE", "STATE", "VERSION", "SANDBOXES", "ADDRESS");
    for (size_t i = 0; (n = look_node(k, i)); i++)
        if (!registry_is_gone(k->nodes, n))
            buf_printf(out, "%-20s %-8s %-10s %5llu of %-4llu %s\n", n->name, node_state(n),
                n->version, (unsigned long long)n->sandboxes, (unsigned long long)n->most,
                n->address);
    buf_printf(out, "\n%llu run%s in the queue, %llu dead letter%s\n", (unsigned long long)k->runs,
        k->runs == 1 ? "" : "s", (unsigned long long)k->dead, k->dead == 1 ? "" : "s");
    if (k->runs == 0)
        return;
    buf_printf(out, "%-20s %8s %8s %8s\n", "KEY", "PRIORITY", "WAITING", "RUNNING");
    for (size_t i = 0; i < k->lane_count; i++)
        if (k->lanes[i].waiting + k->lanes[i].running > 0)
            buf_printf(out, "%-20s %8c %8llu %8llu\n", k->lanes[i].name + 2, k->lanes[i].name[0],
                (unsigned long long)k->lanes[i].waiting, (unsigned long long)k->lanes[i].running);
}

int cluster_look_status(const struct cluster_look *o)
{
    cleanup_free struct look *k = calloc(1, sizeof *k);
    cleanup_buf struct buf out = { 0 };
    struct error err = { 0 };
    int rc = k ? look_open(k, o, &err) : error_memory(&err);
    if (rc == 0 && !k->has_jetstream)
        rc = error_set(&err, ERROR_UNSUPPORTED, "JetStream of the NATS server: %s", k->why);
    if (rc == 0 && o->json)
        look_put_json(k, &out);
    else if (rc == 0)
        look_put_text(k, &out);
    if (rc == 0)
        cli_print(stdout, buf_text(&out), out.len);
    if (k)
        look_close(k);
    return cli_end(rc, &err, "the cluster's state");
}

/* ---- doctor ---- */

struct checks {
    const struct look *k;
    struct findings findings;
    bool works;
};

static void __attribute__((format(printf, 5, 6))) check_put(struct checks *c, const char *name,
    const char *state, const char *cure, const char *format, ...)
{
    char text[600];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (strcmp(state, "wrong") == 0)
        c->works = false;
    size_t len = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    const droste_finding f = {
        .name = name, .state = state, .text = text, .len = len, .cure = cure
    };
    findings_put(&c->findings, &f);
}

static void check_certificates(struct checks *c)
{
    cleanup_free char *urls = strdup(c->k->o->join);
    char *rest = urls;
    for (const char *url; urls && (url = strsep(&rest, ","));) {
        struct error err = { 0 };
        time_t until = 0;
        if (strncmp(url, "tls://", 6) != 0)
            continue;
        if (certificate_end_of_nats(url + 6, &until, &err) < 0) {
            check_put(c, "certificate", "wrong", "start the server with TLS, or name it nats://",
                "%.200s: %s", url, err.text);
            continue;
        }
        long long days = (long long)(until - time(NULL)) / DAY_SECONDS;
        bool ends = days < CERTIFICATE_DAYS;
        check_put(c, "certificate", ends ? "warning" : "ok",
            ends ? "renew the server's certificate, and reload nats-server" : NULL,
            "that of %.200s is valid for %lld days", url, days);
    }
}

/* Of the nodes that are up: how many, and a summary of their versions. */
static size_t check_versions(struct checks *c)
{
    cleanup_buf struct buf versions = { 0 };
    const struct node *n;
    size_t up = 0, kinds = 0;
    for (size_t i = 0; (n = look_node(c->k, i)); i++) {
        bool known = false;
        if (n->is_lost)
            continue;
        up++;
        for (size_t j = 0; j < i && !known; j++) {
            const struct node *other = look_node(c->k, j);
            known = !other->is_lost && strcmp(other->version, n->version) == 0;
        }
        if (!known)
            buf_printf(&versions, "%s%s", kinds++ ? ", " : "", n->version);
    }
    if (up > 0)
        check_put(c, "versions", kinds > 1 ? "warning" : "ok",
            kinds > 1 ? "finish the upgrade: a run of one version may wait for a node that has it"
                      : NULL,
            "%s", buf_text(&versions));
    return up;
}

static void check_names(struct checks *c)
{
    const struct node *n, *other;
    for (size_t i = 0; (n = look_node(c->k, i)); i++) {
        if (n->is_lost && !registry_is_gone(c->k->nodes, n))
            check_put(c, "stale", "warning",
                "start it again, or look whether its machine reaches NATS; a node that does not "
                "come back is forgotten after an hour",
                "node %s at %s is not heard of", n->name, n->address);
        for (size_t j = 0; j < i && !n->is_lost; j++) {
            other = look_node(c->k, j);
            if (!other->is_lost && strcmp(other->name, n->name) == 0)
                check_put(c, "names", "warning", "give each node a name of its own (--node)",
                    "two nodes are called %s", n->name);
        }
    }
}

/* ---- each node, as others reach it ---- */

struct node_answer {
    time_t date;
};

static size_t look_on_head(char *data, size_t size, size_t count, void *arg)
{
    struct node_answer *a = arg;
    cleanup_free char *line = text_copy(data, size * count);
    if (line && strncasecmp(line, "Date: ", 6) == 0)
        a->date = curl_getdate(line + 6, NULL);
    return size * count;
}

static size_t look_on_body(char *data, size_t size, size_t count, void *arg)
{
    return size * count;
}

/* Returns what is wrong with it; NULL: it answers. *ahead: how its clock differs from ours. */
static const char *node_ask(const struct node *n, long long *ahead)
{
    struct node_answer a = { 0 };
    char url[NODE_ADDRESS_SIZE + 20];
    CURL *curl = curl_easy_init();
    if (!curl)
        return "out of memory";
    snprintf(url, sizeof url, "http://%s/health", n->address);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)HTTP_SECONDS);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, look_on_head);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, &a);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, look_on_body);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_cleanup(curl);
    if (code != CURLE_OK)
        return curl_easy_strerror(code);
    *ahead = a.date > 0 ? (long long)(a.date - time(NULL)) : 0;
    return NULL;
}

static void check_addresses(struct checks *c)
{
    const struct node *n;
    size_t fine = 0;
    long long most = 0;
    for (size_t i = 0; (n = look_node(c->k, i)); i++) {
        long long ahead = 0;
        const char *why = n->is_lost ? NULL : node_ask(n, &ahead);
        if (n->is_lost)
            continue;
        if (why)
            check_put(c, "address", "wrong",
                "nodes must reach each other: set --advertise, and open the port",
                "node %s at %s: %s", n->name, n->address, why);
        else if (llabs(ahead) > CLOCK_SECONDS)
            check_put(c, "clock", "wrong", "run chrony or systemd-timesyncd on both machines",
                "the clock of node %s differs by %lld s from this machine's", n->name, ahead);
        fine += !why;
        most = !why && llabs(ahead) > most ? llabs(ahead) : most;
    }
    if (fine > 0)
        check_put(c, "addresses", "ok", NULL,
            "%zu node%s can be reached from here, with clocks that differ by at most %lld s", fine,
            fine == 1 ? "" : "s", most);
}

static void check_queue(struct checks *c, size_t up)
{
    const struct look *k = c->k;
    uint64_t waiting = 0, running = 0;
    for (size_t i = 0; i < k->lane_count; i++) {
        waiting += k->lanes[i].waiting;
        running += k->lanes[i].running;
    }
    bool is_stuck = k->runs > 0 && running == 0;
    check_put(c, "queue", is_stuck ? "warning" : "ok",
        is_stuck  ? up > 0 ? "ask again; if it stays so, read the logs of the nodes"
                           : "start nodes: droste serve --join"
        : waiting ? "add nodes, or more runs on each (--runs), if they should end sooner"
                  : NULL,
        "%llu run%s under way, %llu wait", (unsigned long long)running, running == 1 ? "" : "s",
        (unsigned long long)waiting);
    if (k->dead > 0)
        check_put(c, "dead letters", "warning",
            "mend the reason, and queue them again under another id; they are kept for 30 days",
            "%llu run%s could not begin; the last one: %s", (unsigned long long)k->dead,
            k->dead == 1 ? "" : "s", k->why_dead);
    else
        check_put(c, "dead letters", "ok", NULL, "none");
}

static void check_cluster(struct checks *c)
{
    const struct look *k = c->k;
    if (!k->has_jetstream) {
        check_put(c, "jetstream", "wrong", "start nats-server with -js, and its files with -sd",
            "it does not answer: %s", k->why);
        return;
    }
    check_put(c, "jetstream", "ok", NULL, "it answers");
    size_t up = check_versions(c);
    if (up == 0)
        check_put(c, "nodes", "wrong", "start one: droste serve --join URLS --listen IP:PORT",
            k->has_nodes ? "there are none" : "none has ever joined");
    else
        check_put(c, "nodes", "ok", NULL, "%zu node%s", up, up == 1 ? " is up" : "s are up");
    check_names(c);
    check_addresses(c);
    check_queue(c, up);
}

int cluster_look_doctor(const struct cluster_look *o)
{
    cleanup_free struct look *k = calloc(1, sizeof *k);
    struct error err = { 0 };
    struct checks c = { .k = k, .works = true };
    if (!k)
        return cli_fail(EXIT_ENVIRONMENT, "out of memory");
    findings_begin(&c.findings, o->json);
    int rc = look_open(k, o, &err);
    if (rc < 0)
        check_put(&c, "nats", "wrong",
            "start nats-server -js there; look at the address, the firewall and --nats-creds", "%s",
            err.text);
    else
        check_put(&c, "nats", "ok", NULL, "%s answers", bus_server(k->bus));
    check_certificates(&c);
    if (rc == 0)
        check_cluster(&c);
    findings_print(&c.findings, c.works,
        c.works ? "The cluster works." : "The cluster does not work yet; follow the advice above.");
    look_close(k);
    return cli_finish(c.works ? EXIT_FINE : EXIT_ENVIRONMENT, "the checks");
}
