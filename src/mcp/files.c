/* mcp/files.c: the files of a session's sandbox. They do not wait for its cells. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "mcp/session.h"

/* What a model reads at once. */
enum { READ_MAX = DROSTE_FILE_PIECE, LIST_MAX = 1000 };

/* A file that is read or written: opened, then one piece, then closed. It outlives a call that was
 * cancelled. */
struct transfer {
    struct mcp_call *call; /* NULL: its client has gone */
    droste_session *session;
    uint64_t handle;
    char *data; /* to write */
    size_t len, at;
    int64_t offset;
    size_t most;
};

static void transfer_free(void *state)
{
    struct transfer *t = state;
    free(t->data);
    free(t);
}

static void transfer_on_cancel(struct mcp_call *c)
{
    struct transfer *t = c->state;
    t->call = NULL;
    mcp_call_drop(c);
}

/* Begins when the session is open, with transfer_begin. NULL: the call was answered. */
static struct transfer *transfer_new(struct mcp_call *c)
{
    struct transfer *t = calloc(1, sizeof *t);
    if (!t) {
        mcp_call_fail(c, RPC_INTERNAL, "out of memory");
        return NULL;
    }
    t->call = c;
    c->state = t;
    c->free_state = transfer_free;
    return t;
}

static struct transfer *transfer_begin(struct mcp_call *c)
{
    struct transfer *t = c->state;
    t->session = c->session->session;
    c->session = NULL;
    c->free_state = NULL; /* it outlives the call from now on */
    c->cancel = transfer_on_cancel;
    return t;
}

static void transfer_on_closed(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    (void)arg;
    (void)reply;
    (void)err;
}

/* Ends it: the handle is closed, and the call, if there still is one, answered by the caller. */
static struct mcp_call *transfer_end(struct transfer *t)
{
    struct mcp_call *c = t->call;
    droste_file_request close = { .op = "close", .handle = t->handle };
    if (t->handle)
        droste_file_start(t->session, &close, transfer_on_closed, NULL, NULL);
    transfer_free(t);
    if (c) {
        c->state = NULL;
        c->cancel = NULL;
    }
    return c;
}

static void transfer_fail(struct transfer *t, const droste_error *err)
{
    if (err->code == DROSTE_ERROR_LOST)
        t->handle = 0; /* and so is the session */
    struct mcp_call *c = transfer_end(t);
    if (c)
        mcp_tool_fail_error(c, err);
}

static void transfer_request(
    struct transfer *t, const droste_file_request *request, droste_file_fn *fn)
{
    droste_error err;
    if (droste_file_start(t->session, request, fn, t, &err) < 0)
        transfer_fail(t, &err);
}

static void read_on_piece(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    if (err) {
        transfer_fail(t, err);
        return;
    }
    struct mcp_call *c = t->call;
    struct json_object *result = c ? mcp_result() : NULL, *data = NULL;
    bool is_text = text_is_utf8(reply->data, text_utf8_whole(reply->data, reply->len), NULL);
    if (result && (data = json_object_new_object())) {
        json_put(data, "offset", json_object_new_int64(t->offset));
        json_put(data, "bytes", json_object_new_int64((int64_t)reply->len));
        json_put(data, "encoding", json_object_new_string(is_text ? "utf-8" : "base64"));
        if (is_text) {
            mcp_result_add_text(result, reply->data, reply->len);
        } else {
            cleanup_buf struct buf text = { 0 };
            json_append_base64(&text, reply->data, reply->len);
            mcp_result_add_text(result, buf_text(&text), text.len);
        }
        mcp_result_set_data(result, data);
    }
    c = transfer_end(t);
    if (c)
        mcp_call_answer(c, result);
    else
        json_object_put(result);
}

static void read_on_open(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    if (err) {
        transfer_fail(t, err);
        return;
    }
    t->handle = reply->handle;
    droste_file_request read = {
        .op = "read", .handle = t->handle, .offset = t->offset, .length = t->most
    };
    transfer_request(t, &read, read_on_piece);
}

static void read_begin(struct mcp_call *c)
{
    droste_file_request open = {
        .op = "open", .mode = "r", .path = json_get_string(c->arguments, "path", "")
    };
    transfer_request(transfer_begin(c), &open, read_on_open);
}

