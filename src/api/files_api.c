/* api/files_api.c: the files of a session: requests, and the functions that wait for them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "api/session_ops.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "session/files.h"

_Static_assert((int)DROSTE_FILE_PIECE == (int)FILES_PIECE, "the public size is the session's");

/* ---- requests ---- */

static const struct {
    const char *name;
    enum file_op op;
} files_api_ops[] = {
    { "open", FILE_OPEN },
    { "read", FILE_READ },
    { "write", FILE_WRITE },
    { "close", FILE_CLOSE },
    { "stat", FILE_STAT },
    { "list", FILE_LIST },
    { "glob", FILE_GLOB },
    { "mkdir", FILE_MKDIR },
    { "remove", FILE_REMOVE },
    { "rename", FILE_RENAME },
    { "mark", FILE_MARK },
};

struct file_waiter {
    droste_file_fn *fn;
    void *arg;
};

/* Returns the next terminated text at *at, and moves that. */
static const char *files_api_text(char **at, const char *text, size_t len)
{
    char *copy = memcpy(*at, text, len);
    copy[len] = '\0';
    *at += len + 1;
    return copy;
}

/* Copies the entries, with terminated texts, in one block. */
static int files_api_entries(
    const struct file_answer *answer, droste_file_entry **out, size_t *count, struct error *err)
{
    struct file_entry e;
    size_t at = 0, texts = 0;
    *count = 0;
    while (file_entry_next(answer, &at, &e)) {
        texts += e.name_len + e.target_len + e.user_len + e.group_len + e.attributes_len + 5;
        ++*count;
    }
    droste_file_entry *all = malloc(*count * sizeof *all + texts + 1);
    if (!all)
        return error_memory(err);
    char *text = (char *)(all + *count);
    at = 0;
    for (size_t i = 0; i < *count && file_entry_next(answer, &at, &e); i++) {
        all[i] = (droste_file_entry){ .name = files_api_text(&text, e.name, e.name_len),
            .mode = e.mode,
            .size = e.size,
            .mtime_ns = e.mtime_ns,
            .uid = e.uid,
            .gid = e.gid,
            .target_mode = e.target_mode };
        all[i].target = files_api_text(&text, e.target, e.target_len);
        all[i].user = files_api_text(&text, e.user, e.user_len);
        all[i].group = files_api_text(&text, e.group, e.group_len);
        all[i].attributes = files_api_text(&text, e.attributes, e.attributes_len);
    }
    *out = all;
    return 0;
}

static void files_api_answered(
    void *arg, const struct file_answer *answer, const struct error *failure)
{
    struct file_waiter *w = arg, waiter = *w;
    struct error why = { 0 };
    droste_file_entry *entries = NULL;
    droste_file_reply reply = { 0 };
    free(w);
    if (failure)
        why = *failure;
    else if (answer->lists && files_api_entries(answer, &entries, &reply.count, &why) == 0)
        reply.entries = entries;
    if (why.code != ERROR_NONE) {
        waiter.fn(waiter.arg, NULL, &why);
        return;
    }
    reply.handle = answer->handle;
    reply.more = answer->more;
    reply.data = answer->lists ? NULL : answer->data;
    reply.len = answer->lists ? 0 : answer->len;
    waiter.fn(waiter.arg, &reply, NULL);
    free(entries);
}

