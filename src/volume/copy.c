/* volume/copy.c: copies trees and files; see internal.h. Files are read, never mapped, because
 * their owners may truncate them meanwhile. The amount is bounded, because a file with many links
 * becomes many files.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/beneath.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/tree.h"
#include "volume/internal.h"

enum { PIECE = 256 << 10 };

/* ---- one file ---- */

static int too_much(const struct copying *c, struct error *err)
{
    if (c->v->ephemeral)
        return error_set(err, ERROR_ARGUMENT,
            "it is larger than the workspace may be (%llu bytes); raise --workspace-size",
            (unsigned long long)c->most_bytes);
    return error_set(err, ERROR_ARGUMENT,
        "volume '%s': copying would exceed its quota: it has files with many names, or is over "
        "its quota already; remove files, or raise the quota with `droste volume limit %s`",
        c->v->name, c->v->name);
}

static int copy_interrupted(const struct copying *c, struct error *err)
{
    struct pollfd interrupt = { .fd = c->v->interrupt, .events = POLLIN };
    if (c->v->interrupt < 0 || poll(&interrupt, 1, 0) <= 0)
        return 0;
    return error_set(err, ERROR_CANCELLED, "interrupted while files were copied");
}

static int copy_piece(
    struct copying *c, int from, int to, char *piece, off_t at, off_t end, struct error *err)
{
    while (at < end) {
        size_t want = end - at < PIECE ? (size_t)(end - at) : PIECE;
        int rc = copy_interrupted(c, err);
        if (rc < 0)
            return rc;
        ssize_t n = pread(from, piece, want, at);
        if (n < 0)
            return volume_failed(c->v, "reading", "a file", err);
        if (n == 0)
            return 0; /* truncated meanwhile */
        c->count.bytes += (uint64_t)n;
        if (c->count.bytes > c->most_bytes)
            return too_much(c, err);
        if (lseek(to, at, SEEK_SET) < 0 || file_write_all(to, piece, (size_t)n) < 0)
            return volume_failed(c->v, "writing", "a copy", err);
        at += n;
    }
    return 0;
}

