/* base/chunk.c: see chunk.h. Chunks are read by their names, so what anything else has written into
 * the directory is either what was stored, or refused.
 */
#include "base/chunk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/beneath.h"
#include "base/os/file.h"
#include "base/os/random.h"

enum { CHUNK_NAME = HASH_TEXT_SIZE - 1, CHUNK_FILE = CHUNK_NAME + 8 };

static const char chunk_old[] = ".old", chunk_draft[] = ".new-";

static int chunk_failed(const struct chunk_store *s, const char *what, struct error *err)
{
    return error_set_errno(err, ERROR_IO, "%s a chunk of a volume in %.160s", what, s->path);
}

int chunk_store_open(const char *path, struct chunk_store *out, struct error *err)
{
    *out = (struct chunk_store){ path, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) };
    return out->directory < 0
               ? error_set_errno(err, ERROR_IO, "opening the directory of chunks %.160s", path)
               : 0;
}

void chunk_store_close(struct chunk_store *s)
{
    close_fd(&s->directory);
}

bool chunk_name_is_ok(const char *name)
{
    return strlen(name) == CHUNK_NAME && strspn(name, "0123456789abcdef") == CHUNK_NAME;
}

/* ---- writing ---- */

static int chunk_write(int directory, const char *name, const void *data, size_t len)
{
    char draft[sizeof chunk_draft + 32] = ".new-";
    if (random_hex(draft + sizeof chunk_draft - 1, 32, NULL) < 0)
        return -1;
    cleanup_fd int fd = openat(directory, draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    if (file_write_all(fd, data, len) == 0 && fsync(fd) == 0 &&
        renameat(directory, draft, directory, name) == 0)
        return fsync(directory);
    int number = errno;
    unlinkat(directory, draft, 0);
    errno = number;
    return -1;
}

/* The directory of chunks whose names begin like this one; -1 with errno. */
static int chunk_directory(const struct chunk_store *s, const char *name)
{
    char first[3] = { name[0], name[1], '\0' };
    return open_beneath(s->directory, first, O_RDONLY | O_DIRECTORY, 0);
}

static int chunk_store_data(const struct chunk_store *s, const char *name, const void *data,
    size_t len, bool replaces, struct error *err)
{
    char first[3] = { name[0], name[1], '\0' };
    struct stat st;
    if (mkdirat(s->directory, first, 0700) == 0)
        (void)fsync(s->directory);
    else if (errno != EEXIST)
        return chunk_failed(s, "writing", err);
    cleanup_fd int directory = chunk_directory(s, name);
    if (directory < 0)
        return chunk_failed(s, "writing", err);
    bool is_there = !replaces && fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                    S_ISREG(st.st_mode) && (size_t)st.st_size == len;
    return is_there || chunk_write(directory, name, data, len) == 0
               ? 0
               : chunk_failed(s, "writing", err);
}

int chunk_put(const struct chunk_store *s, const void *data, size_t len, char name[HASH_TEXT_SIZE],
    struct error *err)
{
    int rc = hash_sha256(data, len, name, err);
    return rc < 0 ? rc : chunk_store_data(s, name, data, len, false, err);
}

int chunk_put_named(
    const struct chunk_store *s, const char *name, const void *data, size_t len, struct error *err)
{
    char found[HASH_TEXT_SIZE];
    int rc = hash_sha256(data, len, found, err);
    if (rc == 0 && strcmp(found, name) != 0)
        rc = error_set(err, ERROR_PROTOCOL, "that is not the chunk %.16s…", name);
    return rc < 0 ? rc : chunk_store_data(s, name, data, len, true, err);
}

bool chunk_is_there(const struct chunk_store *s, const char *name)
{
    cleanup_fd int directory = chunk_directory(s, name);
    struct stat st;
    return directory >= 0 && fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(st.st_mode);
}

/* ---- reading ---- */

int chunk_open(const struct chunk_store *s, const char *name, struct error *err)
{
    char path[CHUNK_FILE + 4];
    int fd = -1;
    const char *const ends[] = { "", chunk_old, "" }; /* a sweep may move it either way */
    for (size_t i = 0; fd < 0 && i < array_length(ends); i++) {
        snprintf(path, sizeof path, "%.2s/%s%s", name, name, ends[i]);
        fd = open_beneath(s->directory, path, O_RDONLY, 0);
        if (fd < 0 && errno != ENOENT)
            return chunk_failed(s, "reading", err);
    }
    return fd < 0
               ? error_set(err, ERROR_NOT_FOUND, "the chunk %.16s… is not in %.160s", name, s->path)
               : fd;
}

int chunk_get(const struct chunk_store *s, const char *name, struct buf *out, struct error *err)
{
    char found[HASH_TEXT_SIZE];
    cleanup_fd int fd = chunk_open(s, name, err);
    if (fd < 0)
        return fd;
    int rc = file_read_fd(fd, "a chunk of a volume", CHUNK_MOST, out, err);
    if (rc == 0)
        rc = hash_sha256(buf_text(out), out->len, found, err);
    if (rc == 0 && strcmp(found, name) != 0)
        rc = error_set(err, ERROR_PROTOCOL, "the chunk %.16s… in %.160s is damaged", name, s->path);
    return rc;
}

bool chunk_list_next(const struct buf *list, size_t *at, char name[HASH_TEXT_SIZE])
{
    while (*at < list->len) {
        const char *line = list->data + *at;
        const char *end = memchr(line, '\n', list->len - *at);
        size_t len = end ? (size_t)(end - line) : list->len - *at;
        *at += len + (end != NULL);
        if (len != CHUNK_NAME)
            continue;
        memcpy(name, line, CHUNK_NAME);
        name[CHUNK_NAME] = '\0';
        if (chunk_name_is_ok(name))
            return true;
    }
    return false;
}

/* ---- sweeping ---- */

struct chunk_sweeping {
    const struct chunk_store *store;
    struct buf names; /* in use, sorted, without anything between them */
    time_t before;    /* what is older is old enough */
    size_t removed;
    int directory;
};

static int chunk_compare(const void *a, const void *b)
{
    return memcmp(a, b, CHUNK_NAME);
}

static bool chunk_is_used(const struct chunk_sweeping *w, const char *name)
{
    return w->names.len > 0 && bsearch(name, w->names.data, w->names.len / CHUNK_NAME, CHUNK_NAME,
                                   chunk_compare) != NULL;
}

static int chunk_mark(struct chunk_sweeping *w, const struct list *lists, struct error *err)
{
    char name[HASH_TEXT_SIZE];
    for (size_t i = 0; i < lists->count; i++) {
        cleanup_buf struct buf list = { 0 };
        size_t at = 0;
        int rc = chunk_name_is_ok(lists->items[i])
                     ? chunk_get(w->store, lists->items[i], &list, err)
                     : error_set(err, ERROR_ARGUMENT, "that is not the name of a chunk");
        if (rc == -(int)ERROR_NOT_FOUND)
            continue;
        if (rc < 0)
            return rc;
        buf_append(&w->names, lists->items[i], CHUNK_NAME);
        while (chunk_list_next(&list, &at, name))
            buf_append(&w->names, name, CHUNK_NAME);
    }
    if (buf_failed(&w->names))
        return error_memory(err);
    if (w->names.len > 0)
        qsort(w->names.data, w->names.len / CHUNK_NAME, CHUNK_NAME, chunk_compare);
    return 0;
}

/* By the clock of the directory's file system, which may be another machine's. A process that was
 * stopped since the lists were made takes that time off. */
static int chunk_find_time(
    struct chunk_sweeping *w, uint64_t listed_ns, unsigned grace_s, struct error *err)
{
    struct stat st;
    cleanup_fd int fd =
        openat(w->store->directory, ".swept", O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || futimens(fd, NULL) < 0 || fstat(fd, &st) < 0)
        return chunk_failed(w->store, "removing", err);
    w->before = st.st_mtime - (time_t)grace_s - (time_t)clock_seconds_since(listed_ns);
    return 0;
}

/* The time of an old one begins before it is one: a process may be killed between any two steps.
 * link(2) fails if there is an old one already, which another process may be about to remove. */
static int chunk_retire(struct chunk_sweeping *w, const char *name)
{
    char old[CHUNK_FILE];
    snprintf(old, sizeof old, "%s%s", name, chunk_old);
    if (utimensat(w->directory, name, NULL, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -1;
    if (linkat(w->directory, name, w->directory, old, 0) < 0)
        return errno == EEXIST || errno == ENOENT ? 0 : -1;
    return unlinkat(w->directory, name, 0) == 0 || errno == ENOENT ? 0 : -1;
}

/* `old` is of a list that has come into use, or can go. */
static int chunk_settle(struct chunk_sweeping *w, const char *old, bool is_used)
{
    char name[HASH_TEXT_SIZE];
    snprintf(name, sizeof name, "%.*s", CHUNK_NAME, old);
    if (is_used && linkat(w->directory, old, w->directory, name, 0) < 0 && errno != EEXIST)
        return errno == ENOENT ? 0 : -1;
    w->removed += !is_used;
    return unlinkat(w->directory, old, 0) == 0 || errno == ENOENT ? 0 : -1;
}

static int chunk_sweep_one(struct chunk_sweeping *w, const char *file)
{
    struct stat st;
    bool is_draft = strncmp(file, chunk_draft, strlen(chunk_draft)) == 0;
    bool is_old =
        strlen(file) == CHUNK_NAME + strlen(chunk_old) && strcmp(file + CHUNK_NAME, chunk_old) == 0;
    bool is_used = !is_draft && (is_old || chunk_name_is_ok(file)) && chunk_is_used(w, file);
    if ((!is_draft && !is_old && !chunk_name_is_ok(file)) || (is_used && !is_old))
        return 0;
    if (is_used)
        return chunk_settle(w, file, true);
    if (fstatat(w->directory, file, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -1;
    if (st.st_mtime > w->before)
        return 0;
    if (is_draft)
        return unlinkat(w->directory, file, 0) == 0 || errno == ENOENT ? 0 : -1;
    return is_old ? chunk_settle(w, file, false) : chunk_retire(w, file);
}

int chunk_sweep(const struct chunk_store *s, const struct list *lists, uint64_t listed_ns,
    unsigned grace_s, size_t *removed, struct error *err)
{
    struct chunk_sweeping w = { .store = s };
    int rc = chunk_find_time(&w, listed_ns, grace_s, err);
    if (rc == 0)
        rc = chunk_mark(&w, lists, err);
    for (unsigned i = 0; rc == 0 && i < 256; i++) {
        char first[3];
        snprintf(first, sizeof first, "%02x", i);
        cleanup_listing DIR *listing = open_listing(s->directory, first);
        w.directory = listing ? dirfd(listing) : -1;
        for (const char *file; rc == 0 && (file = next_listed(listing));)
            if (chunk_sweep_one(&w, file) < 0)
                rc = chunk_failed(s, "removing", err);
    }
    buf_free(&w.names);
    *removed = w.removed;
    return rc;
}
