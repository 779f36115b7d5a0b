/* session/files.c: calls for files, which the service of a sandbox answers (session/service.h). */
#include "session/files.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "session/internal.h"
#include "session/service.h"

enum {
    ANSWER_MS = 60000,
    REMOVE_MS = 600000,    /* of many files */
    ENTRY_SIZE = 52,       /* of the fixed part of an entry */
    ATTRIBUTES_MAX = 8192, /* bytes of an entry's attributes */
    OWNER_MAX = 256,       /* bytes of the name of a user or group */
    NOT_A_FILE = 4090,     /* in place of an errno: a FIFO, socket or device */
    ERRNO_MAX = 4095,
};

struct file_pending {
    struct service_request request; /* first */
    struct session *session;
    enum file_op op;
    size_t length; /* that may be answered to a read */
    char *path;    /* for messages */
    file_done_fn *done;
    void *arg;
};

/* ---- what it is called ---- */

static const struct {
    const char *name, *doing;
} file_ops[FILE_OP_COUNT] = {
    [FILE_OPEN] = { "open", "opening" },
    [FILE_READ] = { "read", "reading" },
    [FILE_WRITE] = { "write", "writing" },
    [FILE_CLOSE] = { "close", "closing" },
    [FILE_STAT] = { "stat", "looking at" },
    [FILE_LIST] = { "list", "listing" },
    [FILE_GLOB] = { "glob", "looking for" },
    [FILE_MKDIR] = { "mkdir", "creating the directory" },
    [FILE_REMOVE] = { "remove", "removing" },
    [FILE_RENAME] = { "rename", "moving" },
    [FILE_MARK] = { "mark", "setting attributes of" },
};

static enum error_code files_code_of(int64_t sys)
{
    switch (sys) {
    case ENOENT:
        return ERROR_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
        return ERROR_PERMISSION;
    case EISDIR:
    case ENOTDIR:
    case EEXIST:
    case ENOTEMPTY:
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
    case EBADF:
    case EXDEV:
    case NOT_A_FILE:
        return ERROR_ARGUMENT;
    default:
        return ERROR_IO;
    }
}

static void files_explain(
    struct error *why, enum file_op op, const char *path, size_t len, int64_t sys)
{
    cleanup_buf struct buf shown = { 0 };
    service_quote(&shown, path, len);
    error_set(why, files_code_of(sys), "%s %s in the sandbox: %s", file_ops[op].doing,
        buf_text(&shown),
        sys == NOT_A_FILE ? "it is not a regular file, but a FIFO, a socket or a device"
                          : strerror((int)sys));
    why->sys = sys == NOT_A_FILE ? EINVAL : (int)sys;
}

/* ---- an answer ---- */

static uint32_t files_word(const char *data, size_t at)
{
    uint32_t word;
    memcpy(&word, data + at, sizeof word);
    return le32toh(word);
}

bool file_entry_next(const struct file_answer *answer, size_t *at, struct file_entry *out)
{
    const char *data = answer->data + *at;
    uint64_t size, mtime;
    if (answer->len - *at < ENTRY_SIZE)
        return false;
    memcpy(&size, data + 8, sizeof size);
    memcpy(&mtime, data + 16, sizeof mtime);
    *out = (struct file_entry){ .mode = files_word(data, 0),
        .name_len = files_word(data, 4),
        .size = le64toh(size),
        .mtime_ns = (int64_t)le64toh(mtime),
        .uid = files_word(data, 24),
        .gid = files_word(data, 28),
        .target_mode = files_word(data, 32),
        .target_len = files_word(data, 36),
        .user_len = files_word(data, 40),
        .group_len = files_word(data, 44),
        .attributes_len = files_word(data, 48) };
    uint64_t texts = (uint64_t)out->name_len + out->target_len + out->user_len + out->group_len +
                     out->attributes_len;
    if (texts > answer->len - *at - ENTRY_SIZE)
        return false;
    out->name = data + ENTRY_SIZE;
    out->target = out->name + out->name_len;
    out->user = out->target + out->target_len;
    out->group = out->user + out->user_len;
    out->attributes = out->group + out->group_len;
    *at += ENTRY_SIZE + (size_t)texts;
    return true;
}

