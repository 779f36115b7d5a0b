/* session/files.c: calls of the file service of a sandbox.
 *
 *   none ── a call ──► open ── an end, a violation, or silence ──► ended ── a call ──► open
 *
 * Answers come in the order of the calls. The service runs beside the guest, which has the same
 * user and may stop or kill it: that fails the open calls, and the next one starts another.
 * Handles of an earlier service are refused.
 */
#include "session/files.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "session/internal.h"

enum {
    ANSWER_MS = 60000,  /* without an answer to the oldest call, */
    REMOVE_MS = 600000, /* or, of a removal, which may be of many files */
    ENTRY_SIZE = 24,    /* of the fixed part of an entry */
    NOT_A_FILE = 4090,  /* in place of an errno: a FIFO, socket or device */
    ERRNO_MAX = 4095,
    HEAD_MAX = 4096,
    ANSWER_MAX = 6 << 20, /* bytes of an answer; a listing has up to 4 MiB and one entry */
    OPEN_CALLS = 1024,
    UNREAD_MAX = 64 << 20, /* bytes that wait for the service */
    PATH_SHOWN = 250,      /* bytes in a message */
};

struct file_pending {
    TAILQ_ENTRY(file_pending) link;
    uint64_t id;
    enum file_op op;
    size_t length; /* that may be answered to a read */
    char *path;    /* for messages */
    file_done_fn *done;
    void *arg;
};
TAILQ_HEAD(file_list, file_pending);

struct file_service {
    struct session *session;
    struct sandbox *sandbox; /* NULL: none */
    struct frame_decoder decoder;
    struct file_list pending;
    size_t count;
    uint64_t last_id;
    uint64_t generation; /* of the handles, in their upper half */
    struct timer *over, *silence;
    struct error why; /* of the end */
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
    cleanup_buf struct buf clean = { 0 }, quoted = { 0 }, shown = { 0 };
    text_append_utf8(&clean, path, len < PATH_SHOWN ? len : PATH_SHOWN);
    json_append_string(&quoted, buf_text(&clean), clean.len);
    text_append_visible_json(&shown, buf_text(&quoted), quoted.len);
    error_set(why, files_code_of(sys), "%s %s in the sandbox: %s", file_ops[op].doing,
        buf_text(&shown),
        sys == NOT_A_FILE ? "it is not a regular file, but a FIFO, a socket or a device"
                          : strerror((int)sys));
    why->sys = sys == NOT_A_FILE ? EINVAL : (int)sys;
}

/* ---- an answer ---- */

bool file_entry_next(const struct file_answer *answer, size_t *at, struct file_entry *out)
{
    const char *data = answer->data + *at;
    uint32_t mode, name_len;
    uint64_t size, mtime;
    if (answer->len - *at < ENTRY_SIZE)
        return false;
    memcpy(&mode, data, sizeof mode);
    memcpy(&name_len, data + 4, sizeof name_len);
    memcpy(&size, data + 8, sizeof size);
    memcpy(&mtime, data + 16, sizeof mtime);
    name_len = le32toh(name_len);
    if (name_len > answer->len - *at - ENTRY_SIZE)
        return false;
    *out = (struct file_entry){ .name = data + ENTRY_SIZE,
        .name_len = name_len,
        .mode = le32toh(mode),
        .size = le64toh(size),
        .mtime_ns = (int64_t)le64toh(mtime) };
    *at += ENTRY_SIZE + name_len;
    return true;
}

