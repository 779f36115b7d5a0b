/* serve/sandbox/transfers.c: the routes for files: contents pass through in pieces, and one side
 * waits for the other. A process beside the session serves them, so none waits for a running cell.
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
#include "base/json/fields.h"
#include "base/text.h"
#include "serve/native/native.h"

struct transfer {
    struct server *server;
    struct request *r; /* NULL: it has ended */
    char id[SERVE_ID_SIZE];
    char *path;
    bool pending, opened, ended;
    uint64_t handle, offset;
    uint64_t end;     /* of a range; 0: to the end of the file */
    const char *mode; /* in which it is opened to be written */
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
    r->sys = err->sys;
    if (r->streaming)
        request_cut(r);
    else if (err->sys == ENOENT || err->sys == ENOTDIR)
        request_refuse(r, 404, "not_found", "%s", err->text);
    else if (err->sys == EISDIR) /* E2B's clients know 400 */
        request_refuse(r, 400, "argument", "%s", err->text);
    else if (err->sys == EEXIST || err->sys == ENOTEMPTY)
        request_refuse(r, 409, "argument", "%s", err->text);
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
        request_refuse_memory(r);
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
    size_t length = SERVE_UNREAD_MAX;
    if (t->end > 0 && t->end - t->offset < length)
        length = t->end - t->offset;
    const droste_file_request request = {
        .op = "read", .handle = t->handle, .offset = (int64_t)t->offset, .length = length
    };
    if (t->pending || !t->opened)
        return;
    if (length == 0)
        (void)transfer_close(t);
    else
        (void)transfer_start(t, &request, read_on_piece);
}

/* "bytes=FIRST-LAST", "bytes=FIRST-" or "bytes=-COUNT" of a file of this size (RFC 9110, 14.1.2).
 * 1: there is such a range; 0: none was asked for, or a kind that is ignored; -1: it is not in the
 * file. */
static int read_find_range(const char *text, uint64_t size, uint64_t *first, uint64_t *end)
{
    static const char unit[] = "bytes=";
    if (!text || strncmp(text, unit, strlen(unit)) != 0 || size == 0)
        return 0;
    text += strlen(unit);
    size_t before = strspn(text, "0123456789"), after;
    if (before > 18 || text[before] != '-')
        return 0;
    const char *last = text + before + 1;
    after = strspn(last, "0123456789");
    if (after > 18 || last[after] != '\0' || (before == 0 && after == 0))
        return 0;
    uint64_t number = strtoull(last, NULL, 10);
    if (before == 0) {
        *first = number < size ? size - number : 0;
        *end = size;
        return number > 0 ? 1 : -1;
    }
    *first = strtoull(text, NULL, 10);
    *end = after > 0 && number < size - 1 ? number + 1 : size;
    if (after > 0 && number < *first)
        return 0; /* invalid */
    return *first < size ? 1 : -1;
}

static void read_begin(struct transfer *t, uint64_t size)
{
    struct request *r = t->r;
    const char *asked = request_header_of(r, MHD_HTTP_HEADER_RANGE);
    uint64_t first = 0, end = 0;
    int found = read_find_range(asked, size, &first, &end);
    cleanup_free char *range = found < 0
                                   ? text_printf("bytes */%llu", (unsigned long long)size)
                                   : text_printf("bytes %llu-%llu/%llu", (unsigned long long)first,
                                         (unsigned long long)(end - 1), (unsigned long long)size);
    if (found < 0) {
        request_refuse(r, 416, "range", "the file has %llu bytes", (unsigned long long)size);
    } else {
        t->offset = found > 0 ? first : 0;
        t->end = found > 0 ? end : size; /* a file that grows is read up to the size that it had */
        r->on_drained = read_more;
        request_stream_as(r, found ? 206 : 200, "application/octet-stream");
    }
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)size);
    request_header(r, "Droste-File-Size", text); /* a stream has no Content-Length */
    request_header(r, MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes");
    if (found != 0 && range)
        request_header(r, MHD_HTTP_HEADER_CONTENT_RANGE, range);
}