/* The texts beside the name: without NUL, and no longer than they can be. */
static bool files_texts_ok(const struct file_entry *e)
{
    size_t len = e->target_len + e->user_len + e->group_len + e->attributes_len;
    for (size_t i = 0; i < e->attributes_len && e->attributes_len <= ATTRIBUTES_MAX; i++)
        if (e->attributes[i] != '\n' && (e->attributes[i] < ' ' || e->attributes[i] > '~'))
            return false;
    return e->target_len <= FILES_PATH_MAX && e->user_len <= OWNER_MAX &&
           e->group_len <= OWNER_MAX && e->attributes_len <= ATTRIBUTES_MAX &&
           !memchr(e->target, '\0', len);
}

/* True if the name, joined to a directory, is below it; `absolute` allows a leading '/'. */
static bool files_name_ok(const struct file_entry *e, bool absolute)
{
    size_t root = absolute && e->name_len > 0 && e->name[0] == '/';
    return e->name_len <= FILES_PATH_MAX && text_leads_down(e->name + root, e->name_len - root);
}

static int files_check_entries(
    const struct file_pending *p, const struct file_answer *answer, struct error *err)
{
    struct file_entry e;
    size_t at = 0, count = 0;
    bool one = p->op == FILE_OPEN || p->op == FILE_STAT;
    while (file_entry_next(answer, &at, &e)) {
        count++;
        bool ok = one ? e.name_len == 0 : files_name_ok(&e, p->op == FILE_GLOB);
        if (!ok || e.size > INT64_MAX || !files_texts_ok(&e))
            return error_set(err, ERROR_PROTOCOL, "an entry with an invalid name or size");
    }
    if (at != answer->len || (one && count != 1) || count > FILES_ENTRIES_MAX)
        return error_set(err, ERROR_PROTOCOL, "a list of entries that is malformed");
    return 0;
}

static bool files_lists(enum file_op op)
{
    return op == FILE_OPEN || op == FILE_STAT || op == FILE_LIST || op == FILE_GLOB;
}

static int files_check_answer(
    const struct file_pending *p, const struct file_answer *answer, struct error *err)
{
    if (answer->lists)
        return files_check_entries(p, answer, err);
    if (answer->len > p->length)
        return error_set(err, ERROR_PROTOCOL, "more data than was asked for");
    return 0;
}

static void files_finish(
    struct file_pending *p, const struct file_answer *answer, const struct error *why)
{
    if (p->done)
        p->done(p->arg, answer, why);
    free(p->path);
    free(p);
}

static void files_fail(struct service_request *r, const struct error *why)
{
    files_finish((struct file_pending *)r, NULL, why);
}

static int files_take(struct service_request *r, struct json_object *head,
    const struct frame *frame, struct error *err)
{
    struct file_pending *p = (struct file_pending *)r;
    struct frame_parts parts;
    struct file_answer answer = { .more = json_get_bool(head, "more", false) };
    int64_t sys = json_get_int(head, "errno", 0), handle = json_get_int(head, "handle", 0);
    struct error why = { 0 };
    int rc = frame_parts_open(frame->blob, frame->blob_len, 1, &parts, err);
    if (rc < 0 || !frame_parts_next(&parts, &answer.data, &answer.len) || sys < 0 ||
        sys > ERRNO_MAX || (p->op == FILE_OPEN && sys == 0 && !service_number_ok(handle)))
        return error_set(err, ERROR_PROTOCOL, "an answer that is malformed");
    answer.lists = files_lists(p->op);
    if (sys == 0 && (rc = files_check_answer(p, &answer, err)) < 0)
        return rc;
    if (sys != 0)
        files_explain(&why, p->op, p->path, strlen(p->path), sys);
    answer.handle = p->op == FILE_OPEN ? service_handle(p->session, handle) : 0;
    files_finish(p, sys ? NULL : &answer, sys ? &why : NULL);
    return 0;
}

static const struct service_request_ops files_request = { FRAME_FILE, FRAME_FILED, files_take,
    files_fail };

/* ---- a call ---- */