static int files_api_start(droste_session *s, const droste_file_request *r, droste_file_fn *fn,
    void *arg, struct error *err)
{
    struct file_call call = { .op = FILE_OP_COUNT,
        .path = r->path ? r->path : "",
        .path_len = r->path ? strlen(r->path) : 0,
        .to = r->to,
        .mode = r->mode,
        .handle = r->handle,
        .offset = r->offset,
        .length = r->length,
        .depth = r->depth ? r->depth : 1,
        .limit = (unsigned)(r->most < FILES_ENTRIES_MAX ? r->most : FILES_ENTRIES_MAX),
        .follow = r->flags & DROSTE_FILE_FOLLOW,
        .parents = r->flags & DROSTE_FILE_PARENTS,
        .recursive = r->flags & DROSTE_FILE_RECURSIVE,
        .attributes = r->flags & DROSTE_FILE_ATTRIBUTES,
        .data = r->data,
        .len = r->len };
    for (size_t i = 0; i < array_length(files_api_ops); i++)
        if (strcmp(files_api_ops[i].name, r->op) == 0)
            call.op = files_api_ops[i].op;
    bool has_to = call.op == FILE_RENAME || call.op == FILE_MARK;
    if (call.op == FILE_OP_COUNT || has_to != (r->to != NULL))
        return error_set(err, ERROR_ARGUMENT, "there is no request '%.20s' like this", r->op);
    if (!s->session)
        return error_set(err, ERROR_ARGUMENT, "the session did not open, or was finished");
    struct file_waiter *w = malloc(sizeof *w);
    if (!w)
        return error_memory(err);
    *w = (struct file_waiter){ fn, arg };
    int rc = session_file(s->session, &call, files_api_answered, w, err);
    if (rc < 0)
        free(w);
    return rc;
}

int droste_file_start(droste_session *s, const droste_file_request *request, droste_file_fn *fn,
    void *arg, droste_error *err)
{
    return files_api_start(s, request, fn, arg, api_error(err));
}

/* ---- waiting ---- */

struct file_wait {
    bool done;
    int rc; /* of `entry_fn`, or negative with `error` */
    droste_error error;
    droste_file_reply reply; /* without what is valid during the call only */
    char *into;              /* takes the data of a read */
    droste_file_entry_fn *entry_fn;
    void *entry_arg;
};

static void files_api_done(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    struct file_wait *w = arg;
    w->done = true;
    if (err) {
        w->error = *err;
        w->rc = -err->code;
        return;
    }
    w->reply = *reply;
    if (w->into)
        memcpy(w->into, reply->data, reply->len);
    for (size_t i = 0; w->entry_fn && w->rc == 0 && i < reply->count; i++)
        w->rc = w->entry_fn(w->entry_arg, &reply->entries[i]);
    if (w->rc == 0 && reply->more)
        w->rc = 1;
}

static int files_api_call(
    droste_session *s, const droste_file_request *r, struct file_wait *w, droste_error *failure)
{
    struct error *err = api_error(failure);
    if (s->d->waits)
        return api_enter(s->d, err);
    int rc = files_api_start(s, r, files_api_done, w, err);
    if (rc == 0)
        rc = api_wait(s->d, &w->done, err);
    if (rc < 0)
        return rc;
    if (w->rc < 0 && failure)
        *failure = w->error;
    return w->rc;
}

static int files_api_one(void *arg, const droste_file_entry *entry)
{
    droste_file_entry *out = arg;
    *out = *entry;
    out->name = out->user = out->group = out->target = "";
    out->name = "";
    return 0;
}

int droste_file_stat(
    droste_session *s, const char *path, int follow, droste_file_entry *out, droste_error *err)
{
    struct file_wait w = { .entry_fn = files_api_one, .entry_arg = out };
    const droste_file_request r = {
        .op = "stat", .path = path, .flags = follow ? DROSTE_FILE_FOLLOW : 0
    };
    return files_api_call(s, &r, &w, err);
}

int droste_file_list(droste_session *s, const char *path, unsigned depth, size_t most,
    droste_file_entry_fn *fn, void *arg, droste_error *err)
{
    struct file_wait w = { .entry_fn = fn, .entry_arg = arg };
    const droste_file_request r = { .op = "list", .path = path, .depth = depth, .most = most };
    return files_api_call(s, &r, &w, err);
}

int droste_file_glob(droste_session *s, const char *pattern, size_t most, droste_file_entry_fn *fn,
    void *arg, droste_error *err)
{
    struct file_wait w = { .entry_fn = fn, .entry_arg = arg };
    const droste_file_request r = { .op = "glob", .path = pattern, .most = most };
    return files_api_call(s, &r, &w, err);
}

int droste_file_make_directory(droste_session *s, const char *path, int parents, droste_error *err)
{
    struct file_wait w = { 0 };
    const droste_file_request r = {
        .op = "mkdir", .path = path, .flags = parents ? DROSTE_FILE_PARENTS : 0
    };
    return files_api_call(s, &r, &w, err);
}