/* Takes the answer to opening the file. False: the transfer has ended, or failed. */
static bool transfer_is_open(
    struct transfer *t, const droste_file_reply *reply, const droste_error *err)
{
    if (!err) {
        t->opened = true;
        t->handle = reply->handle;
    }
    if (transfer_is_over(t))
        return false;
    if (err)
        transfer_fail(t, err);
    return !err;
}

static void read_on_open(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    if (transfer_is_open(t, reply, err))
        read_begin(t, reply->count > 0 ? reply->entries[0].size : 0);
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

/* libmicrohttpd gives 8 KiB at a time. What arrives during a write is collected, up to this many
 * bytes, for the next one: a round trip to the sandbox takes 0.2 ms. */
enum { WRITE_WAITING_MAX = SERVE_UNREAD_MAX / 2 };

static void write_continue(struct transfer *t);

static void write_on_written(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    if (transfer_is_over(t))
        return;
    if (err)
        transfer_fail(t, err);
    else
        write_continue(t);
}

static void write_on_open(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    if (transfer_is_open(t, reply, err))
        write_continue(t);
}

static void write_start(struct transfer *t)
{
    const droste_file_request open = { .op = "open", .path = t->path, .mode = t->mode };
    const droste_file_request write = { .op = "write",
        .handle = t->handle,
        .offset = -1,
        .data = buf_text(&t->piece),
        .len = t->piece.len };
    if (!t->opened)
        (void)transfer_start(t, &open, write_on_open);
    else if (transfer_start(t, &write, write_on_written))
        buf_clear(&t->piece); /* it was copied */
}

/* Does what is next: opens the file, writes, reads more of the body, or closes. */
static void write_continue(struct transfer *t)
{
    struct request *r = t->r;
    if (!t->pending && (!t->opened || t->piece.len > 0))
        write_start(t);
    else if (!t->pending && r->complete)
        (void)transfer_close(t);
    if (r->reply || r->complete)
        return;
    if (t->piece.len >= WRITE_WAITING_MAX)
        request_suspend(r);
    else
        request_resume(r);
}

static void write_take_piece(struct request *r, const char *data, size_t len)
{
    struct transfer *t = r->state;
    buf_append(&t->piece, data, len);
    if (buf_failed(&t->piece))
        r->gone = true;
    else
        write_continue(t);
}

static void write_on_complete(struct request *r)
{
    write_continue(r->state);
}

void handle_file_write(struct request *r)
{
    static const char *const modes[][2] = { { "replace", "w" }, { "append", "a" },
        { "create", "x" } };
    const char *asked = request_query(r, "mode", modes[0][0]);
    const char *mode = NULL;
    for (size_t i = 0; asked && i < array_length(modes); i++)
        if (strcmp(modes[i][0], asked) == 0)
            mode = modes[i][1];
    if (asked && !mode)
        request_refuse(r, 400, "argument", "mode is replace, append or create");
    struct transfer *t = mode ? transfer_new(r) : NULL;
    if (!t)
        return;
    t->mode = mode;
    r->on_piece = write_take_piece;
    r->on_complete = write_on_complete;
}

/* ---- list, describe, create, move, remove ---- */

enum { LIST_MOST = 100000, LIST_DEPTH_MAX = 100 };

static const char *list_kind(uint32_t mode)
{
    return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "directory" : S_ISLNK(mode) ? "link" : "other";
}

static void list_put(struct buf *out, const droste_file_entry *e)
{
    field_open(out, NULL, '{');
    field_string(out, "name", e->name);
    field_string(out, "user", e->user);
    field_string(out, "group", e->group);
    if (S_ISLNK(e->mode)) {
        field_string(out, "target", e->target);
        field_string(out, "target_kind", e->target_mode ? list_kind(e->target_mode) : "none");
        field_int(out, "target_st_mode", e->target_mode);
    }
    field_string(out, "kind", list_kind(e->mode));
    field_int(out, "size", (int64_t)e->size);
    field_int(out, "mode", e->mode & 07777);
    field_int(out, "st_mode", e->mode);
    field_int(out, "uid", e->uid);
    field_int(out, "gid", e->gid);
    field_int(out, "modified_ns", e->mtime_ns);
    field_int(out, "modified_ms", e->mtime_ns / 1000000);
    field_close(out, '}');
}

/* Asks for one thing about the path of the request, which `done` answers. */
static void transfer_ask(struct request *r, droste_file_request request, droste_file_fn *done)
{
    struct transfer *t = transfer_new(r);
    if (!t)
        return;
    request.path = t->path;
    (void)transfer_start(t, &request, done);
}

/* After the reply to transfer_ask. False: the request has ended meanwhile, or was refused. */
static bool transfer_has_reply(struct transfer *t, const droste_error *err)
{
    if (transfer_is_over(t))
        return false;
    if (err)
        transfer_fail(t, err);
    return !err;
}

static void list_on_reply(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    cleanup_buf struct buf out = { 0 };
    if (!transfer_has_reply(t, err))
        return;
    field_open(&out, NULL, '{');
    field_open(&out, "entries", '[');
    for (size_t i = 0; i < reply->count; i++)
        list_put(&out, &reply->entries[i]);
    field_close(&out, ']');
    field_bool(&out, "more", reply->more);
    field_close(&out, '}');
    request_reply_written(t->r, 200, &out);
}

/* A number of the query, from 1 to `most`; 0: the request was refused. */
static unsigned list_number(struct request *r, const char *name, const char *fallback, long most)
{
    const char *text = request_query(r, name, fallback);
    char *end = NULL;
    long number = text ? strtol(text, &end, 10) : 0;
    if (text && (*end || number < 1))
        request_refuse(r, 400, "argument", "%s is a positive number", name);
    return !text || *end || number < 1 ? 0 : (unsigned)(number > most ? most : number);
}

void handle_file_list(struct request *r)
{
    unsigned depth = list_number(r, "depth", "1", LIST_DEPTH_MAX);
    unsigned most = depth ? list_number(r, "limit", "10000", LIST_MOST) : 0;
    if (most)
        transfer_ask(
            r, (droste_file_request){ .op = "list", .depth = depth, .most = most }, list_on_reply);
}

void handle_file_glob(struct request *r)
{
    unsigned most = list_number(r, "limit", "10000", LIST_MOST);
    if (most)
        transfer_ask(
            r, (droste_file_request){ .op = "glob", .depth = 1, .most = most }, list_on_reply);
}

/* The flag if the query's parameter says yes; -1: the request was refused. */
static int transfer_flag(struct request *r, const char *name, const char *fallback, int flag)
{
    const char *text = request_query(r, name, fallback);
    bool yes = text && strcmp(text, "yes") == 0;
    if (yes || (text && strcmp(text, "no") == 0))
        return yes ? flag : 0;
    if (text)
        request_refuse(r, 400, "argument", "%s is yes or no", name);
    return -1;
}

static void describe_on_reply(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    cleanup_buf struct buf out = { 0 };
    if (!transfer_has_reply(t, err))
        return;
    list_put(&out, &reply->entries[0]);
    request_reply_written(t->r, 200, &out);
}

void handle_file_describe(struct request *r)
{
    int flags = transfer_flag(r, "follow", "no", DROSTE_FILE_FOLLOW);
    if (flags >= 0)
        transfer_ask(r, (droste_file_request){ .op = "stat", .flags = flags }, describe_on_reply);
}

static void transfer_on_done(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    if (transfer_has_reply(t, err))
        request_reply(t->r, 204, NULL, NULL, 0);
}

void handle_file_remove(struct request *r)
{
    transfer_ask(r, (droste_file_request){ .op = "remove" }, transfer_on_done);
}

void handle_directory_create(struct request *r)
{
    int flags = transfer_flag(r, "parents", "yes", DROSTE_FILE_PARENTS);
    if (flags >= 0)
        transfer_ask(r, (droste_file_request){ .op = "mkdir", .flags = flags }, transfer_on_done);
}

void handle_directory_remove(struct request *r)
{
    transfer_ask(r, (droste_file_request){ .op = "remove", .flags = DROSTE_FILE_RECURSIVE },
        transfer_on_done);
}

void handle_file_move(struct request *r)
{
    const char *to = sandbox_of(r) ? request_query(r, "to", NULL) : NULL;
    if (to)
        transfer_ask(r, (droste_file_request){ .op = "rename", .to = to }, transfer_on_done);
}
