/* serve/e2b/filesystem.c: envd's calls about files: stat, list, make, move, remove. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/e2b/filesystem.h"
#include "serve/sandbox/exchange.h"
#include "serve/sandbox/sandbox.h"

enum { FILES_LIST_MOST = 10000, FILES_DEPTH_MOST = 64 };

/* ---- paths ---- */

char *e2b_path(struct request *r, const struct e2b_sandbox *e, const char *path)
{
    char user[E2B_USER_SIZE];
    cleanup_buf struct buf joined = { 0 }, out = { 0 };
    bool is_home = path[0] == '~' && (path[1] == '/' || path[1] == '\0');
    e2b_user_of(r, user);
    if (path[0] == '/')
        buf_puts(&joined, path);
    else
        buf_printf(&joined, "%s/%s", e2b_home(e, user), is_home ? path + 1 : path);
    for (const char *at = buf_text(&joined); *at;) {
        size_t n = strcspn(at, "/");
        if (n == 2 && at[0] == '.' && at[1] == '.') {
            while (out.len > 0 && out.data[--out.len] != '/')
                ;
        } else if (n > 0 && !(n == 1 && at[0] == '.')) {
            buf_putc(&out, '/');
            buf_append(&out, at, n);
        }
        at += n + (at[n] == '/');
    }
    if (out.len == 0)
        buf_putc(&out, '/');
    else if (out.data)
        out.data[out.len] = '\0';
    return buf_steal(&out);
}

/* ---- entries ---- */

/* As Go writes a mode. */
static void entry_permissions(uint32_t mode, bool is_link, char out[11])
{
    static const char bits[] = "rwxrwxrwx";
    out[0] = is_link ? 'L' : S_ISDIR(mode) ? 'd' : '-';
    for (int i = 0; i < 9; i++)
        out[i + 1] = mode & (0400u >> i) ? bits[i] : '-';
    out[10] = '\0';
}

static const char *entry_type(uint32_t mode)
{
    return S_ISREG(mode)   ? "FILE_TYPE_FILE"
           : S_ISDIR(mode) ? "FILE_TYPE_DIRECTORY"
                           : "FILE_TYPE_UNSPECIFIED";
}

/* A text of the sandbox, which need not be UTF-8. */
static void entry_put_text(struct json_object *o, const char *key, const char *text)
{
    cleanup_buf struct buf valid = { 0 };
    text_append_utf8(&valid, text, strlen(text));
    json_put_text(o, key, buf_text(&valid));
}

static void entry_put_name(struct json_object *o, const char *key, const char *name, uint32_t id)
{
    char number[16];
    snprintf(number, sizeof number, "%u", id);
    entry_put_text(o, key, name && name[0] ? name : number);
}

struct json_object *e2b_metadata(const droste_file_entry *entry)
{
    struct json_object *o = NULL;
    for (const char *at = entry->attributes ? entry->attributes : "", *end;
         (end = strchr(at, '\n')); at = end + 1) {
        const char *equals = strchr(at, '=');
        size_t prefix = strlen(E2B_METADATA);
        if (!equals || equals > end || strncmp(at, E2B_METADATA, prefix) != 0)
            continue;
        cleanup_free char *key = text_copy(at + prefix, (size_t)(equals - at) - prefix);
        o = o ? o : json_object_new_object();
        if (o && key)
            json_put_string(o, key, equals + 1, (size_t)(end - equals) - 1);
    }
    return o;
}

struct json_object *e2b_entry(const char *path, const droste_file_entry *entry)
{
    cleanup_buf struct buf valid = { 0 };
    struct json_object *o = json_object_new_object();
    size_t len = 0;
    char permissions[11], size[32];
    text_append_utf8(&valid, path, strlen(path));
    const char *name = text_last_name(buf_text(&valid), &len);
    if (!o)
        return NULL;
    bool is_link = S_ISLNK(entry->mode);
    uint32_t mode = is_link ? entry->target_mode : entry->mode;
    entry_permissions(entry->mode, is_link, permissions);
    snprintf(size, sizeof size, "%llu", (unsigned long long)entry->size);
    json_put_string(o, "name", name, len);
    json_put_text(o, "type", entry_type(mode));
    json_put_text(o, "path", buf_text(&valid));
    json_put_text(o, "size", size);
    json_put(o, "mode", json_object_new_int64(mode & 07777));
    json_put_text(o, "permissions", permissions);
    entry_put_name(o, "owner", entry->user, entry->uid);
    entry_put_name(o, "group", entry->group, entry->gid);
    if (entry->target && entry->target[0])
        entry_put_text(o, "symlinkTarget", entry->target);
    e2b_put_time(o, "modifiedTime", entry->mtime_ns / 1000);
    struct json_object *metadata = e2b_metadata(entry);
    if (metadata)
        json_put(o, "metadata", metadata);
    return o;
}

