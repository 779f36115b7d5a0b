/* serve/metrics.c: GET /metrics, in Prometheus' text format: the table of figures, summed over the
 * workers. Labels have words of tables, and ids of keys, of which there are at most KEYS_MOST. */
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "serve/native/native.h"

static const struct metric {
    const char *name, *labels, *help; /* the help of the first row of a name */
} metric_counters[TABLE_COUNTERS] = {
    [COUNT_REQUESTS_2XX] = { "requests_total", "status=\"2xx\"", "Requests that were answered." },
    [COUNT_REQUESTS_4XX] = { "requests_total", "status=\"4xx\"", NULL },
    [COUNT_REQUESTS_5XX] = { "requests_total", "status=\"5xx\"", NULL },
    [COUNT_CREATED] = { "sandboxes_created_total", "", "Sandboxes that were created." },
    [COUNT_FORKED] = { "sandboxes_forked_total", "", "Sandboxes that are forks." },
    [COUNT_ENDED] = { "sandboxes_ended_total", "", "Sandboxes that have ended." },
    [COUNT_CELLS] = { "cells_total", "", "Cells that have ended." },
    [COUNT_RUNS] = { "runs_total", "", "Runs that were started or resumed." },
    [COUNT_RECEIVED] = { "received_bytes_total", "", "Bytes of requests' bodies." },
    [COUNT_SENT] = { "sent_bytes_total", "", "Bytes of answers' bodies." },
    [COUNT_RELAYED] = { "relayed_total", "", "Requests passed on to another worker." },
    [COUNT_REFUSED_KEY] = { "refused_total", "reason=\"key\"", "Requests that were refused." },
    [COUNT_REFUSED_SCOPE] = { "refused_total", "reason=\"scope\"", NULL },
    [COUNT_REFUSED_RATE] = { "refused_total", "reason=\"rate\"", NULL },
    [COUNT_REFUSED_SANDBOXES] = { "refused_total", "reason=\"sandboxes\"", NULL },
    [COUNT_REFUSED_COST] = { "refused_total", "reason=\"cost\"", NULL },
    [COUNT_REFUSED_CAPACITY] = { "refused_total", "reason=\"capacity\"", NULL },
    [COUNT_REFUSED_HEAD] = { "refused_total", "reason=\"head\"", NULL },
    [COUNT_REFUSED_SITE] = { "refused_total", "reason=\"site\"", NULL },
};

static const struct metric metric_gauges[TABLE_GAUGES] = {
    [GAUGE_CONNECTIONS] = { "connections", "", "Open connections." },
    [GAUGE_EXECUTING] = { "sandboxes_executing", "", "Sandboxes with an operation under way." },
    [GAUGE_RUNS] = { "runs", "", "Runs under way." },
    [GAUGE_WAITING] = { "creates_waiting", "", "Requests that wait for a sandbox." },
    [GAUGE_QUEUED] = { "cluster_queued_runs", "",
        "Runs in the cluster's queue, those under way included." },
};

static const struct metric metric_times[TABLE_HISTOGRAMS] = {
    [TIME_REQUEST] = { "request_seconds", "", "From a request's head to its end." },
    [TIME_CREATE] = { "create_seconds", "", "From a request for a sandbox to its answer." },
    [TIME_CELL] = { "cell_seconds", "", "From the start of a cell to its end." },
    [TIME_LOOP] = { "loop_delay_seconds", "", "How late the event loop served a timer." },
};

static void metric_describe(struct buf *out, const struct metric *m, const char *type)
{
    if (m->help)
        buf_printf(
            out, "# HELP droste_%s %s\n# TYPE droste_%s %s\n", m->name, m->help, m->name, type);
}

static void metric_put(struct buf *out, const struct metric *m, uint64_t value)
{
    buf_printf(out, "droste_%s%s%s%s %llu\n", m->name, *m->labels ? "{" : "", m->labels,
        *m->labels ? "}" : "", (unsigned long long)value);
}

