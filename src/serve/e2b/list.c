/* serve/e2b/list.c: the list of sandboxes, with filters and pages.
 *
 * Each worker describes its own, one more than a page, and the one that was asked sorts them. The
 * cursor is the time at which the last one of a page was started, which no two sandboxes share.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/e2b/e2b.h"
#include "serve/http/relay.h"
#include "serve/sandbox/sandbox.h"

enum { LIST_MOST = 100 };

struct list_filter {
    struct json_object *metadata; /* what a sandbox must have */
    const char *state, *template;
    bool ascending;
    int64_t after_us, before_us; /* the cursor; 0: none */
    int64_t from_us;             /* startedAfter, inclusive */
    int64_t limit;
};

/* Unescapes a part of the metadata, which is escaped within an escaped query. */
static char *list_unescape(const char *text, size_t len)
{
    char *out = text_copy(text, len);
    for (char *p = out; p && *p; p++)
        if (*p == '+')
            *p = ' ';
    if (out)
        MHD_http_unescape(out);
    return out;
}

/* The query is escaped once more than a query's values are. */
static void list_take_metadata(struct list_filter *f, const char *query)
{
    cleanup_free char *whole = query ? list_unescape(query, strlen(query)) : NULL;
    const char *text = whole;
    while (text && *text) {
        size_t len = strcspn(text, "&"), key = strcspn(text, "=&");
        if (key < len) {
            cleanup_free char *name = list_unescape(text, key);
            cleanup_free char *value = list_unescape(text + key + 1, len - key - 1);
            if (name && value)
                json_put_text(f->metadata, name, value);
        }
        text += len + (text[len] == '&');
    }
}

/* RFC 3339 with any fraction, in UTC or with an offset; -1: it is none. */
static int64_t list_time(const char *text)
{
    struct tm tm = { 0 };
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    int64_t us = 0, unit = 100000;
    if (!rest)
        return -1;
    if (*rest == '.')
        for (rest++; *rest >= '0' && *rest <= '9'; rest++, unit /= 10)
            us += (*rest - '0') * unit;
    int hours = 0, minutes = 0, sign = *rest == '-' ? 1 : -1;
    if (*rest == '+' || *rest == '-' || *rest == ' ')
        sscanf(rest + 1, "%2d:%2d", &hours, &minutes);
    else if (*rest != 'Z' && *rest != 'z')
        return -1;
    return (int64_t)(timegm(&tm) + sign * (hours * 3600 + minutes * 60)) * 1000000 + us;
}

/* False: the request was refused. */
static bool list_take_filter(struct request *r, struct list_filter *f)
{
    const char *limit = request_parameter(r, "limit"), *cursor = request_parameter(r, "nextToken");
    const char *from = request_parameter(r, "startedAfter"), *order = request_parameter(r, "order");
    char *end = NULL;
    f->state = request_parameter(r, "state");
    f->template = request_parameter(r, "template");
    f->ascending = order && strcmp(order, "asc") == 0;
    f->limit = limit ? strtoll(limit, &end, 10) : LIST_MOST;
    if (f->limit < 1 || f->limit > LIST_MOST || (end && *end != '\0')) {
        request_refuse(r, 400, "argument", "limit must be a number from 1 to 100");
        return false;
    }
    int64_t at = cursor ? strtoll(cursor, &end, 10) : 0;
    if (cursor && (*end != '\0' || at <= 0)) {
        request_refuse(r, 400, "argument", "nextToken is none that this server gave");
        return false;
    }
    if (f->ascending)
        f->after_us = at;
    else
        f->before_us = at;
    f->from_us = from ? list_time(from) : 0;
    if (f->from_us < 0) {
        request_refuse(r, 400, "argument", "startedAfter is not a time");
        return false;
    }
    list_take_metadata(f, request_parameter(r, "metadata"));
    return true;
}

static bool list_has_metadata(const struct sandbox *sb, struct json_object *wanted)
{
    json_object_object_foreach(wanted, name, value)
    {
        const char *has = json_get_string(sb->metadata, name, NULL);
        if (!has || strcmp(has, json_object_get_string(value)) != 0)
            return false;
    }
    return true;
}

static bool list_has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ','), at += at ? 1 : 0)
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

static bool list_wants(const struct list_filter *f, const struct e2b_sandbox *e)
{
    if (f->state && !list_has_word(f->state, e->paused ? "paused" : "running"))
        return false;
    if (f->template && strcmp(f->template, e->template) != 0)
        return false;
    return e->started_us >= f->from_us && list_has_metadata(e->sandbox, f->metadata) &&
           (f->before_us == 0 || e->started_us < f->before_us) && e->started_us > f->after_us;
}

static int list_compare(const void *a, const void *b)
{
    struct json_object *x = *(struct json_object *const *)a, *y = *(struct json_object *const *)b;
    return strcmp(json_get_string(x, "startedAt", ""), json_get_string(y, "startedAt", ""));
}

/* The filter's part that concerns the answer; it was checked before. */
static void list_finish(struct request *r, struct json_object *all)
{
    const char *limit = request_parameter(r, "limit"), *order = request_parameter(r, "order");
    size_t most = limit ? (size_t)strtoul(limit, NULL, 10) : LIST_MOST, count = 0;
    bool ascending = order && strcmp(order, "asc") == 0;
    struct json_object *page = json_object_new_array();
    int64_t running = 0;
    char text[32];
    for (size_t i = 0; i < json_length(all); i++)
        running += json_get_int(json_object_array_get_idx(all, i), "running", 0);
    json_object_array_sort(all, list_compare);
    for (size_t i = 0, n = json_length(all); page && i < n && count <= most; i++) {
        struct json_object *one = json_object_array_get_idx(all, ascending ? i : n - 1 - i);
        if (!json_get_string(one, "sandboxID", NULL))
            continue;
        if (count++ < most)
            json_object_array_add(page, json_object_get(one));
    }
    const char *last = NULL;
    if (count > most)
        last = json_get_string(json_object_array_get_idx(page, most - 1), "startedAt", NULL);
    int64_t cursor = last ? list_time(last) : 0;
    request_reply_json(r, 200, page);
    snprintf(text, sizeof text, "%lld", (long long)running);
    request_header(r, "X-Total-Running", text);
    snprintf(text, sizeof text, "%lld", (long long)cursor);
    if (cursor > 0)
        request_header(r, "X-Next-Token", text);
    json_object_put(all);
}

/* This worker's: the first of a page and one more, and how many run. */
static struct json_object *list_own(struct request *r, const struct list_filter *f)
{
    struct json_object *list = json_object_new_array(), *marker = json_object_new_object();
    int64_t running = 0, count = 0;
    for (struct sandbox *sb = r->server->sandboxes; sb; sb = sb->next) {
        struct e2b_sandbox *e = sb->e2b;
        if (!e || !e->ready || !sandbox_is_visible(sb, r->account))
            continue;
        running += !e->paused;
        /* The newest come first; a page of the oldest needs all. */
        if (!list_wants(f, e) || (count > f->limit && !f->ascending))
            continue;
        json_object_array_add(list, e2b_describe(e));
        count++;
    }
    json_put(marker, "running", json_object_new_int64(running));
    json_object_array_add(list, marker);
    return list;
}

void e2b_handle_list(struct request *r)
{
    cleanup_json struct json_object *metadata = json_object_new_object();
    struct list_filter f = { .metadata = metadata };
    if (!metadata || !list_take_filter(r, &f))
        return;
    relay_gather(r, "sandboxes", list_own(r, &f), list_finish);
}