/* ---- calls ---- */

/* One call, which may be several requests to the sandbox. */
struct file_call {
    char *path, *to;
};

unsigned e2b_file_status(const droste_error *err)
{
    static const struct {
        int sys;
        unsigned status;
    } statuses[] = { { ENOENT, 404 }, { ENOTDIR, 400 }, { EISDIR, 400 }, { EINVAL, 400 },
        { ENAMETOOLONG, 400 }, { ELOOP, 400 }, { EEXIST, 409 }, { EACCES, 403 }, { EPERM, 403 },
        { EROFS, 403 }, { ENOSPC, 507 }, { EDQUOT, 507 }, { EOPNOTSUPP, 501 } };
    for (size_t i = 0; i < array_length(statuses); i++)
        if (err->sys == statuses[i].sys)
            return statuses[i].status;
    return err->code == DROSTE_ERROR_ARGUMENT      ? 400
           : err->code == DROSTE_ERROR_UNSUPPORTED ? 501
           : err->code == DROSTE_ERROR_LOST        ? 503
                                                   : 500;
}

static void file_call_fail(struct exchange *x, const droste_error *err)
{
    request_refuse(x->r, e2b_file_status(err), "file", "%s", err->text);
}

static void file_call_on_free(struct request *r)
{
    struct file_call *c = ((struct exchange *)r->state)->arg;
    free(c->path);
    free(c->to);
    free(c);
    exchange_on_free(r);
}

/* Of the path that the body's member `key` has, and (`to`, or NULL) another. */
static struct exchange *file_call_new(struct request *r, const char *key, const char *to)
{
    struct e2b_sandbox *e = e2b_running_of(r);
    struct exchange *x = e ? exchange_new(r) : NULL;
    struct file_call *c = x ? request_alloc(r, sizeof *c) : NULL;
    if (!c)
        return NULL;
    x->arg = c;
    x->fail = file_call_fail;
    r->on_free = file_call_on_free;
    c->path = e2b_path(r, e, json_get_string(r->json, key, ""));
    c->to = to ? e2b_path(r, e, json_get_string(r->json, to, "")) : NULL;
    if (c->path && (c->to || !to))
        return x;
    request_refuse_memory(r);
    return NULL;
}

/* Ends a call whose answer is one entry. */
static void file_call_on_entry(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    const droste_error none = { .code = DROSTE_ERROR_NOT_FOUND, .text = "there is no entry" };
    if (exchange_is_over(x, err || reply->count > 0 ? err : &none))
        return;
    const struct file_call *c = x->arg;
    struct json_object *o = json_object_new_object();
    json_put(o, "entry", e2b_entry(c->to ? c->to : c->path, &reply->entries[0]));
    request_reply_json(x->r, 200, o);
}

static void file_call_stat(struct exchange *x)
{
    const struct file_call *c = x->arg;
    const droste_file_request request = {
        .op = "stat", .path = c->to ? c->to : c->path, .flags = DROSTE_FILE_ATTRIBUTES
    };
    (void)exchange_ask_file(x, &request, file_call_on_entry);
}

void e2b_handle_stat(struct request *r)
{
    struct exchange *x = file_call_new(r, "path", NULL);
    if (x)
        file_call_stat(x);
}

/* ---- make a directory ---- */

