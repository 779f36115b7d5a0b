/* serve/native/run_list.c: the list of runs, in pages.
 *
 * A page of one server ends with the number of its last run in the record. In a cluster each node
 * has a record of its own: the newest runs of all are merged, each node's in the order of its
 * record, and `next` names for each node the last run that was shown: "NODE:NUMBER,NODE:NUMBER".
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "serve/http/relay.h"
#include "serve/native/runs.h"

/* Values are cut after so many bytes. */
enum { RUN_LIST_CUT = 4 << 10, RUN_LIST_MAX = 1000 };

static const char node_member[] = "node", number_member[] = "number";

struct run_page {
    struct request *r;
    droste_record *record;
    droste_record_filter filter;
    struct buf json; /* the runs; of a node, in arrays of their own */
    int64_t last, count;
};

/* ---- what is asked for ---- */

/* A number of the query; -1: it is none, and the request was refused. */
static int64_t page_number(struct request *r, const char *name, const char *fallback)
{
    const char *text = request_query(r, name, fallback);
    if (!text)
        return -1;
    int64_t number = run_parse_number(text);
    if (number < 0)
        request_refuse(r, 400, "argument", "%s is a number", name);
    return number;
}

/* {NODE: NUMBER}; NULL: it is not what a page ended with, and the request was refused. */
static struct json_object *page_cursor(struct request *r)
{
    const char *text = request_query(r, "before", "");
    cleanup_json struct json_object *cursor = text ? json_object_new_object() : NULL;
    if (text && strcmp(text, "0") == 0) /* as on one server: the first page */
        text = "";
    for (const char *at = text; cursor && *at;) {
        size_t len = strcspn(at, ","), name = strcspn(at, ":");
        cleanup_free char *node = name < len ? strndup(at, name) : NULL;
        cleanup_free char *digits = node ? strndup(at + name + 1, len - name - 1) : NULL;
        int64_t number = digits && text_is_name(node) ? run_parse_number(digits) : -1;
        if (number < 0 || !json_put(cursor, node, json_object_new_int64(number))) {
            request_refuse(r, 400, "argument", "before is the `next` of another page");
            return NULL;
        }
        at += len + (at[len] == ',');
    }
    if (text && !cursor)
        request_refuse_memory(r);
    return steal(&cursor);
}

/* False: the request was refused. */
static bool page_read(struct request *r, struct run_page *page)
{
    int64_t limit = page_number(r, "limit", "50");
    const char *status = limit < 0 ? NULL : request_query(r, "status", "");
    const char *model = !status ? NULL : request_query(r, "model", "");
    if (!model)
        return false;
    if (limit < 1 || limit > RUN_LIST_MAX) {
        request_refuse(r, 400, "argument", "limit is a number from 1 to %d", RUN_LIST_MAX);
        return false;
    }
    *page = (struct run_page){ .r = r,
        .filter = { .status = status[0] ? status : NULL,
            .model = model[0] ? model : NULL,
            .limit = limit,
            .account = r->account->key.scopes & SCOPE_ADMIN ? NULL : r->account->key.id },
        .record = runs_record(r) };
    return !r->reply;
}

/* ---- of one server ---- */

static int page_add(void *arg, const droste_record_run *run, droste_error *err)
{
    struct run_page *page = arg;
    const bool is_node = page->r->server->nodes != NULL;
    buf_puts(&page->json, page->count++ ? ", " : "");
    buf_puts(&page->json, is_node ? "[" : "");
    page->last = run->seq;
    int rc = droste_record_json(page->record, run, RUN_LIST_CUT, runs_add_piece, &page->json, err);
    if (is_node)
        buf_printf(&page->json, ", %lld]", (long long)run->seq);
    return rc;
}

/* False: the request was refused. */
static bool page_fill(struct run_page *page)
{
    droste_error err = { 0 };
    if (page->record && droste_record_list(page->record, &page->filter, page_add, page, &err) < 0)
        request_fail(page->r, &err);
    return !page->r->reply;
}

static void page_reply(struct request *r, struct run_page *page)
{
    page->filter.before = page_number(r, "before", "0");
    if (page->filter.before < 0)
        return;
    buf_puts(&page->json, "{\"runs\": [");
    if (!page_fill(page))
        return;
    if (page->count == page->filter.limit)
        buf_printf(&page->json, "], \"next\": %lld}", (long long)page->last);
    else
        buf_puts(&page->json, "], \"next\": null}");
    request_reply_written(r, 200, &page->json);
}

/* ---- of the nodes of a cluster ---- */

