/* rlm/artifacts.c: copies files out of a sandbox, one after the other.
 *
 *   glob ──► open ──► read … ──► close ──► rename, record ──► the next file … ──► done
 *
 * A file is written under a random name beside its target and renamed, so the target is complete
 * or unchanged. Directories are entered one by one without following links. A file that fails does
 * not stop the others.
 */
#include "rlm/artifacts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/loop.h"
#include "base/os/file.h"
#include "base/os/random.h"
#include "base/text.h"

struct artifacts {
    struct artifact_options o;
    struct artifact_list *list;
    struct timer *step; /* begins and ends outside of the session's callbacks */
    struct artifact *found;
    size_t count, cap, at; /* of `found`; the current file */
    bool ended;

    /* of the current file */
    uint64_t handle, offset, end;
    int parent, fd; /* its directory; the draft; -1: none */
    char draft[32];
    char *leaf; /* within its path */
    struct hash hash;
    struct error failed; /* why it cannot be saved, once the handle is closed */
};

static void artifacts_next(struct artifacts *a);

static void artifact_free(struct artifact *artifact)
{
    free(artifact->name);
    free(artifact->path);
}

void artifact_list_free(struct artifact_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        artifact_free(&list->items[i]);
    free(list->items);
    *list = (struct artifact_list){ 0 };
}

/* ---- the end ---- */

static void artifacts_note(struct artifacts *a, const struct error *why, size_t left_out)
{
    if (a->list->error.code == ERROR_NONE)
        a->list->error = *why;
    a->list->left_out += left_out;
}

static void artifacts_end(struct artifacts *a)
{
    a->ended = true;
    timer_start(a->step, 0, 0);
}

/* Closes the current file; removes its draft. */
static void artifacts_drop_file(struct artifacts *a)
{
    if (a->draft[0])
        unlinkat(a->parent, a->draft, 0);
    a->draft[0] = '\0';
    close_fd(&a->fd);
    close_fd(&a->parent);
    hash_close(&a->hash);
    a->hash = (struct hash){ 0 };
}

/* ---- one file on this machine ---- */

static int artifact_error(struct error *err, const char *doing, const char *path)
{
    return error_set_errno(err, ERROR_IO, "%s %.300s", doing, path);
}

/* Enters a directory that is not a link, and makes it if there is none. */
static int artifact_enter(int parent, const char *name)
{
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(parent, name, flags);
    if (fd >= 0 || errno != ENOENT)
        return fd;
    if (mkdirat(parent, name, 0777) < 0 && errno != EEXIST)
        return -1;
    return openat(parent, name, flags);
}

