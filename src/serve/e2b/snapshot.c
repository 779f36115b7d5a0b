/* serve/e2b/snapshot.c: see snapshot.h.
 *
 *   request ─► commands are listed ─► the turn in a context ─► files packed ─► template saved
 *           ─► a row of the list, or for forks: sandboxes created one by one from the image
 *
 * Snapshots are memory of the worker that has made them. They outlive their sandbox, and end with
 * their key, with the worker, or when they are deleted.
 */
#include "serve/e2b/snapshot.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "serve/e2b/embedded.h"
#include "serve/http/relay.h"
#include "serve/sandbox/sandbox.h"

enum { SNAPSHOTS_MOST = 64, SNAPSHOT_PAGE = 100, FORKS_MOST = 100, FORK_SECONDS = 15 };

static const char snapshot_tag[] = ":default";

struct e2b_snapshot_row {
    struct account *owner;
    struct e2b_image *image;
    char id[SERVE_ID_SIZE], name[SERVE_NAME_SIZE], sandbox[SERVE_ID_SIZE];
    int64_t created_us;
    struct e2b_snapshot_row *next;
};

/* ---- images ---- */

static void image_release(struct e2b_image *image)
{
    if (!image || --image->references > 0)
        return;
    droste_template_free(image->made);
    json_object_put(image->environment);
    free(image);
}

/* Takes the template. NULL without memory. */
static struct e2b_image *image_new(const struct e2b_sandbox *e, droste_template *made)
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

/* Code of snapshot.py, and then a call of it; the session keeps none of the names. */
static int image_exec(droste_session *session, const char *call, droste_error *err)
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
    return image_exec(e->sandbox->session, buf_text(&call), err);
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
    image_release(row->image);
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

static bool snapshot_is_named(struct request *r, const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    if (name[n] == '\0' && n < SERVE_NAME_SIZE && !e2b_template_is_builtin(name))
        return true;
    request_refuse(r, 400, "argument",
        "name: a snapshot has at most %d letters, digits, '.', '_' or '-', and no template's name",
        SERVE_NAME_SIZE - 1);
    return false;
}

static bool snapshot_has_room(struct request *r)
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

struct e2b_image *e2b_image_named(struct request *r, const char *name)
{
    struct e2b_snapshot_row **at = snapshot_find(r, name);
    return at ? (*at)->image : NULL;
}

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

/* ---- a request ---- */

void e2b_snapshot_release(struct e2b_snapshot *s)
{
    if (--s->references > 0)
        return;
    droste_template_free(s->made);
    image_release(s->image);
    json_object_put(s->answers);
    free(s);
}

static void snapshot_on_free(struct request *r)
{
    struct e2b_snapshot *s = r->state;
    r->state = NULL;
    if (!s)
        return;
    s->r = NULL;
    /* Forks whose client has gone would run until their deadline: no client knows their ids. */
    for (size_t i = 0; !r->reply && i < json_length(s->answers); i++) {
        struct json_object *one = json_object_array_get_idx(s->answers, i);
        const char *id =
            json_get_string(json_get_typed(one, "sandbox", json_type_object), "sandboxID", NULL);
        struct sandbox *sb = id ? sandbox_find(s->server, id) : NULL;
        if (sb)
            sandbox_close(sb);
    }
    e2b_snapshot_release(s);
}

void e2b_snapshot_fail(struct e2b_snapshot *s, unsigned status, const char *text)
{
    if (s->r && !s->r->reply)
        request_refuse(s->r, status, "snapshot", "%s", text);
}

/* ---- forks ---- */

static struct e2b_snapshot *fork_of(const struct request *r)
{
    struct e2b_snapshot *s =
        r->route && r->route->handle == e2b_handle_fork ? (struct e2b_snapshot *)r->state : NULL;
    return s && s->image ? s : NULL;
}

struct e2b_image *e2b_image_of(struct request *r)
{
    struct e2b_snapshot *s = fork_of(r);
    return s ? s->image : e2b_image_named(r, json_get_string(r->json, "templateID", ""));
}

static void fork_next(struct e2b_snapshot *s)
{
    struct request *r = s->r;
    if (json_length(s->answers) < s->count)
        e2b_create_from_image(r);
    else
        request_reply_json(r, 201, json_object_get(s->answers));
}

