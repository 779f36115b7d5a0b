/* serve/sandbox/transfers.c: the routes for files: contents pass through in pieces, and one side
 * waits for the other.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "serve/native/native.h"
#include "serve/sandbox/exchange.h"

/* Of a file's content, with its request. */
struct transfer {
    struct exchange *x;
    uint64_t offset, end; /* to be read */
    char *path;           /* to be written */
    const char *mode;     /* in which it is opened */
    struct buf piece;     /* of what the client has sent */
};

static void file_fail(struct exchange *x, const droste_error *err)
{
    struct request *r = x->r;
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

static void file_reply_done(struct exchange *x)
{
    if (x->r->streaming)
        request_end(x->r);
    else
        request_reply(x->r, 204, NULL, NULL, 0);
}

static struct exchange *file_exchange(struct request *r)
{
    struct exchange *x = exchange_new(r);
    if (x) {
        x->fail = file_fail;
        x->done = file_reply_done;
    }
    return x;
}

static void transfer_on_free(struct request *r)
{
    struct transfer *t = ((struct exchange *)r->state)->arg;
    buf_free(&t->piece);
    free(t->path);
    free(t);
    exchange_on_free(r);
}

static struct transfer *transfer_new(struct request *r)
{
    struct exchange *x = file_exchange(r);
    struct transfer *t = x ? request_alloc(r, sizeof *t) : NULL;
    if (!t)
        return NULL;
    t->x = x;
    x->arg = t;
    r->on_free = transfer_on_free;
    return t;
}

/* ---- read ---- */

static void read_on_piece(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (exchange_is_over(x, err))
        return;
    struct transfer *t = x->arg;
    t->offset += reply->len;
    if (reply->len > 0)
        request_push(x->r, reply->data, reply->len);
    else
        exchange_close_file(x);
}

static void read_more(struct request *r)
{
    struct exchange *x = r->state;
    const struct transfer *t = x->arg;
    size_t length = SERVE_UNREAD_MAX;
    if (t->end > 0 && t->end - t->offset < length)
        length = t->end - t->offset;
    const droste_file_request request = {
        .op = "read", .handle = x->handle, .offset = (int64_t)t->offset, .length = length
    };
    if (x->pending || !x->attached)
        return;
    if (length == 0)
        exchange_close_file(x);
    else
        (void)exchange_ask_file(x, &request, read_on_piece);
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
    struct request *r = t->x->r;
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

static void read_on_open(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (!exchange_is_over_opened(x, reply, err))
        read_begin(x->arg, reply->count > 0 ? reply->entries[0].size : 0);
}

void transfer_read(struct request *r, const char *path)
{
    struct transfer *t = path ? transfer_new(r) : NULL;
    const droste_file_request request = { .op = "open", .path = path, .mode = "r" };
    if (t)
        (void)exchange_ask_file(t->x, &request, read_on_open);
}

void handle_file_read(struct request *r)
{
    transfer_read(r, request_query(r, "path", NULL));
}

/* ---- write ---- */

/* libmicrohttpd gives 8 KiB at a time. What arrives during a write is collected, up to this many
 * bytes, for the next one: a round trip to the sandbox takes 0.2 ms. */
enum { WRITE_WAITING_MAX = SERVE_UNREAD_MAX / 2 };

static void write_continue(struct exchange *x);

static void write_on_written(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (!exchange_is_over(x, err))
        write_continue(x);
}

static void write_on_open(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    if (!exchange_is_over_opened(x, reply, err))
        write_continue(x);
}

static void write_start(struct exchange *x)
{
    struct transfer *t = x->arg;
    const droste_file_request open = { .op = "open", .path = t->path, .mode = t->mode };
    const droste_file_request write = { .op = "write",
        .handle = x->handle,
        .offset = -1,
        .data = buf_text(&t->piece),
        .len = t->piece.len };
    if (!x->attached)
        (void)exchange_ask_file(x, &open, write_on_open);
    else if (exchange_ask_file(x, &write, write_on_written))
        buf_clear(&t->piece); /* it was copied */
}

/* Does what is next: opens the file, writes, reads more of the body, or closes. */
static void write_continue(struct exchange *x)
{
    struct request *r = x->r;
    const struct transfer *t = x->arg;
    if (!x->pending && (!x->attached || t->piece.len > 0))
        write_start(x);
    else if (!x->pending && r->complete)
        exchange_close_file(x);
    if (r->reply || r->complete)
        return;
    if (t->piece.len >= WRITE_WAITING_MAX)
        request_suspend(r);
    else
        request_resume(r);
}

static void write_take_piece(struct request *r, const char *data, size_t len)
{
    struct exchange *x = r->state;
    struct transfer *t = x->arg;
    buf_append(&t->piece, data, len);
    if (buf_failed(&t->piece))
        r->gone = true;
    else
        write_continue(x);
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
    const char *path = mode ? request_query(r, "path", NULL) : NULL;
    struct transfer *t = path ? transfer_new(r) : NULL;
    if (!t)
        return;
    t->mode = mode;
    t->path = strdup(path);
    if (!t->path) {
        request_refuse_memory(r);
        return;
    }
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
static void file_ask(struct request *r, droste_file_request request, droste_file_fn *done)
{
    request.path = request_query(r, "path", NULL);
    struct exchange *x = request.path ? file_exchange(r) : NULL;
    if (x)
        (void)exchange_ask_file(x, &request, done);
}

static void list_on_reply(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct exchange *x = arg;
    cleanup_buf struct buf out = { 0 };
    if (exchange_is_over(x, err))
        return;
    field_open(&out, NULL, '{');
    field_open(&out, "entries", '[');
    for (size_t i = 0; i < reply->count; i++)
        list_put(&out, &reply->entries[i]);
    field_close(&out, ']');
    field_bool(&out, "more", reply->more);
    field_close(&out, '}');
    request_reply_written(x->r, 200, &out);
}

void handle_file_list(struct request *r)
{
    unsigned depth = request_query_number(r, "depth", "1", LIST_DEPTH_MAX);
    unsigned most = depth ? request_query_number(r, "limit", "10000", LIST_MOST) : 0;
    if (most)
        file_ask(
            r, (droste_file_request){ .op = "list", .depth = depth, .most = most }, list_on_reply);
}

void handle_file_glob(struct request *r)
{
    unsigned most = request_query_number(r, "limit", "10000", LIST_MOST);
    if (most)
        file_ask(r, (droste_file_request){ .op = "glob", .depth = 1, .most = most }, list_on_reply);
}

/* The flag if the query's parameter says yes; -1: the request was refused. */
static int file_flag(struct request *r, const char *name, const char *fallback, int flag)
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
    struct exchange *x = arg;
    cleanup_buf struct buf out = { 0 };
    if (exchange_is_over(x, err))
        return;
    list_put(&out, &reply->entries[0]);
    request_reply_written(x->r, 200, &out);
}

void handle_file_describe(struct request *r)
{
    int flags = file_flag(r, "follow", "no", DROSTE_FILE_FOLLOW);
    if (flags >= 0)
        file_ask(r, (droste_file_request){ .op = "stat", .flags = flags }, describe_on_reply);
}

void handle_file_remove(struct request *r)
{
    file_ask(r, (droste_file_request){ .op = "remove" }, exchange_on_file_done);
}

void handle_directory_create(struct request *r)
{
    int flags = file_flag(r, "parents", "yes", DROSTE_FILE_PARENTS);
    if (flags >= 0)
        file_ask(r, (droste_file_request){ .op = "mkdir", .flags = flags }, exchange_on_file_done);
}

void handle_directory_remove(struct request *r)
{
    file_ask(r, (droste_file_request){ .op = "remove", .flags = DROSTE_FILE_RECURSIVE },
        exchange_on_file_done);
}

void handle_file_move(struct request *r)
{
    const char *to = sandbox_of(r) ? request_query(r, "to", NULL) : NULL;
    if (to)
        file_ask(r, (droste_file_request){ .op = "rename", .to = to }, exchange_on_file_done);
}
