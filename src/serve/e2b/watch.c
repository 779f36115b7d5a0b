/* serve/e2b/watch.c: watched directories: a stream of changes, or changes since the last question.
 *
 * A sandbox has no inotify, whose watches the kernel counts for all of a user's sandboxes. So a
 * watcher lists its directory and compares: a stream some times a second, and the other kind when
 * it is asked. Several changes between two looks are one. Requests for files are answered in their
 * order, so what a client has written before it asks is seen.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/random.h"
#include "base/text.h"
#include "serve/e2b/connect.h"
#include "serve/e2b/filesystem.h"
#include "serve/sandbox/sandbox.h"

enum { WATCHERS_MOST = 16, WATCH_ENTRIES_MOST = 5000, WATCH_DEPTH = 32 };
enum { WATCH_PAUSE_MS = 300, WATCH_ID_SIZE = 33 };
/* A look may take this part of the time, so that a large directory is looked at less often. */
enum { WATCH_SHARE = 20 };

/* An entry as it was, and where its name lies. */
struct watch_entry {
    size_t name;
    uint32_t mode;
    uint64_t size;
    int64_t mtime_ns;
};

struct watch_list {
    struct watch_entry *entries; /* by name */
    size_t count;
    struct buf names;
};

struct e2b_watcher {
    struct server *server;
    struct e2b_sandbox *e2b; /* NULL: it has ended */
    char sandbox[SERVE_ID_SIZE], id[WATCH_ID_SIZE];
    char *path;
    unsigned depth;
    bool has_entries, is_stream, has_begun, looks;
    struct connect_stream connect; /* of a stream */
    struct request *r;             /* the stream's, or one that waits for the next look; or NULL */
    struct watch_list seen;
    uint64_t looked_ns, next_ns;
    struct e2b_watcher *next;
};

/* ---- lists ---- */

static void watch_list_free(struct watch_list *list)
{
    free(list->entries);
    buf_free(&list->names);
    *list = (struct watch_list){ 0 };
}

static const char *watch_name(const struct watch_list *list, size_t i)
{
    return list->names.data + list->entries[i].name;
}

static int watch_by_name(const void *a, const void *b)
{
    return strcmp(((const droste_file_entry *)a)->name, ((const droste_file_entry *)b)->name);
}

/* False without memory. The entries are sorted. */
static bool watch_list_take(struct watch_list *list, droste_file_entry *entries, size_t count)
{
    *list = (struct watch_list){ .entries = calloc(count + 1, sizeof *list->entries) };
    if (!list->entries)
        return false;
    qsort(entries, count, sizeof *entries, watch_by_name);
    for (size_t i = 0; i < count; i++) {
        list->entries[list->count++] = (struct watch_entry){ .name = list->names.len,
            .mode = entries[i].mode,
            .size = entries[i].size,
            .mtime_ns = entries[i].mtime_ns };
        buf_append(&list->names, entries[i].name, strlen(entries[i].name) + 1);
    }
    return !buf_failed(&list->names);
}

/* ---- changes ---- */

/* What one look has found. */
struct watch_changes {
    const struct e2b_watcher *w;
    struct watch_list *now;
    const droste_file_entry *entries; /* those of `now` */
    struct json_object *events;
};

static void watch_add(
    struct watch_changes *c, const char *type, const char *name, const droste_file_entry *entry)
{
    struct json_object *o = json_object_new_object();
    cleanup_buf struct buf valid = { 0 };
    cleanup_free char *path = text_printf("%s/%s", c->w->path[1] ? c->w->path : "", name);
    text_append_utf8(&valid, name, strlen(name));
    json_put_text(o, "name", buf_text(&valid));
    json_put_text(o, "type", type);
    if (c->w->has_entries && entry && path)
        json_put(o, "entry", e2b_entry(path, entry));
    json_object_array_add(c->events, o);
}

/* An entry that was not there. E2B's own server gives a new file to its user, and clients count the
 * three events that this makes. */
static void watch_add_new(struct watch_changes *c, size_t i)
{
    const char *name = watch_name(c->now, i);
    watch_add(c, "EVENT_TYPE_CREATE", name, &c->entries[i]);
    if (!S_ISREG(c->entries[i].mode))
        return;
    watch_add(c, "EVENT_TYPE_CHMOD", name, &c->entries[i]);
    watch_add(c, "EVENT_TYPE_WRITE", name, &c->entries[i]);
}

/* Whether an entry that has gone is one that has come. */
static bool watch_has_moved(const struct watch_changes *c, const struct watch_entry *gone)
{
    const struct watch_list *before = &c->w->seen;
    for (size_t i = 0; i < c->now->count; i++) {
        const struct watch_entry *e = &c->now->entries[i];
        if (e->mtime_ns != gone->mtime_ns || e->size != gone->size || e->mode != gone->mode)
            continue;
        bool was_there = false;
        for (size_t k = 0; k < before->count && !was_there; k++)
            was_there = strcmp(watch_name(before, k), watch_name(c->now, i)) == 0;
        if (!was_there)
            return true;
    }
    return false;
}