/* Opens the directory of the current file below the top; `leaf` is the rest of its path. */
static int artifact_open_parent(struct artifacts *a, struct artifact *f, struct error *err)
{
    char *at = f->path + strlen(a->o.directory) + 1;
    int rc = file_make_directories(a->o.directory, err);
    if (rc < 0)
        return rc;
    a->parent = open(a->o.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (char *slash; a->parent >= 0 && (slash = strchr(at, '/')); at = slash + 1) {
        *slash = '\0';
        bool real = at[0] != '\0' && strcmp(at, ".") != 0 && strcmp(at, "..") != 0;
        int fd = -1;
        if (real)
            fd = artifact_enter(a->parent, at);
        else
            errno = EINVAL;
        *slash = '/';
        int saved = errno;
        close_fd(&a->parent);
        a->parent = fd;
        errno = saved;
    }
    a->leaf = at;
    return a->parent < 0 ? artifact_error(err, "making the directory of", f->path) : 0;
}

static int artifact_open_draft(struct artifacts *a, struct artifact *f, struct error *err)
{
    char random[17];
    int rc = artifact_open_parent(a, f, err);
    if (rc == 0)
        rc = random_hex(random, sizeof random - 1, err);
    if (rc == 0)
        rc = hash_open(&a->hash, err);
    if (rc < 0)
        return rc;
    snprintf(a->draft, sizeof a->draft, ".droste-%s", random);
    a->fd = openat(a->parent, a->draft, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (a->fd >= 0)
        return 0;
    a->draft[0] = '\0';
    return artifact_error(err, "making", f->path);
}

static int artifact_keep(struct artifacts *a, struct error *err)
{
    struct artifact *f = &a->found[a->at];
    f->size = a->offset;
    int rc = hash_take(&a->hash, f->hash, err);
    if (rc < 0)
        return rc;
    if (renameat(a->parent, a->draft, a->parent, a->leaf) < 0)
        return artifact_error(err, "writing", f->path);
    a->draft[0] = '\0';
    if (!array_room(a->list->items, a->list->count, &a->list->cap))
        return error_memory(err);
    a->list->items[a->list->count++] = *f;
    *f = (struct artifact){ 0 };
    return a->o.record(a->o.arg, &a->list->items[a->list->count - 1], a->fd, err);
}

/* ---- one file of the sandbox ---- */

/* Ends the current file with what has become of it, and begins the next one. */
static void artifact_over(struct artifacts *a, const struct error *why)
{
    if (why)
        artifacts_note(a, why, 1);
    artifacts_drop_file(a);
    a->at++;
    artifacts_next(a);
}

static int artifact_ask(
    struct artifacts *a, const struct file_call *call, file_done_fn *done, struct error *err)
{
    if (a->ended)
        return error_set(err, ERROR_CANCELLED, "the artifacts were not all saved: interrupted");
    return session_file(a->o.session, call, done, a, err);
}

static void artifact_closed(void *arg, const struct file_answer *answer, const struct error *why)
{
    struct artifacts *a = arg;
    struct error err = { 0 };
    if (a->failed.code != ERROR_NONE)
        err = a->failed;
    else if (why)
        err = *why;
    else
        artifact_keep(a, &err);
    artifact_over(a, err.code != ERROR_NONE ? &err : NULL);
}

/* `why` NULL: it is copied. */
static void artifact_close(struct artifacts *a, const struct error *why)
{
    struct file_call call = { .op = FILE_CLOSE, .handle = a->handle, .path = "" };
    struct error err = { 0 };
    a->failed = why ? *why : (struct error){ 0 };
    if (artifact_ask(a, &call, artifact_closed, &err) < 0)
        artifact_over(a, why ? why : &err);
}

static void artifact_read(struct artifacts *a);

static void artifact_piece(void *arg, const struct file_answer *answer, const struct error *why)
{
    struct artifacts *a = arg;
    struct error err = { 0 };
    if (why) {
        artifact_close(a, why);
        return;
    }
    if (answer->len == 0 || answer->len > a->end - a->offset) { /* it has become shorter */
        artifact_close(a, NULL);
        return;
    }
    if (file_write_all(a->fd, answer->data, answer->len) < 0) {
        artifact_error(&err, "writing", a->found[a->at].path);
        artifact_close(a, &err);
        return;
    }
    hash_add(&a->hash, answer->data, answer->len);
    a->offset += answer->len;
    artifact_read(a);
}

/* A file that grows is read up to the size that it had. */
static void artifact_read(struct artifacts *a)
{
    uint64_t left = a->end - a->offset;
    struct file_call call = { .op = FILE_READ,
        .path = "",
        .handle = a->handle,
        .offset = (int64_t)a->offset,
        .length = left < FILES_PIECE ? (size_t)left : FILES_PIECE };
    struct error err = { 0 };
    if (left == 0)
        artifact_close(a, NULL);
    else if (artifact_ask(a, &call, artifact_piece, &err) < 0)
        artifact_over(a, &err);
}

static uint64_t artifacts_saved_bytes(const struct artifacts *a)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < a->list->count; i++)
        sum += a->list->items[i].size;
    return sum;
}

static void artifact_opened(void *arg, const struct file_answer *answer, const struct error *why)
{
    struct artifacts *a = arg;
    struct error err = { 0 };
    struct file_entry entry = { 0 };
    size_t at = 0;
    if (why) {
        artifact_over(a, why);
        return;
    }
    a->handle = answer->handle;
    a->offset = 0;
    if (!file_entry_next(answer, &at, &entry))
        error_set(&err, ERROR_PROTOCOL, "the sandbox did not say how large a file is");
    else if (entry.size > ARTIFACTS_SIZE_MAX - artifacts_saved_bytes(a))
        error_set(&err, ERROR_ARGUMENT,
            "the artifacts have more than %llu bytes; narrow the patterns",
            (unsigned long long)ARTIFACTS_SIZE_MAX);
    else
        artifact_open_draft(a, &a->found[a->at], &err);
    a->end = entry.size;
    if (err.code != ERROR_NONE)
        artifact_close(a, &err);
    else
        artifact_read(a);
}

static void artifacts_next(struct artifacts *a)
{
    struct error err = { 0 };
    for (; a->at < a->count && !a->ended; a->at++) {
        const char *name = a->found[a->at].name;
        struct file_call call = {
            .op = FILE_OPEN, .path = name, .path_len = strlen(name), .mode = "r"
        };
        if (err.code != ERROR_LOST && artifact_ask(a, &call, artifact_opened, &err) == 0)
            return;
        artifacts_note(a, &err, 1); /* with the sandbox, the others are lost, too */
    }
    if (!a->ended)
        artifacts_end(a);
}

/* ---- which files ---- */

/* A name that can stand in a record, in JSON and on a terminal as it is. */
static bool artifact_name_is_plain(const char *name, size_t len)
{
    cleanup_buf struct buf visible = { 0 };
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] < 0x20)
            return false;
    if (!text_is_utf8(name, len, NULL))
        return false;
    text_append_visible(&visible, name, len);
    return !buf_failed(&visible) && visible.len == len;
}

