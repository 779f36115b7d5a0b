/* serve/e2b/image.c: what sandboxes start from: the built-in templates, and the listed snapshots.
 * These are memory of the worker that has made them. They outlive their sandbox, and end with their
 * key, with the worker, or when they are deleted.
 */
#include "serve/e2b/image.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "serve/e2b/embedded.h"
#include "serve/http/relay.h"

enum { SNAPSHOTS_MOST = 64, SNAPSHOT_PAGE = 100 };

static const char snapshot_tag[] = ":default";

struct e2b_snapshot_row {
    struct account *owner;
    struct e2b_image *image;
    char id[SERVE_ID_SIZE], name[SERVE_NAME_SIZE], sandbox[SERVE_ID_SIZE];
    int64_t created_us;
    struct e2b_snapshot_row *next;
};

/* The templates that E2B's clients ask for by these names: a sandbox of the server. */
static const char *const image_templates[] = { "base", "code-interpreter-v1" };

bool e2b_template_is_builtin(const char *name)
{
    for (size_t i = 0; i < array_length(image_templates); i++)
        if (strcmp(image_templates[i], name) == 0)
            return true;
    return false;
}

/* ---- images ---- */

void e2b_image_release(struct e2b_image *image)
{
    if (!image || --image->references > 0)
        return;
    droste_template_free(image->made);
    json_object_put(image->environment);
    free(image);
}

struct e2b_image *e2b_image_new(const struct e2b_sandbox *e, droste_template *made)
{
    struct e2b_image *image = calloc(1, sizeof *image);
    if (!image) {
        droste_template_free(made);
        return NULL;
    }
    image->references = 1;
    image->made = made;
    image->environment = json_object_get(e->environment);
    image->has_interpreter = e->has_interpreter;
    return image;
}

int e2b_image_exec(droste_session *session, const char *call, droste_error *err)
{
    cleanup_buf struct buf text = { 0 }, code = { 0 };
    buf_append(&text, embedded_snapshot, embedded_snapshot_size);
    buf_printf(&text, "\n%s\n", call);
    buf_puts(&code, "__import__('builtins').exec(");
    json_append_string(&code, buf_text(&text), text.len);
    buf_puts(&code, ", {})");
    return droste_session_exec_start(session, buf_text(&code), code.len, 0, 0, err);
}

int e2b_image_unpack(struct e2b_sandbox *e, bool has_files, droste_error *err)
{
    cleanup_buf struct buf call = { 0 };
    size_t len = 0;
    const char *env = json_text(e->environment, &len);
    buf_puts(&call, has_files ? "unpack(" : "os.environ.update(");
    buf_append(&call, env ? env : "{}", env ? len : 2);
    buf_puts(&call, ")");
    return e2b_image_exec(e->sandbox->session, buf_text(&call), err);
}

/* ---- the list ---- */

static bool snapshot_is_visible(const struct e2b_snapshot_row *row, const struct request *r)
{
    return row->owner == r->account || (r->account->key.scopes & SCOPE_ADMIN);
}

static struct e2b_snapshot_row **snapshot_find(struct request *r, const char *text)
{
    const char *colon = strchr(text, ':');
    size_t len = colon && strcmp(colon, snapshot_tag) == 0 ? (size_t)(colon - text) : strlen(text);
    struct e2b_snapshot_row **at = &r->server->snapshots;
    for (; *at; at = &(*at)->next) {
        const char *const names[] = { (*at)->name, (*at)->id };
        for (size_t i = 0; i < 2; i++)
            if (len > 0 && strlen(names[i]) == len && memcmp(names[i], text, len) == 0 &&
                snapshot_is_visible(*at, r))
                return at;
    }
    return NULL;
}

static void snapshot_drop(struct e2b_snapshot_row **at)
{
    struct e2b_snapshot_row *row = *at;
    *at = row->next;
    e2b_image_release(row->image);
    free(row);
}

void e2b_snapshots_sweep(struct server *s)
{
    struct e2b_snapshot_row **at = &s->snapshots;
    while (*at)
        if ((*at)->owner->is_revoked)
            snapshot_drop(at);
        else
            at = &(*at)->next;
}

void e2b_snapshots_close(struct server *s)
{
    while (s->snapshots)
        snapshot_drop(&s->snapshots);
}

/* With when it was made, by which pages are ordered; the SDKs ignore that. */
static struct json_object *snapshot_json(const struct e2b_snapshot_row *row)
{
    struct json_object *o = json_object_new_object(), *names = json_object_new_array();
    char text[SERVE_NAME_SIZE + sizeof snapshot_tag];
    snprintf(text, sizeof text, "%s%s", row->name[0] ? row->name : row->id, snapshot_tag);
    json_put_text(o, "snapshotID", text);
    if (row->name[0])
        json_object_array_add(names, json_object_new_string(text));
    json_put(o, "names", names);
    e2b_put_time(o, "createdAt", row->created_us);
    return o;
}

