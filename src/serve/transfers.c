/* serve/transfers.c: the routes for files: contents pass through in pieces, and one side waits for
 * the other. A process beside the session serves them, so none waits for a running cell.
 *
 * A transfer outlives its request while the sandbox owes it a reply, and its sandbox is looked up
 * by id, since either may end first.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "serve/server.h"

struct transfer {
    struct server *server;
    struct request *r; /* NULL: it has ended */
    char id[SERVE_ID_SIZE];
    char *path;
    bool pending, opened, ended;
    uint64_t handle, offset;
    struct buf piece; /* to be written */
};

static struct sandbox *transfer_sandbox(const struct transfer *t)
{
    return sandbox_find(t->server, t->id);
}

static void transfer_free(struct transfer *t)
{
    struct sandbox *sb = transfer_sandbox(t);
    if (sb) {
        sb->transfers--;
        sb->used_ns = clock_ns();
    }
    buf_free(&t->piece);
    free(t->path);
    free(t);
}

static void transfer_fail(struct transfer *t, const droste_error *err)
{
    struct request *r = t->r;
    if (!r)
        return;
    if (r->streaming)
        request_cut(r);
    else if (err->sys == ENOENT || err->sys == ENOTDIR)
        request_refuse(r, 404, "not_found", "%s", err->text);
    else if (err->sys == EISDIR)
        request_refuse(r, 400, "argument", "%s", err->text);
    else if (err->sys == EACCES || err->sys == EPERM || err->sys == EROFS)
        request_refuse(r, 403, "permission", "%s", err->text);
    else if (err->sys == ENOSPC || err->sys == EDQUOT)
        request_refuse(r, 507, "full", "%s", err->text);
    else
        request_fail(r, err);
}

/* Starts one request; false: it failed, and so did the transfer. */
static bool transfer_start(
    struct transfer *t, const droste_file_request *request, droste_file_fn *done)
{
    struct sandbox *sb = transfer_sandbox(t);
    droste_error err = { .code = DROSTE_ERROR_LOST, .text = "the sandbox has ended" };
    if (sb && droste_file_start(sb->session, request, done, t, &err) == 0) {
        t->pending = true;
        return true;
    }
    transfer_fail(t, &err);
    return false;
}

static void transfer_on_closed(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    t->pending = false;
    if (t->r && err)
        transfer_fail(t, err);
    else if (t->r && t->r->streaming)
        request_end(t->r);
    else if (t->r)
        request_reply(t->r, 204, NULL, NULL, 0);
    if (!t->r)
        transfer_free(t);
}

static bool transfer_close(struct transfer *t)
{
    const droste_file_request request = { .op = "close", .handle = t->handle };
    t->opened = false;
    return transfer_start(t, &request, transfer_on_closed);
}

/* After a reply. True: the request has ended meanwhile, and the transfer with it. */
static bool transfer_is_over(struct transfer *t)
{
    t->pending = false;
    if (t->r)
        return false;
    if (!t->opened || !transfer_close(t))
        transfer_free(t);
    return true;
}

static void transfer_on_free(struct request *r)
{
    struct transfer *t = r->state;
    t->r = NULL;
    if (!t->pending)
        (void)transfer_is_over(t);
}

static struct transfer *transfer_new_of(struct request *r, const char *path)
{
    struct sandbox *sb = path ? sandbox_of(r) : NULL;
    struct transfer *t = sb ? calloc(1, sizeof *t) : NULL;
    if (!sb)
        return NULL;
    char *copy = strdup(path);
    if (!t || !copy) {
        free(t);
        free(copy);
        request_refuse(r, 503, "memory", "out of memory");
        return NULL;
    }
    t->server = r->server;
    t->r = r;
    t->path = copy;
    memcpy(t->id, r->id, sizeof t->id);
    sb->transfers++;
    r->state = t;
    r->on_free = transfer_on_free;
    return t;
}

static struct transfer *transfer_new(struct request *r)
{
    return transfer_new_of(r, request_query(r, "path", NULL));
}

/* ---- read ---- */

static void read_on_piece(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    if (transfer_is_over(t))
        return;
    if (err) {
        transfer_fail(t, err);
        return;
    }
    t->offset += reply->len;
    if (reply->len > 0)
        request_push(t->r, reply->data, reply->len);
    else
        (void)transfer_close(t);
}

static void read_more(struct request *r)
{
    struct transfer *t = r->state;
    const droste_file_request request = {
        .op = "read", .handle = t->handle, .offset = (int64_t)t->offset, .length = SERVE_UNREAD_MAX
    };
    if (!t->pending && t->opened)
        (void)transfer_start(t, &request, read_on_piece);
}