static void watch_add_changed(struct watch_changes *c, size_t i, const struct watch_entry *before)
{
    const struct watch_entry *now = &c->now->entries[i];
    bool is_directory = S_ISDIR(now->mode); /* whose entries are watched, or not its own */
    if (now->mode != before->mode)
        watch_add(c, "EVENT_TYPE_CHMOD", watch_name(c->now, i), &c->entries[i]);
    if (!is_directory && (now->size != before->size || now->mtime_ns != before->mtime_ns))
        watch_add(c, "EVENT_TYPE_WRITE", watch_name(c->now, i), &c->entries[i]);
}

static void watch_compare(struct watch_changes *c)
{
    const struct watch_list *before = &c->w->seen;
    size_t i = 0, k = 0;
    while (i < c->now->count || k < before->count) {
        int order = i == c->now->count   ? 1
                    : k == before->count ? -1
                                         : strcmp(watch_name(c->now, i), watch_name(before, k));
        if (order < 0) {
            watch_add_new(c, i++);
        } else if (order == 0) {
            watch_add_changed(c, i++, &before->entries[k++]);
        } else {
            bool moved = watch_has_moved(c, &before->entries[k]);
            watch_add(c, moved ? "EVENT_TYPE_RENAME" : "EVENT_TYPE_REMOVE", watch_name(before, k++),
                NULL);
        }
    }
}

/* ---- watchers ---- */

static void watcher_unlink(struct e2b_watcher *w)
{
    struct e2b_watcher **at = w->e2b ? &w->e2b->watchers : NULL;
    while (at && *at && *at != w)
        at = &(*at)->next;
    if (at && *at)
        *at = w->next;
    w->e2b = NULL;
}

/* Ends it; it is gone, or goes with the answer that it waits for. */
static void watcher_drop(struct e2b_watcher *w)
{
    watcher_unlink(w);
    if (w->looks)
        return;
    watch_list_free(&w->seen);
    free(w->path);
    free(w);
}

void e2b_watchers_free(struct e2b_sandbox *e)
{
    while (e->watchers) {
        struct e2b_watcher *w = e->watchers;
        struct request *r = w->is_stream ? NULL : w->r;
        if (w->r) {
            w->r->state = NULL;
            w->r->on_free = NULL;
        }
        if (r)
            request_refuse(r, 502, "closed", "The sandbox was not found");
        connect_cut(&w->connect);
        w->r = NULL;
        watcher_drop(w);
    }
}

static void watcher_on_free(struct request *r)
{
    struct e2b_watcher *w = r->state;
    if (!w)
        return;
    w->r = NULL;
    connect_leave(&w->connect);
    if (w->is_stream || !w->has_begun)
        watcher_drop(w);
}

/* Gives its request up and ends it. */
static struct request *watcher_release(struct e2b_watcher *w)
{
    struct request *r = w->r;
    w->r = NULL;
    if (r) {
        r->state = NULL;
        r->on_free = NULL;
    }
    return r;
}

static void watcher_fail(struct e2b_watcher *w, unsigned status, const char *text)
{
    struct connect_stream *c = &w->connect;
    if (w->is_stream)
        connect_end(c, connect_code(status), text); /* the request's end drops it */
    else if (w->r)
        request_refuse(watcher_release(w), status, "file", "%s", text);
    if (!w->is_stream && !w->has_begun)
        watcher_drop(w);
}

/* The first look has succeeded. */
static void watcher_begin(struct e2b_watcher *w)
{
    w->has_begun = true;
    if (w->is_stream) {
        connect_push_event(&w->connect, "start", json_object_new_object());
        return;
    }
    struct json_object *o = json_object_new_object();
    json_put_text(o, "watcherId", w->id);
    request_reply_json(watcher_release(w), 200, o);
}

static void watcher_tell(struct e2b_watcher *w, struct json_object *events)
{
    if (!w->is_stream) {
        struct json_object *o = json_object_new_object();
        json_put(o, "events", json_object_get(events));
        if (w->r)
            request_reply_json(watcher_release(w), 200, o);
        else
            json_object_put(o);
        return;
    }
    for (size_t i = 0; i < json_length(events); i++)
        connect_push_event(
            &w->connect, "filesystem", json_object_get(json_object_array_get_idx(events, i)));
}

static void watcher_take(struct e2b_watcher *w, const droste_file_reply *reply)
{
    struct watch_list now = { 0 };
    droste_file_entry *entries = calloc(reply->count + 1, sizeof *entries);
    cleanup_json struct json_object *events = json_object_new_array();
    if (entries && reply->count > 0)
        memcpy(entries, reply->entries, reply->count * sizeof *entries);
    if (!entries || !events || !watch_list_take(&now, entries, reply->count)) {
        watch_list_free(&now);
        free(entries);
        watcher_fail(w, 503, "out of memory");
        return;
    }
    struct watch_changes changes = { .w = w, .now = &now, .entries = entries, .events = events };
    if (w->has_begun)
        watch_compare(&changes);
    watch_list_free(&w->seen);
    w->seen = now;
    free(entries);
    if (w->has_begun)
        watcher_tell(w, events);
    else
        watcher_begin(w);
}