void mcp_tool_file_read(struct mcp_call *c)
{
    struct transfer *t = transfer_new(c);
    if (!t)
        return;
    t->offset = json_get_int(c->arguments, "offset", 0);
    t->most = (size_t)json_get_int(c->arguments, "length", READ_MAX);
    c->begin = read_begin;
    mcp_session_use(c, true);
}

static void write_piece(struct transfer *t);

static void write_on_piece(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    (void)reply;
    if (err)
        transfer_fail(t, err);
    else
        write_piece(t);
}

static void write_piece(struct transfer *t)
{
    size_t n = t->len - t->at < DROSTE_FILE_PIECE ? t->len - t->at : DROSTE_FILE_PIECE;
    droste_file_request write = {
        .op = "write", .handle = t->handle, .offset = -1, .data = t->data + t->at, .len = n
    };
    if (n > 0) {
        t->at += n;
        transfer_request(t, &write, write_on_piece);
        return;
    }
    size_t len = t->len;
    struct mcp_call *c = transfer_end(t);
    struct json_object *result = c ? mcp_result() : NULL, *data = NULL;
    if (result && (data = json_object_new_object())) {
        json_put(data, "bytes", json_object_new_int64((int64_t)len));
        mcp_result_set_data(result, data);
    }
    if (c)
        mcp_call_answer(c, result);
}

static void write_on_open(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    if (err) {
        transfer_fail(t, err);
        return;
    }
    t->handle = reply->handle;
    write_piece(t);
}

static void write_begin(struct mcp_call *c)
{
    droste_file_request open = {
        .op = "open", .mode = "w", .path = json_get_string(c->arguments, "path", "")
    };
    transfer_request(transfer_begin(c), &open, write_on_open);
}

void mcp_tool_file_write(struct mcp_call *c)
{
    struct json_object *text = json_get_typed(c->arguments, "text", json_type_string);
    struct json_object *base64 = json_get_typed(c->arguments, "base64", json_type_string);
    if (!text == !base64) {
        mcp_tool_fail(c, "give either `text` or `base64`");
        return;
    }
    const char *from = json_object_get_string(text ? text : base64);
    size_t len = (size_t)json_object_get_string_len(text ? text : base64), n = len;
    cleanup_free char *data = text ? text_copy(from, len) : json_base64_bytes(from, len, &n);
    if (!data) {
        mcp_tool_fail(c, "`base64` is not base64 with padding");
        return;
    }
    struct transfer *t = transfer_new(c);
    if (!t)
        return;
    t->data = steal(&data);
    t->len = n;
    c->begin = write_begin;
    mcp_session_use(c, true);
}

static const char *entry_kind(uint32_t mode)
{
    switch (mode & 0170000) {
    case 0100000:
        return "file";
    case 0040000:
        return "directory";
    case 0120000:
        return "link";
    default:
        return "other";
    }
}

static struct json_object *entry_json(const droste_file_entry *e)
{
    struct json_object *o = json_object_new_object();
    if (o && json_put_text(o, "name", e->name) && json_put_text(o, "kind", entry_kind(e->mode)) &&
        json_put(o, "size", json_object_new_int64((int64_t)e->size)))
        return o;
    json_object_put(o);
    return NULL;
}

static void list_on_done(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct transfer *t = arg;
    if (err) {
        transfer_fail(t, err);
        return;
    }
    struct json_object *list = json_object_new_array(), *o = json_object_new_object();
    bool ok = list && o;
    for (size_t i = 0; ok && i < reply->count; i++) {
        struct json_object *item = entry_json(&reply->entries[i]);
        ok = item && json_object_array_add(list, item) == 0;
    }
    if (ok)
        ok = json_put(o, "entries", list) &&
             json_put(o, "more", json_object_new_boolean(reply->more));
    struct mcp_call *c = transfer_end(t);
    struct json_object *result = c && ok ? mcp_result() : NULL;
    if (result)
        mcp_result_set_data(result, o);
    else
        json_object_put(o);
    if (c)
        mcp_call_answer(c, result);
}

static void list_begin(struct mcp_call *c)
{
    droste_file_request list = { .op = "list",
        .most = LIST_MAX,
        .path = json_get_string(c->arguments, "path", "."),
        .depth = (unsigned)json_get_int(c->arguments, "depth", 1) };
    transfer_request(transfer_begin(c), &list, list_on_done);
}

void mcp_tool_files_list(struct mcp_call *c)
{
    if (!transfer_new(c))
        return;
    c->begin = list_begin;
    mcp_session_use(c, true);
}