static void read_on_open(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    if (!err) {
        t->opened = true;
        t->handle = reply->handle;
    }
    if (transfer_is_over(t))
        return;
    if (err) {
        transfer_fail(t, err);
        return;
    }
    t->r->on_drained = read_more;
    request_stream(t->r, "application/octet-stream");
}

void transfer_read(struct request *r, const char *path)
{
    struct transfer *t = transfer_new_of(r, path);
    if (!t)
        return;
    const droste_file_request request = { .op = "open", .path = t->path, .mode = "r" };
    (void)transfer_start(t, &request, read_on_open);
}

void handle_file_read(struct request *r)
{
    transfer_read(r, request_query(r, "path", NULL));
}

/* ---- write ---- */

static void write_on_written(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    buf_clear(&t->piece);
    if (transfer_is_over(t))
        return;
    if (err)
        transfer_fail(t, err);
    else
        request_resume(t->r); /* reads the next piece */
}

static void write_next(struct transfer *t)
{
    const droste_file_request request = { .op = "write",
        .handle = t->handle,
        .offset = -1,
        .data = buf_text(&t->piece),
        .len = t->piece.len };
    (void)transfer_start(t, &request, write_on_written);
}

static void write_on_open(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    if (!err) {
        t->opened = true;
        t->handle = reply->handle;
    }
    if (transfer_is_over(t))
        return;
    if (err)
        transfer_fail(t, err);
    else if (t->piece.len > 0)
        write_next(t);
    else
        (void)transfer_close(t);
}

static void write_open(struct transfer *t)
{
    const droste_file_request request = { .op = "open", .path = t->path, .mode = "w" };
    (void)transfer_start(t, &request, write_on_open);
}

static void write_take_piece(struct request *r, const char *data, size_t len)
{
    struct transfer *t = r->state;
    buf_append(&t->piece, data, len);
    if (buf_failed(&t->piece)) {
        r->gone = true;
        return;
    }
    if (t->opened)
        write_next(t);
    else
        write_open(t);
    if (!r->reply)
        request_suspend(r);
}

static void write_on_complete(struct request *r)
{
    struct transfer *t = r->state;
    if (t->opened)
        (void)transfer_close(t);
    else
        write_open(t);
}

void handle_file_write(struct request *r)
{
    if (!transfer_new(r))
        return;
    r->on_piece = write_take_piece;
    r->on_complete = write_on_complete;
}

/* ---- list, remove ---- */

enum { LIST_MOST = 10000 };

static const char *list_kind(uint32_t mode)
{
    return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "directory" : S_ISLNK(mode) ? "link" : "other";
}

static struct json_object *list_entry(const droste_file_entry *e)
{
    cleanup_buf struct buf name = { 0 };
    struct json_object *o = json_object_new_object();
    text_append_utf8(&name, e->name, strlen(e->name));
    if (o && json_put_text(o, "name", buf_text(&name)) &&
        json_put_text(o, "kind", list_kind(e->mode)) &&
        json_put(o, "size", json_object_new_int64((int64_t)e->size)) &&
        json_put(o, "mode", json_object_new_int64(e->mode & 07777)) &&
        json_put(o, "modified_ms", json_object_new_int64(e->mtime_ns / 1000000)))
        return o;
    json_object_put(o);
    return NULL;
}

static void list_on_reply(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    if (transfer_is_over(t))
        return;
    if (err) {
        transfer_fail(t, err);
        return;
    }
    struct json_object *o = json_object_new_object(), *list = json_object_new_array();
    for (size_t i = 0; list && i < reply->count; i++)
        json_object_array_add(list, list_entry(&reply->entries[i]));
    if (!o || !json_put(o, "entries", list) ||
        !json_put(o, "more", json_object_new_boolean(reply->more))) {
        json_object_put(o);
        o = NULL;
    }
    request_reply_json(t->r, 200, o);
}

void handle_file_list(struct request *r)
{
    struct transfer *t = transfer_new(r);
    if (!t)
        return;
    const droste_file_request request = {
        .op = "list", .path = t->path, .depth = 1, .most = LIST_MOST
    };
    (void)transfer_start(t, &request, list_on_reply);
}

static void remove_on_reply(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    if (transfer_is_over(t))
        return;
    if (err)
        transfer_fail(t, err);
    else
        request_reply(t->r, 204, NULL, NULL, 0);
}

void handle_file_remove(struct request *r)
{
    struct transfer *t = transfer_new(r);
    if (!t)
        return;
    const droste_file_request request = { .op = "remove", .path = t->path };
    (void)transfer_start(t, &request, remove_on_reply);
}