bool e2b_fork_add(struct request *r, struct json_object *described)
{
    struct e2b_snapshot *s = fork_of(r);
    struct json_object *o = s ? json_object_new_object() : NULL;
    if (!s)
        return false;
    json_put(o, "sandbox", described);
    json_object_array_add(s->answers, o);
    admission_settle(&r->admission);
    fork_next(s);
    return true;
}

bool e2b_fork_refuse(struct request *r, unsigned status, const char *text)
{
    struct e2b_snapshot *s = fork_of(r);
    while (s && json_length(s->answers) < s->count) {
        struct json_object *o = json_object_new_object(), *why = json_object_new_object();
        json_put(why, "code", json_object_new_int((int)status));
        json_put_text(why, "message", text);
        json_put(o, "error", why);
        json_object_array_add(s->answers, o);
    }
    if (s)
        fork_next(s);
    return s != NULL;
}

/* The forks are created as their sandbox was, with another deadline. */
static void fork_begin(struct e2b_snapshot *s, struct e2b_sandbox *e)
{
    struct request *r = s->r;
    struct json_object *asked = json_object_new_object();
    int64_t seconds = json_get_int(r->json, "timeout", FORK_SECONDS);
    json_object_object_foreach(e->asked, name, value)
    {
        json_put(asked, name, json_object_get(value));
    }
    json_put(asked, "timeout", json_object_new_int64(seconds));
    if (e->environment)
        json_put(asked, "envVars", json_object_get(e->environment));
    json_object_put(r->json);
    r->json = asked;
    fork_next(s);
}

/* ---- the steps ---- */

/* Of two snapshots of a worker, the later has the later time. */
static int64_t snapshot_now_us(const struct server *s)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    return s->snapshots && s->snapshots->created_us >= us ? s->snapshots->created_us + 1 : us;
}

static void snapshot_keep(struct e2b_snapshot *s)
{
    struct request *r = s->r;
    const char *name = json_get_string(r->json, "name", "");
    struct e2b_snapshot_row *row = calloc(1, sizeof *row), **old;
    if (!row || server_make_id(s->server, row->id) < 0) {
        free(row);
        request_refuse_memory(r);
        return;
    }
    if (*name && (old = snapshot_find(r, name)) && (*old)->owner == r->account)
        snapshot_drop(old);
    snprintf(row->name, sizeof row->name, "%s", name);
    memcpy(row->sandbox, s->id, sizeof row->sandbox);
    row->owner = r->account;
    row->image = steal(&s->image);
    row->created_us = snapshot_now_us(s->server);
    row->next = s->server->snapshots;
    s->server->snapshots = row;
    request_reply_json(r, 201, snapshot_json(row));
}

static void snapshot_on_saved(struct e2b_snapshot *s, struct e2b_sandbox *e)
{
    s->image = image_new(e, steal(&s->made));
    if (!s->r)
        return;
    if (!s->image)
        request_refuse_memory(s->r);
    else if (s->answers)
        fork_begin(s, e);
    else
        snapshot_keep(s);
}

int e2b_snapshot_pack(struct e2b_context *c, droste_error *err)
{
    char call[40];
    snprintf(call, sizeof call, "pack(%lld)", (long long)c->e2b->memory_bytes);
    int rc = image_exec(c->session, call, err);
    if (rc == 0)
        c->phase = CONTEXT_PACKING;
    return rc;
}

int e2b_snapshot_go_on(struct e2b_context *c, enum context_phase phase, const droste_result *result,
    const droste_error *ended, droste_error *err)
{
    struct e2b_snapshot *s = c->queue->snapshot;
    bool ok = !ended && (!result || strcmp(droste_result_status(result), "ok") == 0);
    const char *why = result ? droste_result_message(result) : NULL;
    int rc = 0;
    if (phase == CONTEXT_DROPPING)
        return 0;
    if (!ok)
        e2b_snapshot_fail(s, 400, ended ? ended->text : why ? why : "the files cannot be packed");
    if (phase == CONTEXT_PACKING && ok) {
        rc = droste_session_template_start(c->session, &s->made, err);
        c->phase = rc == 0 ? CONTEXT_SAVING : c->phase;
        return rc;
    }
    rc = image_exec(c->session, "drop()", err);
    c->phase = rc == 0 ? CONTEXT_DROPPING : c->phase;
    if (ok)
        snapshot_on_saved(s, c->e2b);
    return rc;
}