/* The runs of this node, each with its node and number; NULL: the request was refused. */
static struct json_object *page_of_node(struct run_page *page)
{
    struct json_object *pairs = NULL;
    buf_puts(&page->json, "[");
    if (!page_fill(page))
        return NULL;
    buf_puts(&page->json, "]");
    (void)json_parse_written(&page->json, &pairs, NULL);
    struct json_object *runs = pairs ? json_object_new_array() : NULL;
    for (size_t i = 0; runs && i < json_length(pairs); i++) {
        struct json_object *pair = json_object_array_get_idx(pairs, i);
        struct json_object *run = json_object_get(json_object_array_get_idx(pair, 0));
        json_put_text(run, node_member, page->r->server->options->node);
        json_put(run, number_member, json_object_get(json_object_array_get_idx(pair, 1)));
        if (json_object_array_add(runs, run) < 0)
            json_object_put(run);
    }
    json_object_put(pairs);
    if (!runs)
        request_refuse_memory(page->r);
    return runs;
}

/* The runs of a node, in the list of all. */
struct node_runs {
    size_t at, end;
};

/* Nodes' runs stand together. NULL without memory. */
static struct node_runs *page_split(struct json_object *all, size_t *count)
{
    struct node_runs *nodes = NULL;
    size_t room = 0;
    const char *name = "";
    for (size_t i = 0; i < json_length(all); i++) {
        const char *node = json_get_string(json_object_array_get_idx(all, i), node_member, "");
        if (i == 0 || strcmp(node, name) != 0) {
            if (!array_room(nodes, *count, &room)) {
                free(nodes);
                return NULL;
            }
            nodes[(*count)++] = (struct node_runs){ i, i };
        }
        name = node;
        nodes[*count - 1].end = i + 1;
    }
    return nodes;
}

/* The node whose next run is the newest; NULL: all are shown. */
static struct node_runs *page_newest(struct json_object *all, struct node_runs *nodes, size_t count)
{
    struct node_runs *best = NULL;
    const char *newest = "";
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].at == nodes[i].end)
            continue;
        struct json_object *run = json_object_array_get_idx(all, nodes[i].at);
        const char *started = json_get_string(run, "started", "");
        if (!best || strcmp(started, newest) > 0) {
            best = &nodes[i];
            newest = started;
        }
    }
    return best;
}

/* Whether a node may have more of them. */
static bool page_goes_on(const struct node_runs *nodes, size_t count, int64_t limit)
{
    size_t begin = 0;
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].at < nodes[i].end || (int64_t)(nodes[i].end - begin) >= limit)
            return true;
        begin = nodes[i].end;
    }
    return false;
}

static bool page_put_next(struct json_object *out, struct json_object *cursor)
{
    cleanup_buf struct buf text = { 0 };
    json_object_object_foreach(cursor, node, number)
    {
        buf_printf(&text, "%s%s:%lld", text.len > 0 ? "," : "", node,
            (long long)json_object_get_int64(number));
    }
    return !buf_failed(&text) && json_put_string(out, "next", buf_text(&text), text.len);
}

static void page_merge(struct request *r, struct json_object *all)
{
    size_t count = 0;
    int64_t limit = page_number(r, "limit", "50"), shown = 0;
    cleanup_json struct json_object *cursor = page_cursor(r);
    cleanup_free struct node_runs *nodes = page_split(all, &count);
    struct json_object *out = json_object_new_object(), *runs = NULL;
    struct node_runs *newest;
    bool fine = cursor && (nodes || json_length(all) == 0) && out &&
                json_put(out, "runs", (runs = json_object_new_array()));
    while (fine && shown < limit && (newest = page_newest(all, nodes, count))) {
        struct json_object *run = json_object_array_get_idx(all, newest->at++);
        const char *node = json_get_string(run, node_member, "");
        fine = json_put(cursor, node, json_object_new_int64(json_get_int(run, number_member, 0))) &&
               json_object_array_add(runs, json_object_get(run)) == 0;
        if (json_object_is_type(run, json_type_object))
            json_object_object_del(run, number_member);
        shown++;
    }
    fine = fine && (page_goes_on(nodes, count, limit) ? page_put_next(out, cursor)
                                                      : json_put_text(out, "next", NULL));
    json_object_put(all);
    if (fine) {
        request_reply_json(r, 200, out);
        return;
    }
    json_object_put(out);
    if (!r->reply)
        request_refuse_memory(r);
}

static void page_gather(struct request *r, struct run_page *page)
{
    cleanup_json struct json_object *cursor = page_cursor(r);
    if (!cursor)
        return;
    page->filter.before = json_get_int(cursor, r->server->options->node, 0);
    struct json_object *runs = page_of_node(page);
    if (runs)
        relay_gather_shared(r, "runs", runs, page_merge);
}

void handle_run_list(struct request *r)
{
    struct run_page page = { 0 };
    if (page_read(r, &page) && r->server->nodes)
        page_gather(r, &page);
    else if (!r->reply)
        page_reply(r, &page);
    buf_free(&page.json);
}