/* True if the name, joined to a directory, is below it; `absolute` allows a leading '/'. */
static bool files_name_ok(const struct file_entry *e, bool absolute)
{
    const char *at = e->name, *end = e->name + e->name_len;
    if (e->name_len == 0 || e->name_len > FILES_PATH_MAX || memchr(at, '\0', e->name_len))
        return false;
    if (absolute && *at == '/')
        at++;
    for (const char *next; at <= end; at = next + 1) {
        next = at < end ? memchr(at, '/', (size_t)(end - at)) : NULL;
        next = next ? next : end;
        size_t n = (size_t)(next - at);
        if (n == 0 || (n == 1 && at[0] == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
            return false;
    }
    return true;
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
        if (!ok || e.size > INT64_MAX)
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
    if (p->op == FILE_OPEN && (answer->handle == 0 || answer->handle > INT32_MAX))
        return error_set(err, ERROR_PROTOCOL, "a file with an invalid handle");
    if (answer->lists)
        return files_check_entries(p, answer, err);
    if (answer->len > p->length)
        return error_set(err, ERROR_PROTOCOL, "more data than was asked for");
    return 0;
}

static void files_await(struct file_service *f)
{
    const struct file_pending *first = TAILQ_FIRST(&f->pending);
    timer_stop(f->silence);
    if (first)
        timer_start(f->silence, first->op == FILE_REMOVE ? REMOVE_MS : ANSWER_MS, 0);
}

static void files_take(struct file_service *f, struct file_pending *p)
{
    TAILQ_REMOVE(&f->pending, p, link);
    f->count--;
}

static void files_finish(
    struct file_pending *p, const struct file_answer *answer, const struct error *why)
{
    if (p->done)
        p->done(p->arg, answer, why);
    free(p->path);
    free(p);
}

static int files_on_answer(
    struct file_service *f, const struct frame *frame, struct json_object *head, struct error *err)
{
    struct file_pending *p = TAILQ_FIRST(&f->pending);
    struct frame_parts parts;
    struct file_answer answer = { .more = json_get_bool(head, "more", false) };
    int64_t sys = json_get_int(head, "errno", 0), handle = json_get_int(head, "handle", 0);
    struct error why = { 0 };
    if (!p || p->id != frame->id)
        return error_set(err, ERROR_PROTOCOL, "an answer to no call");
    int rc = frame_parts_open(frame->blob, frame->blob_len, 1, &parts, err);
    if (rc < 0 || !frame_parts_next(&parts, &answer.data, &answer.len) || sys < 0 ||
        sys > ERRNO_MAX || handle < 0)
        return error_set(err, ERROR_PROTOCOL, "an answer that is malformed");
    answer.handle = (uint64_t)handle;
    answer.lists = files_lists(p->op);
    if (sys == 0 && (rc = files_check_answer(p, &answer, err)) < 0)
        return rc;
    if (sys != 0)
        files_explain(&why, p->op, p->path, strlen(p->path), sys);
    answer.handle |= f->generation << 32;
    files_take(f, p);
    files_await(f);
    files_finish(p, sys ? NULL : &answer, sys ? &why : NULL);
    return 0;
}

static int files_on_frame(void *arg, const struct frame *frame, struct error *err)
{
    struct file_service *f = arg;
    cleanup_json struct json_object *head = NULL;
    if (frame->type == FRAME_READY || f->why.code != ERROR_NONE)
        return 0;
    int rc = json_parse(frame->head, frame->head_len, &json_limits_small, &head, err);
    if (rc == 0 && !json_object_is_type(head, json_type_object))
        rc = error_set(err, ERROR_PROTOCOL, "the head of an answer is not an object");
    return rc < 0 ? rc : files_on_answer(f, frame, head, err);
}

/* ---- its end ---- */

/* Ends the service from the loop: events of its sandbox may be under way. */
static void files_fail(struct file_service *f, const struct error *why)
{
    if (f->why.code != ERROR_NONE)
        return;
    f->why = *why;
    timer_start(f->over, 0, 0);
}

static void files_end(struct file_service *f)
{
    const struct error why = f->why;
    struct file_list failed;
    struct file_pending *p;
    f->session->ops->close(steal(&f->sandbox));
    frame_decoder_free(&f->decoder);
    timer_stop(f->over);
    timer_stop(f->silence);
    TAILQ_INIT(&failed);
    TAILQ_CONCAT(&failed, &f->pending, link);
    f->count = 0;
    f->why = (struct error){ 0 };
    while ((p = TAILQ_FIRST(&failed))) {
        TAILQ_REMOVE(&failed, p, link);
        files_finish(p, NULL, &why);
    }
}

static void files_over(void *arg)
{
    files_end(arg);
}

static void files_silent(void *arg)
{
    struct error why = { 0 };
    error_set(&why, ERROR_TIMEOUT, "the sandbox did not answer a request for a file within %d s",
        ANSWER_MS / 1000);
    files_fail(arg, &why);
}

static bool files_bytes(void *arg, const char *data, size_t len)
{
    struct file_service *f = arg;
    struct error why = { 0 };
    if (f->why.code != ERROR_NONE)
        return true;
    if (frame_feed(&f->decoder, data, len, files_on_frame, f, &why) < 0) {
        error_wrap(&why, "the file service of the sandbox broke the protocol and was ended");
        files_fail(f, &why);
        return true;
    }
    return frame_is_partial(&f->decoder);
}

static void files_output(void *arg, int stream, const char *data, size_t len)
{
}

static void files_ended(void *arg, const struct sandbox_exit *how)
{
    struct error why = how->error;
    if (why.code == ERROR_NONE)
        error_set(
            &why, ERROR_LOST, "the process that serves the sandbox's files was ended; try again");
    files_fail(arg, &why);
}

void session_files_end(struct session *s, const struct error *why)
{
    if (!s->files || !s->files->sandbox)
        return;
    if (s->files->why.code == ERROR_NONE)
        s->files->why = *why;
    files_end(s->files);
}

void session_files_free(struct session *s)
{
    struct error why = { 0 };
    if (!s->files)
        return;
    error_set(&why, ERROR_CANCELLED, "the session was closed");
    session_files_end(s, &why);
    timer_free(s->files->over);
    timer_free(s->files->silence);
    free(steal(&s->files));
}

/* ---- a call ---- */

static int files_send(struct file_service *f, uint8_t type, uint64_t id, const struct buf *head,
    const struct iovec *blob, int count, struct error *err)
{
    unsigned char header[FRAME_HEADER_SIZE];
    struct iovec iov[5] = { { header, sizeof header }, { head->data, head->len } };
    struct frame frame = { .type = type, .id = id, .head_len = head->len };
    for (int i = 0; i < count; i++) {
        frame.blob_len += blob[i].iov_len;
        iov[2 + i] = blob[i];
    }
    frame_write_header(header, &frame);
    return f->session->ops->send(f->sandbox, iov, 2 + count, -1, err);
}

static int files_open_service(struct file_service *f, struct error *err)
{
    static const struct frame_rule rules[] = { { FRAME_READY, HEAD_MAX, 0 },
        { FRAME_FILED, HEAD_MAX, ANSWER_MAX } };
    static const struct sandbox_events events = { files_bytes, files_output, files_ended };
    struct session *s = f->session;
    cleanup_buf struct buf head = { 0 };
    int rc = s->ops->open_beside(s->sandbox, &events, f, &f->sandbox, err);
    if (rc < 0)
        return rc;
    f->decoder = (struct frame_decoder){ .rules = rules, .rule_count = array_length(rules) };
    f->generation++;
    if (!s->directory)
        return 0;
    buf_puts(&head, "{\"cwd\":");
    json_append_string(&head, s->directory, strlen(s->directory));
    buf_putc(&head, '}');
    return buf_failed(&head) ? error_memory(err)
                             : files_send(f, FRAME_HELLO, 0, &head, NULL, 0, err);
}

static struct file_service *files_new(struct session *s)
{
    struct loop *loop = ((struct environment_base *)s->env)->loop;
    struct file_service *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->session = s;
    TAILQ_INIT(&f->pending);
    f->over = timer_new(loop, files_over, f);
    f->silence = timer_new(loop, files_silent, f);
    if (f->over && f->silence)
        return f;
    timer_free(f->over);
    timer_free(f->silence);
    free(f);
    return NULL;
}

/* Starts the service if there is none. */
static int files_ready(struct session *s, struct error *err)
{
    if (s->dead || s->death.code != ERROR_NONE) {
        if (err)
            *err = s->death;
        return -(int)s->death.code;
    }
    if (!s->ops->open_beside)
        return error_set(
            err, ERROR_UNSUPPORTED, "the environment '%s' gives no access to files", s->ops->name);
    if (!s->files && !(s->files = files_new(s)))
        return error_memory(err);
    if (s->files->why.code != ERROR_NONE)
        files_end(s->files);
    return s->files->sandbox ? 0 : files_open_service(s->files, err);
}

static void files_write_head(struct buf *head, const struct file_call *call)
{
    static const char *const truth[] = { "false", "true" };
    buf_printf(head, "{\"op\":\"%s\",\"handle\":%u,\"offset\":%lld,\"length\":%zu,\"depth\":%u,",
        file_ops[call->op].name, (unsigned)(call->handle & UINT32_MAX), (long long)call->offset,
        call->length, call->depth);
    buf_printf(head, "\"limit\":%u,\"mode\":\"%s\",\"follow\":%s,\"parents\":%s,\"recursive\":%s}",
        call->limit, call->mode ? call->mode : "r", truth[call->follow], truth[call->parents],
        truth[call->recursive]);
}

static bool files_uses_handle(enum file_op op)
{
    return op == FILE_READ || op == FILE_WRITE || op == FILE_CLOSE;
}

static int files_check_call(
    const struct session *s, const struct file_call *call, struct error *err)
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
    if (!by_path && (!s->files || call->handle >> 32 != s->files->generation)) {
        error_set(err, ERROR_LOST, "the file is not open, or its service was ended; open it again");
        if (err)
            err->sys = EBADF;
        return -(int)ERROR_LOST;
    }
    return 0;
}

static struct file_pending *files_pend(const struct file_call *call, file_done_fn *done, void *arg)
{
    struct file_pending *p = calloc(1, sizeof *p);
    char *path = p ? strndup(call->path ? call->path : "", call->path ? call->path_len : 0) : NULL;
    if (!path) {
        free(p);
        return NULL;
    }
    *p = (struct file_pending){ .op = call->op,
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
    int rc = files_ready(s, err);
    if (rc == 0)
        rc = files_check_call(s, call, err);
    if (rc < 0)
        return rc;
    size_t unread = s->ops->unread ? s->ops->unread(s->files->sandbox) : 0;
    if (s->files->count >= OPEN_CALLS || unread > UNREAD_MAX)
        return error_set(err, ERROR_ARGUMENT,
            "%zu requests for files are open, and %zu bytes wait for the sandbox; wait for answers",
            s->files->count, unread);
    if (files_uses_handle(call->op))
        blob[0] = (struct iovec){ (void *)(uintptr_t)call->data, call->len };
    files_write_head(&head, call);
    struct file_pending *p = buf_failed(&head) ? NULL : files_pend(call, done, arg);
    if (!p)
        return error_memory(err);
    p->id = ++s->files->last_id;
    TAILQ_INSERT_TAIL(&s->files->pending, p, link);
    s->files->count++;
    rc = files_send(s->files, FRAME_FILE, p->id, &head, blob, call->to ? 3 : 1, err);
    if (rc < 0) {
        files_take(s->files, p);
        free(p->path);
        free(p);
        return rc;
    }
    files_await(s->files);
    return 0;
}

void session_file_forget(struct session *s, const void *arg)
{
    struct file_pending *p;
    if (!s->files)
        return;
    TAILQ_FOREACH(p, &s->files->pending, link)
    if (p->arg == arg)
        p->done = NULL;
}