int droste_file_remove(droste_session *s, const char *path, int recursive, droste_error *err)
{
    struct file_wait w = { 0 };
    const droste_file_request r = {
        .op = "remove", .path = path, .flags = recursive ? DROSTE_FILE_RECURSIVE : 0
    };
    return files_api_call(s, &r, &w, err);
}

int droste_file_rename(droste_session *s, const char *from, const char *to, droste_error *err)
{
    struct file_wait w = { 0 };
    const droste_file_request r = { .op = "rename", .path = from, .to = to };
    return files_api_call(s, &r, &w, err);
}

/* ---- copies ---- */

/* Closes the file; keeps the first error. */
static int files_api_close(droste_session *s, uint64_t handle, int rc, droste_error *err)
{
    struct file_wait w = { 0 };
    const droste_file_request r = { .op = "close", .handle = handle };
    int closed = files_api_call(s, &r, &w, rc < 0 ? NULL : err);
    return rc < 0 ? rc : closed;
}

static int files_api_open(droste_session *s, const char *path, const char *mode,
    droste_file_entry *entry, uint64_t *handle, droste_error *err)
{
    struct file_wait w = { .entry_fn = files_api_one, .entry_arg = entry };
    const droste_file_request r = { .op = "open", .path = path, .mode = mode };
    int rc = files_api_call(s, &r, &w, err);
    *handle = w.reply.handle;
    return rc;
}

static int files_api_io(droste_error *err, const char *doing)
{
    return error_set_errno(api_error(err), ERROR_IO, "%s", doing);
}

/* A file in /proc has a size of 0 and contents: it is read to its end. */
static uint64_t files_api_end(const droste_file_entry *entry, uint64_t offset, uint64_t length)
{
    uint64_t end = entry->size > 0 ? entry->size : UINT64_MAX;
    return offset < end && length < end - offset ? offset + length : end;
}

int droste_file_get(droste_session *s, const char *path, uint64_t offset, uint64_t length, int out,
    uint64_t *copied, droste_error *err)
{
    uint64_t at = offset, handle = 0;
    droste_file_entry entry = { 0 };
    cleanup_free char *piece = malloc(FILES_PIECE);
    if (copied)
        *copied = 0;
    int rc = piece ? files_api_open(s, path, "r", &entry, &handle, err)
                   : files_api_io(err, "reading a file");
    if (rc < 0)
        return rc;
    uint64_t end = files_api_end(&entry, offset, length);
    while (rc == 0 && at < end) {
        struct file_wait w = { .into = piece };
        const droste_file_request r = { .op = "read",
            .handle = handle,
            .offset = (int64_t)at,
            .length = end - at < FILES_PIECE ? (size_t)(end - at) : FILES_PIECE };
        rc = files_api_call(s, &r, &w, err);
        if (rc == 0 && w.reply.len == 0)
            break;
        if (rc == 0 && file_write_all(out, piece, w.reply.len) < 0)
            rc = files_api_io(err, "writing what comes from the sandbox");
        at += w.reply.len;
    }
    if (copied)
        *copied = at - offset;
    return files_api_close(s, handle, rc, err);
}

int droste_file_put(
    droste_session *s, int source, const char *path, uint64_t *copied, droste_error *err)
{
    uint64_t handle = 0, total = 0;
    droste_file_entry entry = { 0 };
    cleanup_free char *piece = malloc(FILES_PIECE);
    if (copied)
        *copied = 0;
    int rc = piece ? files_api_open(s, path, "w", &entry, &handle, err)
                   : files_api_io(err, "writing a file");
    if (rc < 0)
        return rc;
    while (rc == 0) {
        ssize_t n = read(source, piece, FILES_PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = files_api_io(err, "reading what is sent to the sandbox");
        if (n <= 0)
            break;
        struct file_wait w = { 0 };
        const droste_file_request r = { .op = "write",
            .handle = handle,
            .offset = (int64_t)total,
            .data = piece,
            .len = (size_t)n };
        rc = files_api_call(s, &r, &w, err);
        total += (uint64_t)n;
    }
    if (copied)
        *copied = total;
    return files_api_close(s, handle, rc, err);
}