/* ---- the routes ---- */

/* The context whose variables are kept; NULL: the request was refused. */
static struct e2b_context *snapshot_context(struct e2b_snapshot *s, struct e2b_sandbox *e)
{
    bool with_memory = json_get_bool(s->r->json, "memory", true);
    struct e2b_context *c = with_memory ? e2b_context_default(e, "python") : e2b_context_hidden(e);
    if (!c)
        request_refuse_memory(s->r);
    for (struct e2b_context *other = e->contexts; c && with_memory && other; other = other->next)
        if (other != c && other->session && other->count > 0) {
            e2b_snapshot_fail(s, 400,
                "a snapshot keeps the variables of one code context, and another one has run code; "
                "remove that first");
            return NULL;
        }
    return c && e2b_context_has_room(s->r, c, 0) ? c : NULL;
}

static void snapshot_queue(struct e2b_snapshot *s, struct e2b_sandbox *e)
{
    struct e2b_context *c = snapshot_context(s, e);
    struct e2b_execution *x = c ? calloc(1, sizeof *x) : NULL;
    if (c && !x)
        request_refuse_memory(s->r);
    if (!x)
        return;
    s->references++;
    x->snapshot = s;
    e2b_context_queue(c, x);
}

/* Commands would be missing. */
static void snapshot_on_list(void *arg, const droste_command_reply *reply, const droste_error *err)
{
    struct e2b_snapshot *s = arg;
    struct sandbox *sb = s->r ? sandbox_find(s->server, s->id) : NULL;
    size_t running = 0;
    for (size_t i = 0; reply && i < reply->count; i++)
        running += !reply->commands[i].ended;
    if (s->r && (err || !sb))
        e2b_snapshot_fail(s, err ? 400 : 404, err ? err->text : "the sandbox has ended");
    else if (s->r && running > 0)
        e2b_snapshot_fail(s, 400,
            "a command is running in the sandbox, which a snapshot cannot keep; end it first");
    else if (s->r)
        snapshot_queue(s, sb->e2b);
    e2b_snapshot_release(s);
}

static struct e2b_snapshot *snapshot_new(struct request *r, struct e2b_sandbox *e)
{
    struct e2b_snapshot *s = request_alloc(r, sizeof *s);
    if (!s)
        return NULL;
    s->references = 1;
    s->r = r;
    s->server = r->server;
    memcpy(s->id, e->sandbox->id, sizeof s->id);
    r->state = s;
    r->on_free = snapshot_on_free;
    return s;
}

static void snapshot_start(struct request *r, struct e2b_sandbox *e, size_t forks)
{
    static const droste_command_request list = { .op = "list" };
    droste_error err;
    if (e->paused) {
        request_refuse(r, 409, "paused", "the sandbox is paused; resume it first");
        return;
    }
    if (!e->has_root) {
        request_refuse(r, 400, "unsupported",
            "snapshots and forks need sandboxes with a writable root (isolation full or light)");
        return;
    }
    struct e2b_snapshot *s = snapshot_new(r, e);
    if (!s)
        return;
    s->count = forks;
    s->answers = forks ? json_object_new_array() : NULL;
    s->references++;
    if (droste_command_start(e->sandbox->session, &list, snapshot_on_list, s, &err) < 0)
        snapshot_on_list(s, NULL, &err);
}

void e2b_handle_snapshot(struct request *r)
{
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    if (e && snapshot_is_named(r, json_get_string(r->json, "name", "")) && snapshot_has_room(r))
        snapshot_start(r, e, 0);
}

void e2b_handle_fork(struct request *r)
{
    struct e2b_sandbox *e = e2b_control_sandbox(r);
    int64_t count = json_get_int(r->json, "count", 1);
    double seconds;
    if (e && (count < 1 || count > FORKS_MOST))
        request_refuse(r, 400, "argument", "count must be a number from 1 to %d", FORKS_MOST);
    else if (e && e2b_take_timeout(r, FORK_SECONDS, &seconds))
        snapshot_start(r, e, (size_t)count);
}