struct e2b_image *e2b_image_named(struct request *r, const char *name)
{
    struct e2b_snapshot_row **at = snapshot_find(r, name);
    return at ? (*at)->image : NULL;
}

bool e2b_snapshot_may_be_named(struct request *r, const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    if (name[n] == '\0' && n < SERVE_NAME_SIZE && !e2b_template_is_builtin(name))
        return true;
    request_refuse(r, 400, "argument",
        "name: a snapshot has at most %d letters, digits, '.', '_' or '-', and no template's name",
        SERVE_NAME_SIZE - 1);
    return false;
}

bool e2b_snapshots_have_room(struct request *r)
{
    size_t count = 0;
    for (const struct e2b_snapshot_row *row = r->server->snapshots; row; row = row->next)
        count += row->owner == r->account;
    if (count < SNAPSHOTS_MOST)
        return true;
    request_refuse(
        r, 409, "quota", "there are %d snapshots, which is the most; delete some", SNAPSHOTS_MOST);
    return false;
}

/* Of two snapshots of a worker, the later has the later time. */
static int64_t snapshot_now_us(const struct server *s)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    return s->snapshots && s->snapshots->created_us >= us ? s->snapshots->created_us + 1 : us;
}

void e2b_snapshot_keep(struct request *r, struct e2b_image *image, const char *sandbox)
{
    const char *name = json_get_string(r->json, "name", "");
    struct e2b_snapshot_row *row = calloc(1, sizeof *row), **old;
    if (!row || server_make_id(r->server, row->id) < 0) {
        free(row);
        e2b_image_release(image);
        request_refuse_memory(r);
        return;
    }
    if (*name && (old = snapshot_find(r, name)) && (*old)->owner == r->account)
        snapshot_drop(old);
    snprintf(row->name, sizeof row->name, "%s", name);
    snprintf(row->sandbox, sizeof row->sandbox, "%s", sandbox);
    row->owner = r->account;
    row->image = image;
    row->created_us = snapshot_now_us(r->server);
    row->next = r->server->snapshots;
    r->server->snapshots = row;
    request_reply_json(r, 201, snapshot_json(row));
}

/* ---- the routes ---- */

static int snapshot_compare(const void *a, const void *b)
{
    struct json_object *x = *(struct json_object *const *)a, *y = *(struct json_object *const *)b;
    return strcmp(json_get_string(y, "createdAt", ""), json_get_string(x, "createdAt", ""));
}

/* The limit and the cursor hold for the joined list. */
static void snapshots_finish(struct request *r, struct json_object *all)
{
    const char *token = request_parameter(r, "nextToken"), *limit = request_parameter(r, "limit");
    size_t most = limit ? (size_t)strtoul(limit, NULL, 10) : SNAPSHOT_PAGE;
    struct json_object *page = json_object_new_array();
    const char *last = NULL, *next = NULL;
    json_object_array_sort(all, snapshot_compare);
    for (size_t i = 0; page && i < json_length(all) && !next; i++) {
        struct json_object *one = json_object_array_get_idx(all, i);
        const char *created = json_get_string(one, "createdAt", "");
        if (token && strcmp(created, token) >= 0)
            continue;
        if (json_length(page) == most)
            next = last;
        else
            json_object_array_add(page, json_object_get(one));
        last = created;
    }
    request_reply_json(r, 200, page);
    if (next)
        request_header(r, "X-Next-Token", next);
    json_object_put(all);
}

void e2b_handle_snapshots(struct request *r)
{
    const char *sandbox = request_parameter(r, "sandboxID"), *name = request_parameter(r, "name");
    const char *limit = request_parameter(r, "limit");
    char *end = NULL;
    long most = limit ? strtol(limit, &end, 10) : SNAPSHOT_PAGE;
    if (most < 1 || most > SNAPSHOT_PAGE || (end && *end)) {
        request_refuse(r, 400, "argument", "limit must be a number from 1 to %d", SNAPSHOT_PAGE);
        return;
    }
    struct json_object *own = json_object_new_array();
    for (struct e2b_snapshot_row *row = r->server->snapshots; own && row; row = row->next)
        if (snapshot_is_visible(row, r) && (!sandbox || strcmp(row->sandbox, sandbox) == 0) &&
            (!name || strcmp(row->name, name) == 0))
            json_object_array_add(own, snapshot_json(row));
    relay_gather(r, "snapshots", own, snapshots_finish);
}

void e2b_handle_template_delete(struct request *r)
{
    struct e2b_snapshot_row **at = snapshot_find(r, r->name);
    if (!at && relay_on(r))
        return;
    if (!at) {
        request_refuse(r, 404, "not_found", "there is no snapshot '%s'", r->name);
        return;
    }
    snapshot_drop(at);
    request_reply(r, 204, NULL, NULL, 0);
}
