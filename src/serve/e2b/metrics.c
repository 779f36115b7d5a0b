/* serve/e2b/metrics.c: what sandboxes use, as E2B's clients ask for it.
 *
 * The figures are taken when a client asks, at most once a second, and kept for its later questions
 * about earlier times. A sandbox that no client asks about costs nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "serve/e2b/e2b.h"
#include "serve/http/relay.h"

enum { METRICS_KEPT = 64, METRICS_SECONDS = 1 };

struct metrics_point {
    int64_t us; /* since 1970 */
    double cpu_percent;
    droste_usage used;
};

struct e2b_metrics {
    struct metrics_point points[METRICS_KEPT];
    size_t count; /* so far; the last METRICS_KEPT are kept */
};

static struct metrics_point *metrics_last(struct e2b_metrics *m)
{
    return m->count > 0 ? &m->points[(m->count - 1) % METRICS_KEPT] : NULL;
}

/* Of all processors, since the point before, or since the start. */
static double metrics_cpu_percent(
    const struct e2b_sandbox *e, const struct metrics_point *before, double cpu_seconds, int64_t us)
{
    double used = cpu_seconds - (before ? before->used.cpu_seconds : 0);
    double seconds = (double)(us - (before ? before->us : e->started_us)) / 1e6;
    return used <= 0 || seconds <= 0 ? 0 : 100 * used / seconds / e2b_cpu_count();
}

/* Adds a point for now, unless the last is as new. False: the sandbox's figures are not known. */
static bool metrics_take(struct e2b_sandbox *e)
{
    struct metrics_point now = { .us = clock_wall_ms() * 1000 };
    if (!e->metrics)
        e->metrics = calloc(1, sizeof *e->metrics);
    if (!e->metrics)
        return false;
    struct metrics_point *last = metrics_last(e->metrics);
    if (last && now.us - last->us < METRICS_SECONDS * 1000000)
        return true;
    if (droste_session_usage(e->sandbox->session, &now.used, NULL) < 0)
        return last != NULL;
    now.cpu_percent = metrics_cpu_percent(e, last, now.used.cpu_seconds, now.us);
    e->metrics->points[e->metrics->count++ % METRICS_KEPT] = now;
    return true;
}

static struct json_object *metrics_json(
    const struct e2b_sandbox *e, const struct metrics_point *point)
{
    struct json_object *o = json_object_new_object();
    const droste_usage *used = &point->used;
    int64_t disk = used->files_limit ? (int64_t)used->files_limit : e->disk_bytes;
    if (!o)
        return NULL;
    e2b_put_time(o, "timestamp", point->us);
    json_put(o, "timestampUnix", json_object_new_int64(point->us / 1000000));
    json_put(o, "cpuCount", json_object_new_int(e2b_cpu_count()));
    json_put(o, "cpuUsedPct", json_object_new_double(point->cpu_percent));
    json_put(o, "memUsed", json_object_new_int64((int64_t)used->memory));
    json_put(o, "memTotal", json_object_new_int64(e->memory_bytes));
    json_put(o, "memCache", json_object_new_int64((int64_t)used->files));
    json_put(o, "diskUsed", json_object_new_int64((int64_t)used->files));
    json_put(o, "diskTotal", json_object_new_int64(disk));
    return o;
}

/* Seconds since 1970 from the query; `fallback` without it. -1: the request was refused. */
static int64_t metrics_time(struct request *r, const char *name, int64_t fallback)
{
    const char *text = request_parameter(r, name);
    if (!text)
        return fallback;
    if (*text && strspn(text, "0123456789") == strlen(text) && strlen(text) < 16)
        return strtoll(text, NULL, 10);
    request_refuse(r, 400, "argument", "%s is a time in seconds since 1970", name);
    return -1;
}

void e2b_handle_metrics(struct request *r)
{
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    int64_t from = e ? metrics_time(r, "start", 0) : -1;
    int64_t to = from >= 0 ? metrics_time(r, "end", INT64_MAX) : -1;
    struct json_object *list = to >= 0 ? json_object_new_array() : NULL;
    if (!list)
        return;
    size_t count = metrics_take(e) ? e->metrics->count : 0;
    for (size_t i = count > METRICS_KEPT ? count - METRICS_KEPT : 0; i < count; i++) {
        const struct metrics_point *point = &e->metrics->points[i % METRICS_KEPT];
        if (point->us / 1000000 >= from && point->us / 1000000 <= to)
            json_object_array_add(list, metrics_json(e, point));
    }
    request_reply_json(r, 200, list);
}

/* ---- of several sandboxes ---- */

/* {"sandboxes": {ID: POINT}}, from the points of all workers. */
static void metrics_finish(struct request *r, struct json_object *all)
{
    struct json_object *o = json_object_new_object(), *by_id = json_object_new_object();
    for (size_t i = 0; by_id && i < json_length(all); i++) {
        struct json_object *one = json_object_array_get_idx(all, i);
        const char *id = json_get_string(one, "sandboxID", NULL);
        if (id)
            json_put(by_id, id, json_object_get(json_get_typed(one, "now", json_type_object)));
    }
    json_put(o, "sandboxes", by_id);
    json_object_put(all);
    request_reply_json(r, 200, o);
}

static bool metrics_wants(const char *ids, const char *id)
{
    size_t len = strlen(id);
    for (const char *at = strstr(ids, id); at; at = strstr(at + 1, id))
        if ((at == ids || at[-1] == ',') && (at[len] == ',' || at[len] == '\0'))
            return true;
    return false;
}

void e2b_handle_metrics_of_all(struct request *r)
{
    const char *ids = request_query(r, "sandbox_ids", NULL);
    struct json_object *own = ids ? json_object_new_array() : NULL;
    if (!own)
        return;
    for (struct sandbox *sb = r->server->sandboxes; sb; sb = sb->next) {
        struct e2b_sandbox *e = sb->e2b;
        if (!e || !e->ready || !sandbox_is_visible(sb, r->account) || !metrics_wants(ids, sb->id) ||
            !metrics_take(e))
            continue;
        struct json_object *one = json_object_new_object();
        json_put_text(one, "sandboxID", sb->id);
        json_put(one, "now", metrics_json(e, metrics_last(e->metrics)));
        json_object_array_add(own, one);
    }
    relay_gather(r, "sandboxes", own, metrics_finish);
}