static void metric_put_times(const struct table *t, struct buf *out, size_t which)
{
    const struct metric *m = &metric_times[which];
    uint64_t count = 0, sum = 0;
    metric_describe(out, m, "histogram");
    for (size_t b = 0; b < TABLE_BUCKETS; b++) {
        for (unsigned w = 0; w < t->workers; w++)
            count += t->worker[w].times[which].buckets[b];
        buf_printf(out, "droste_%s_bucket{le=\"", m->name);
        if (isinf(table_bound(b)))
            buf_puts(out, "+Inf");
        else
            json_append_number(out, table_bound(b));
        buf_printf(out, "\"} %llu\n", (unsigned long long)count);
    }
    for (unsigned w = 0; w < t->workers; w++)
        sum += t->worker[w].times[which].sum_ns;
    buf_printf(out, "droste_%s_sum ", m->name);
    json_append_number(out, (double)sum / 1e9);
    buf_printf(out, "\ndroste_%s_count %llu\n", m->name, (unsigned long long)count);
}

static void metric_put_accounts(const struct table *t, struct buf *out)
{
    static const struct metric rows[] = {
        { "key_sandboxes", "", "Sandboxes of a key." },
        { "key_created_total", "", "Sandboxes that a key has created." },
        { "key_refused_total", "", "Requests of a key that its limits or the server's refused." },
        { "key_input_tokens_total", "", "Tokens that models were given for a key." },
        { "key_output_tokens_total", "", "Tokens that models answered a key with." },
    };
    for (size_t m = 0; m < array_length(rows); m++) {
        metric_describe(out, &rows[m], m == 0 ? "gauge" : "counter");
        for (int i = 0; i < TABLE_ACCOUNTS && t->accounts[i].id[0]; i++) {
            const struct table_account *a = &t->accounts[i];
            const uint64_t values[array_length(rows)] = { table_account_sandboxes(t, i), a->created,
                a->refused, a->input_tokens, a->output_tokens };
            buf_printf(out, "droste_%s{key=\"%s\"} %llu\n", rows[m].name, a->id,
                (unsigned long long)values[m]);
        }
    }
}

static void metric_put_costs(const struct table *t, struct buf *out)
{
    static const struct metric cost = { "key_cost_dollars_total", "",
        "What models cost for a key, where their price is known." };
    metric_describe(out, &cost, "counter");
    for (int i = 0; i < TABLE_ACCOUNTS && t->accounts[i].id[0]; i++) {
        buf_printf(out, "droste_%s{key=\"%s\"} ", cost.name, t->accounts[i].id);
        json_append_number(out, (double)t->accounts[i].cost_nanodollars / 1e9);
        buf_putc(out, '\n');
    }
}

static void metrics_print(const struct table *t, struct buf *out)
{
    static const struct metric sandboxes = { "sandboxes", "", "Sandboxes." };
    static const struct metric up = { "worker_up", "", "Whether a worker runs." };
    static const struct metric starts = { "worker_starts_total", "", "How often it was started." };
    metric_describe(out, &sandboxes, "gauge");
    metric_put(out, &sandboxes, table_sandboxes(t));
    for (size_t i = 0; i < TABLE_GAUGES; i++) {
        uint64_t sum = 0;
        for (unsigned w = 0; w < t->workers; w++)
            sum += t->worker[w].gauges[i];
        metric_describe(out, &metric_gauges[i], "gauge");
        metric_put(out, &metric_gauges[i], sum);
    }
    for (size_t i = 0; i < TABLE_COUNTERS; i++) {
        uint64_t sum = 0;
        for (unsigned w = 0; w < t->workers; w++)
            sum += t->worker[w].counters[i];
        metric_describe(out, &metric_counters[i], "counter");
        metric_put(out, &metric_counters[i], sum);
    }
    for (size_t i = 0; i < TABLE_HISTOGRAMS; i++)
        metric_put_times(t, out, i);
    metric_describe(out, &up, "gauge");
    for (unsigned w = 0; w < t->workers; w++)
        buf_printf(out, "droste_worker_up{worker=\"%u\"} %d\n", w, t->worker[w].pid > 0);
    metric_describe(out, &starts, "counter");
    for (unsigned w = 0; w < t->workers; w++)
        buf_printf(
            out, "droste_worker_starts_total{worker=\"%u\"} %u\n", w, t->worker[w].generation);
    metric_put_accounts(t, out);
    metric_put_costs(t, out);
}

void handle_metrics(struct request *r)
{
    cleanup_buf struct buf out = { 0 };
    metrics_print(r->server->table, &out);
    cluster_put_metrics(r->server, &out);
    if (buf_failed(&out))
        request_refuse_memory(r);
    else
        request_reply(r, 200, "text/plain; version=0.0.4; charset=utf-8", out.data, out.len);
}