static void files_write_head(struct buf *head, const struct file_call *call, uint32_t number)
{
    static const char *const truth[] = { "false", "true" };
    buf_printf(head, "{\"op\":\"%s\",\"handle\":%u,\"offset\":%lld,\"length\":%zu,\"depth\":%u,",
        file_ops[call->op].name, (unsigned)number, (long long)call->offset, call->length,
        call->depth);
    buf_printf(head,
        "\"limit\":%u,\"mode\":\"%s\",\"follow\":%s,\"parents\":%s,\"recursive\":%s,"
        "\"attributes\":%s}",
        call->limit, call->mode ? call->mode : "r", truth[call->follow], truth[call->parents],
        truth[call->recursive], truth[call->attributes]);
}

static bool files_uses_handle(enum file_op op)
{
    return op == FILE_READ || op == FILE_WRITE || op == FILE_CLOSE;
}

static int files_check_call(
    const struct session *s, const struct file_call *call, uint32_t *number, struct error *err)
{
    static const char modes[] = "rwxa";
    bool by_path = !files_uses_handle(call->op);
    if (by_path &&
        (call->path_len > FILES_PATH_MAX || (call->to && strlen(call->to) > FILES_PATH_MAX)))
        return error_set(err, ERROR_ARGUMENT, "a path may have %d bytes", FILES_PATH_MAX);
    if (by_path && (call->path_len == 0 ||
                       (call->op != FILE_GLOB && memchr(call->path, '\0', call->path_len))))
        return error_set(err, ERROR_ARGUMENT, "a path is empty, or has a NUL");
    if (call->mode && (strlen(call->mode) != 1 || !strchr(modes, call->mode[0])))
        return error_set(
            err, ERROR_ARGUMENT, "a file can be opened to \"r\", \"w\", \"x\" or \"a\"");
    if (call->length > FILES_PIECE || call->len > FILES_PIECE)
        return error_set(err, ERROR_ARGUMENT, "at most %d bytes in one piece", FILES_PIECE);
    if (call->offset < 0 && call->op == FILE_READ)
        return error_set(err, ERROR_ARGUMENT, "an offset is negative");
    *number = 0;
    if (!by_path)
        return service_number(s, call->handle,
            "the file is not open, or its service was ended; open it again", number, err);
    return 0;
}

static struct file_pending *files_pend(
    struct session *s, const struct file_call *call, file_done_fn *done, void *arg)
{
    struct file_pending *p = calloc(1, sizeof *p);
    char *path = p ? strndup(call->path ? call->path : "", call->path ? call->path_len : 0) : NULL;
    if (!path) {
        free(p);
        return NULL;
    }
    *p = (struct file_pending){ .request = { .ops = &files_request,
                                    .answer_ms = call->op == FILE_REMOVE ? REMOVE_MS : ANSWER_MS },
        .session = s,
        .op = call->op,
        .length = call->op == FILE_READ ? call->length : 0,
        .path = path,
        .done = done,
        .arg = arg };
    return p;
}

int session_file(struct session *s, const struct file_call *call, file_done_fn *done, void *arg,
    struct error *err)
{
    cleanup_buf struct buf head = { 0 };
    struct iovec blob[3] = { { (void *)(uintptr_t)call->path, call->path_len },
        { (void *)(uintptr_t) "", 1 },
        { (void *)(uintptr_t)call->to, call->to ? strlen(call->to) : 0 } };
    uint32_t number;
    int rc = service_ready(s, "files", err);
    if (rc == 0)
        rc = files_check_call(s, call, &number, err);
    if (rc < 0)
        return rc;
    if (files_uses_handle(call->op))
        blob[0] = (struct iovec){ (void *)(uintptr_t)call->data, call->len };
    files_write_head(&head, call, number);
    struct file_pending *p = buf_failed(&head) ? NULL : files_pend(s, call, done, arg);
    if (!p)
        return error_memory(err);
    rc = service_ask(s, &p->request, &head, blob, call->to ? 3 : 1, err);
    if (rc < 0) {
        free(p->path);
        free(p);
    }
    return rc;
}

static void files_forget(struct service_request *r, const void *arg)
{
    struct file_pending *p = (struct file_pending *)r;
    if (r->ops == &files_request && p->arg == arg)
        p->done = NULL;
}

void session_file_forget(struct session *s, const void *arg)
{
    service_each(s, files_forget, arg);
}