static void make_on_stat(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    bool is_new = err && err->sys == ENOENT;
    if (exchange_is_over(x, is_new ? NULL : err))
        return;
    const struct file_call *c = x->arg;
    const droste_file_request request = {
        .op = "mkdir", .path = c->path, .flags = DROSTE_FILE_PARENTS
    };
    x->done = file_call_stat;
    if (is_new)
        (void)exchange_ask_file(x, &request, exchange_on_file_done);
    else if (reply->count > 0 && S_ISDIR(reply->entries[0].mode))
        request_refuse(x->r, 409, "exists", "directory already exists: %s", c->path);
    else
        request_refuse(x->r, 400, "exists", "path already exists, as a file: %s", c->path);
}

void e2b_handle_make_directory(struct request *r)
{
    struct exchange *x = file_call_new(r, "path", NULL);
    if (!x)
        return;
    const struct file_call *c = x->arg;
    const droste_file_request request = {
        .op = "stat", .path = c->path, .flags = DROSTE_FILE_FOLLOW
    };
    (void)exchange_ask_file(x, &request, make_on_stat);
}

/* ---- move ---- */

static void move_rename(struct exchange *x)
{
    const struct file_call *c = x->arg;
    const droste_file_request request = { .op = "rename", .path = c->path, .to = c->to };
    x->done = file_call_stat;
    (void)exchange_ask_file(x, &request, exchange_on_file_done);
}

char *e2b_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash != path ? text_copy(path, (size_t)(slash - path)) : strdup("/");
}

void e2b_handle_move(struct request *r)
{
    struct exchange *x = file_call_new(r, "source", "destination");
    if (!x)
        return;
    cleanup_free char *parent = e2b_parent(((struct file_call *)x->arg)->to);
    const droste_file_request request = {
        .op = "mkdir", .path = parent, .flags = DROSTE_FILE_PARENTS
    };
    x->done = move_rename;
    (void)exchange_ask_file(x, &request, exchange_on_file_done);
}

/* ---- remove ---- */

static void remove_on_removed(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (!exchange_is_over(x, err && err->sys == ENOENT ? NULL : err))
        request_reply(x->r, 200, "application/json", "{}", 2);
}

void e2b_handle_remove(struct request *r)
{
    struct exchange *x = file_call_new(r, "path", NULL);
    if (!x)
        return;
    const struct file_call *c = x->arg;
    const droste_file_request request = {
        .op = "remove", .path = c->path, .flags = DROSTE_FILE_RECURSIVE
    };
    (void)exchange_ask_file(x, &request, remove_on_removed);
}

/* ---- list ---- */

/* A directory comes just before what it contains. */
static int list_by_name(const void *a, const void *b)
{
    const char *x = ((const droste_file_entry *)a)->name, *y = ((const droste_file_entry *)b)->name;
    while (*x && *x == *y)
        x++, y++;
    int left = *x == '/' ? 1 : (unsigned char)*x, right = *y == '/' ? 1 : (unsigned char)*y;
    return left - right;
}

static void list_on_reply(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (exchange_is_over(x, err))
        return;
    const struct file_call *c = x->arg;
    struct json_object *o = json_object_new_object(), *list = json_object_new_array();
    droste_file_entry *sorted = calloc(reply->count + 1, sizeof *sorted);
    if (sorted && reply->count > 0) {
        memcpy(sorted, reply->entries, reply->count * sizeof *sorted);
        qsort(sorted, reply->count, sizeof *sorted, list_by_name);
    }
    for (size_t i = 0; sorted && i < reply->count; i++) {
        cleanup_free char *path =
            text_printf("%s/%s", strcmp(c->path, "/") == 0 ? "" : c->path, sorted[i].name);
        if (path)
            json_object_array_add(list, e2b_entry(path, &sorted[i]));
    }
    free(sorted);
    json_put(o, "entries", list);
    request_reply_json(x->r, 200, o);
}

void e2b_handle_list_directory(struct request *r)
{
    struct exchange *x = file_call_new(r, "path", NULL);
    int64_t depth = json_get_int(r->json, "depth", 1);
    if (!x)
        return;
    const struct file_call *c = x->arg;
    const droste_file_request request = { .op = "list",
        .path = c->path,
        .depth = depth < 1                  ? 1
                 : depth > FILES_DEPTH_MOST ? FILES_DEPTH_MOST
                                            : (unsigned)depth,
        .most = FILES_LIST_MOST,
        .flags = DROSTE_FILE_ATTRIBUTES };
    (void)exchange_ask_file(x, &request, list_on_reply);
}