/* Copies a source that cannot seek. */
static int copy_stream(struct copying *c, int from, int to, char *piece, struct error *err)
{
    ssize_t n;
    while ((n = read(from, piece, PIECE)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return volume_failed(c->v, "reading", "what is to be put", err);
        c->count.bytes += (uint64_t)n;
        if (c->count.bytes > c->most_bytes)
            return too_much(c, err);
        if (file_write_all(to, piece, (size_t)n) < 0)
            return volume_failed(c->v, "writing", "a copy", err);
    }
    return 0;
}

/* Copies the data between holes. */
static int copy_ranges(
    struct copying *c, int from, int to, char *piece, off_t size, struct error *err)
{
    int rc = 0;
    for (off_t at = 0, end; rc == 0 && at < size; at = end) {
        at = lseek(from, at, SEEK_DATA);
        if (at < 0 && errno == ENXIO)
            break; /* a hole until the end */
        end = at < 0 ? -1 : lseek(from, at, SEEK_HOLE);
        if (end < 0) { /* the file system does not report holes */
            at = 0;
            end = size;
        }
        rc = copy_piece(c, from, to, piece, at, end < size ? end : size, err);
    }
    if (rc == 0 && ftruncate(to, size) < 0)
        return volume_failed(c->v, "writing", "a copy", err);
    return rc;
}

int copy_data(struct copying *c, int from, int to, struct error *err)
{
    struct stat st;
    cleanup_free char *piece = malloc(PIECE);
    if (!piece)
        return error_memory(err);
    if (fstat(from, &st) < 0)
        return volume_failed(c->v, "reading", "a file", err);
    if (!S_ISREG(st.st_mode) || c->behind)
        return copy_stream(c, from, to, piece, err);
    /* A clone takes no space, but counts like a copy without holes. */
    if (ioctl(to, FICLONE, from) == 0) {
        uint64_t held = (uint64_t)st.st_blocks * 512;
        c->count.bytes += held < (uint64_t)st.st_size ? held : (uint64_t)st.st_size;
        return c->count.bytes > c->most_bytes ? too_much(c, err) : 0;
    }
    return copy_ranges(c, from, to, piece, st.st_size, err);
}

static int copy_dress(const struct copying *c, int fd, const struct stat *st, mode_t mode)
{
    struct timespec times[2] = { st->st_atim, st->st_mtim };
    if (geteuid() == 0 && fchown(fd, c->owner, c->owner) < 0 && errno != EINVAL)
        return -1;
    return fchmod(fd, mode & ~c->mask) < 0 || futimens(fd, times) < 0 ? -1 : 0;
}

int copy_file(struct copying *c, int from, int directory, const char *to, struct error *err)
{
    struct stat st;
    cleanup_fd int made =
        openat(directory, to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (made < 0 || fstat(from, &st) < 0)
        return volume_failed(c->v, "making", to, err);
    int rc = copy_data(c, from, made, err);
    mode_t mode = S_ISREG(st.st_mode) ? st.st_mode & 0777 : 0644;
    if (rc == 0 && copy_dress(c, made, &st, mode) < 0)
        return volume_failed(c->v, "making", to, err);
    c->count.files += rc == 0;
    return rc;
}

/* ---- a tree ---- */

struct cursor {
    struct copying *c;
    int to;
    struct stat own; /* the volume's directory */
};

static int copy_link(struct cursor *cur, const struct tree_place *place, struct error *err)
{
    char target[4096];
    ssize_t n = readlinkat(place->at, place->name, target, sizeof target - 1);
    if (n < 0)
        return 0;
    target[n] = '\0';
    if (symlinkat(target, cur->to, place->name) < 0)
        return volume_failed(cur->c->v, "making the link", place->name, err);
    uid_t owner = cur->c->owner;
    (void)!fchownat(cur->to, place->name, owner, owner, AT_SYMLINK_NOFOLLOW);
    cur->c->count.files++;
    return 0;
}

/* True for the volume itself, which is skipped when a tree that contains it is copied. */
static bool is_own(const struct cursor *cur, const struct stat *st)
{
    return st->st_dev == cur->own.st_dev && st->st_ino == cur->own.st_ino;
}

static int copy_entry(struct cursor *cur, const struct tree_place *place, struct error *err)
{
    struct copying *c = cur->c;
    struct stat st;
    int rc = copy_interrupted(c, err);
    if (rc < 0)
        return rc;
    /* A guest may keep creating more. */
    if (c->count.files + c->count.left_out > 2 * c->v->limits.files)
        return too_much(c, err);
    if (is_own(cur, place->st)) {
        c->count.left_out++;
        return 1;
    }
    if (S_ISDIR(place->st->st_mode)) {
        if (mkdirat(cur->to, place->name, 0700) < 0)
            return volume_failed(c->v, "making the directory", place->name, err);
        c->count.files++;
        return 0;
    }
    if (S_ISLNK(place->st->st_mode) && c->links)
        return copy_link(cur, place, err);
    if (!S_ISREG(place->st->st_mode)) {
        c->count.left_out++;
        return 0;
    }
    cleanup_fd int from = open_anyway(place->at, place->name, O_RDONLY);
    if (from < 0 || fstat(from, &st) < 0 || !S_ISREG(st.st_mode)) {
        if (from < 0 && errno != ENOENT && errno != ELOOP)
            return volume_failed(c->v, "reading", place->name, err);
        c->count.left_out++; /* replaced meanwhile */
        return 0;
    }
    return copy_file(c, from, cur->to, place->name, err);
}

static int step_in(struct cursor *cur, const char *name, struct error *err)
{
    int inner = open_beneath(cur->to, name, O_RDONLY | O_DIRECTORY, 0);
    if (inner < 0)
        return volume_failed(cur->c->v, "opening", name, err);
    close_fd(&cur->to);
    cur->to = inner;
    return 0;
}

static int step_out(struct cursor *cur, const struct tree_place *place, struct error *err)
{
    struct stat st;
    int outer = openat(cur->to, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (outer < 0 || fstat(place->at, &st) < 0 ||
        copy_dress(cur->c, cur->to, &st, st.st_mode & 0777) < 0) {
        int rc = volume_failed(cur->c->v, "making", "a directory", err);
        close_fd(&outer);
        return rc;
    }
    close_fd(&cur->to);
    cur->to = outer;
    return 0;
}

static int copy_visit(
    void *arg, enum tree_visit visit, const struct tree_place *place, struct error *err)
{
    struct cursor *cur = arg;
    if (visit == TREE_ENTER)
        return step_in(cur, place->name, err);
    return visit == TREE_LEAVE ? step_out(cur, place, err) : copy_entry(cur, place, err);
}

int copy_tree(struct copying *c, int from, int to, struct error *err)
{
    struct stat st;
    struct cursor cur = { .c = c, .to = open_beneath(to, ".", O_RDONLY | O_DIRECTORY, 0) };
    if (cur.to < 0 || fstat(c->v->directory, &cur.own) < 0) {
        int rc = volume_failed(c->v, "opening", "the copy", err);
        close_fd(&cur.to);
        return rc;
    }
    int rc = tree_walk(from, copy_visit, &cur, err);
    if (rc == 0 && (fstat(from, &st) < 0 || copy_dress(c, to, &st, st.st_mode & 0777) < 0))
        rc = volume_failed(c->v, "making", "the copy", err);
    close_fd(&cur.to);
    return rc < 0 && err && err->sys == ESTALE
               ? error_wrap(err,
                     "volume '%s' changed while it was copied; try again when no "
                     "session writes to it",
                     c->v->name)
               : rc;
}