static int artifacts_add(struct artifacts *a, const struct file_entry *entry, struct error *err)
{
    const char *below = entry->name;
    size_t len = entry->name_len;
    if (!artifact_name_is_plain(entry->name, len)) {
        struct error why = { 0 };
        error_set(&why, ERROR_ARGUMENT,
            "a file was not saved: its name is not UTF-8, or has control characters");
        artifacts_note(a, &why, 1);
        return 0;
    }
    for (size_t i = 0; i < a->count; i++) /* an earlier pattern matches it, too */
        if (strlen(a->found[i].name) == len && memcmp(a->found[i].name, entry->name, len) == 0)
            return 0;
    for (; len > 0 && below[0] == '/'; len--)
        below++;
    if (!array_room(a->found, a->count, &a->cap))
        return error_memory(err);
    struct artifact *f = &a->found[a->count++];
    *f = (struct artifact){ .name = text_copy(entry->name, entry->name_len),
        .path = text_printf("%s/%.*s", a->o.directory, (int)len, below),
        .size = entry->size };
    return f->name && f->path ? 0 : error_memory(err);
}

static int artifacts_take(struct artifacts *a, const struct file_answer *answer, struct error *err)
{
    struct file_entry entry;
    uint64_t bytes = 0;
    int rc = 0;
    for (size_t at = 0; rc == 0 && file_entry_next(answer, &at, &entry);) {
        size_t before = a->count;
        rc = artifacts_add(a, &entry, err);
        if (a->count > before)
            bytes = entry.size > UINT64_MAX - bytes ? UINT64_MAX : bytes + entry.size;
    }
    if (rc == 0 && answer->more)
        rc = error_set(err, ERROR_ARGUMENT,
            "no artifacts were saved: more than %d files match; narrow the patterns",
            ARTIFACTS_MAX);
    if (rc == 0 && bytes > ARTIFACTS_SIZE_MAX)
        rc = error_set(err, ERROR_ARGUMENT,
            "no artifacts were saved: the files have %llu bytes, more than %llu; narrow the "
            "patterns",
            (unsigned long long)bytes, (unsigned long long)ARTIFACTS_SIZE_MAX);
    return rc;
}

static void artifacts_found(void *arg, const struct file_answer *answer, const struct error *why)
{
    struct artifacts *a = arg;
    struct error err = { 0 };
    if (why)
        err = *why;
    else
        artifacts_take(a, answer, &err);
    if (err.code != ERROR_NONE) {
        artifacts_note(a, &err, a->count - a->at);
        a->at = a->count;
    }
    artifacts_next(a);
}

static int artifacts_look(struct artifacts *a, struct error *err)
{
    cleanup_buf struct buf patterns = { 0 };
    const struct list *list = a->o.patterns;
    for (size_t i = 0; i < list->count; i++)
        buf_append(&patterns, list->items[i], strlen(list->items[i]) + (i + 1 < list->count));
    struct file_call call = { .op = FILE_GLOB,
        .path = buf_text(&patterns),
        .path_len = patterns.len,
        .limit = ARTIFACTS_MAX };
    return buf_failed(&patterns) ? error_memory(err) : artifact_ask(a, &call, artifacts_found, err);
}

/* ---- its life ---- */

/* The session may be gone before *a. */
static void artifacts_leave(struct artifacts *a)
{
    if (a->o.session)
        session_file_forget(a->o.session, a);
    a->o.session = NULL;
    artifacts_drop_file(a);
}

static void artifacts_step(void *arg)
{
    struct artifacts *a = arg;
    struct error err = { 0 };
    if (!a->ended && artifacts_look(a, &err) == 0)
        return;
    if (err.code != ERROR_NONE)
        artifacts_note(a, &err, 0);
    a->ended = true;
    artifacts_leave(a);
    a->o.done(a->o.arg);
}

int artifacts_start(const struct artifact_options *options, struct artifact_list *list,
    struct artifacts **out, struct error *err)
{
    struct artifacts *a = calloc(1, sizeof *a);
    if (!a)
        return error_memory(err);
    *a = (struct artifacts){ .o = *options, .list = list, .parent = -1, .fd = -1 };
    a->step = timer_new(options->loop, artifacts_step, a);
    if (!a->step) {
        free(a);
        return error_memory(err);
    }
    timer_start(a->step, 0, 0);
    *out = a;
    return 0;
}

void artifacts_cancel(struct artifacts *a)
{
    struct error why = { 0 };
    error_set(&why, ERROR_CANCELLED, "the artifacts were not all saved: interrupted");
    artifacts_note(a, &why, a->count - a->at);
    a->ended = true;
    timer_stop(a->step);
    artifacts_leave(a);
    a->o.done(a->o.arg);
}

void artifacts_free(struct artifacts *a)
{
    if (!a)
        return;
    artifacts_leave(a);
    for (size_t i = 0; i < a->count; i++)
        artifact_free(&a->found[i]);
    free(a->found);
    timer_free(a->step);
    free(a);
}