static void watcher_on_list(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct e2b_watcher *w = arg;
    uint64_t now = clock_ns(), took = now - w->looked_ns;
    w->looks = false;
    w->next_ns = now + took * WATCH_SHARE;
    if (!w->e2b) {
        watcher_drop(w);
        return;
    }
    if (err && err->sys == ENOENT && w->has_begun && !w->is_stream) {
        const droste_file_reply none = { 0 }; /* it was removed, and what was in it */
        watcher_take(w, &none);
    } else if (err) {
        watcher_fail(w, e2b_file_status(err), err->text);
    } else if (reply->more) {
        watcher_fail(w, 429, "the directory has more entries than can be watched here");
    } else {
        watcher_take(w, reply);
    }
}

static void watcher_look(struct e2b_watcher *w)
{
    struct sandbox *sb = sandbox_find(w->server, w->sandbox);
    const droste_file_request request = {
        .op = "list", .path = w->path, .depth = w->depth, .most = WATCH_ENTRIES_MOST
    };
    droste_error err = { .code = DROSTE_ERROR_LOST, .text = "the sandbox has ended" };
    if (w->looks)
        return;
    w->looked_ns = clock_ns();
    w->looks = sb && droste_file_start(sb->session, &request, watcher_on_list, w, &err) == 0;
    if (!w->looks)
        watcher_fail(w, e2b_file_status(&err), err.text);
}

void e2b_watchers_sweep(struct e2b_sandbox *e, uint64_t now_ns)
{
    struct e2b_watcher *next;
    for (struct e2b_watcher *w = e->watchers; w && !e->paused; w = next) {
        next = w->next;
        bool reads = w->connect.request && request_unread(w->connect.request) == 0;
        if (w->is_stream && w->has_begun && reads && now_ns >= w->next_ns &&
            now_ns - w->looked_ns >= (uint64_t)WATCH_PAUSE_MS * 1000000)
            watcher_look(w);
    }
}

/* ---- calls ---- */

static size_t watchers_count(const struct e2b_sandbox *e)
{
    size_t n = 0;
    for (const struct e2b_watcher *w = e->watchers; w; w = w->next)
        n++;
    return n;
}

static void watcher_start(struct request *r, bool is_stream)
{
    struct e2b_sandbox *e = e2b_running_of(r);
    const char *path = json_get_string(r->json, "path", "");
    struct e2b_watcher *w = e ? calloc(1, sizeof *w) : NULL;
    if (!e)
        return;
    if (!w || !(w->path = e2b_path(r, e, path)) || random_hex(w->id, WATCH_ID_SIZE - 1, NULL) < 0) {
        request_refuse_memory(r);
        free(w ? w->path : NULL);
        free(w);
        return;
    }
    w->server = r->server;
    memcpy(w->sandbox, r->id, sizeof w->sandbox);
    w->depth = json_get_bool(r->json, "recursive", false) ? WATCH_DEPTH : 1;
    w->has_entries =
        json_get_bool(r->json, "includeEntry", json_get_bool(r->json, "include_entry", false));
    w->is_stream = is_stream;
    w->e2b = e;
    w->r = r;
    r->state = w;
    r->on_free = watcher_on_free;
    bool is_full = watchers_count(e) >= WATCHERS_MOST;
    w->next = e->watchers;
    e->watchers = w;
    if (is_stream) {
        w->connect.is_plain = true;
        connect_open(&w->connect, r, e);
    }
    if (is_full)
        watcher_fail(w, 429, "the sandbox has too many watchers");
    else
        watcher_look(w);
}

void e2b_handle_watch(struct request *r)
{
    if (connect_take_message(r))
        watcher_start(r, true);
}

void e2b_handle_watcher_create(struct request *r)
{
    watcher_start(r, false);
}

/* NULL: the request was refused. */
static struct e2b_watcher *watcher_of(struct request *r)
{
    struct e2b_sandbox *e = e2b_running_of(r);
    const char *id =
        json_get_string(r->json, "watcherId", json_get_string(r->json, "watcher_id", ""));
    if (!e)
        return NULL;
    for (struct e2b_watcher *w = e->watchers; w; w = w->next)
        if (!w->is_stream && w->has_begun && strcmp(w->id, id) == 0)
            return w;
    request_refuse(r, 404, "not_found", "watcher with id %.40s not found", id);
    return NULL;
}

void e2b_handle_watcher_events(struct request *r)
{
    struct e2b_watcher *w = watcher_of(r);
    if (!w)
        return;
    if (w->r || w->looks) {
        request_refuse(r, 409, "busy", "the watcher is being asked already");
        return;
    }
    w->r = r;
    r->state = w;
    r->on_free = watcher_on_free;
    watcher_look(w);
}

void e2b_handle_watcher_remove(struct request *r)
{
    struct e2b_watcher *w = watcher_of(r);
    if (!w)
        return;
    if (w->r)
        request_refuse(watcher_release(w), 404, "not_found", "the watcher was removed");
    watcher_drop(w);
    request_reply(r, 200, "application/json", "{}", 2);
}
