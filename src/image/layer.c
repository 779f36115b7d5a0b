/* image/layer.c: applies a layer: a tar archive with changes to a directory (OCI image-spec,
 * layer.md), through libarchive, which reads the forms of tar, gzip and zstd.
 *
 * libarchive only reads here. What it would write for extraction is not used: a layer may replace a
 * directory by a link and then name a file below it, and such a path must be followed within the
 * image, as it will be in a sandbox. openat2(2) does that (RESOLVE_IN_ROOT); the last component is
 * never followed.
 *
 * Three readers are stacked: the file, whose digest is the manifest's; one that decompresses it,
 * whose output has the digest of the configuration; and one for tar. A file is compressed once:
 * libarchive would otherwise look for a filter below each, and a stream of empty gzip members in
 * gzip takes hours to give nothing. What decompression gives is bounded even where no file gets it,
 * and so are the names that this process remembers.
 *
 * Files keep mode, time and, as root, owner. Set-user-id bits are dropped: sandboxes have no use
 * for them, and on the host they would work. Entries below /dev are left out, since
 * sandboxes have devices of their own. Device nodes elsewhere, sockets, repeated and escaping paths
 * are errors.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/beneath.h"
#include "base/os/file.h"
#include "base/os/tree.h"
#include "image/internal.h"

#define WHITEOUT ".wh."
#define OPAQUE   ".wh..wh..opq"

enum { BLOCK = 64 << 10, DEPTH_MAX = 200 };
/* What an archive may have besides its files, and how long its paths may be, each for all and for
 * every entry that the image may have. */
enum { HEADERS = 1 << 20, HEADERS_EACH = 4 << 10, NAMES = 64 << 10, NAMES_EACH = 256 };

struct layer {
    int root, file;
    struct hash file_hash, archive_hash;
    struct archive *plain, *tar; /* the readers on top of the file */
    struct layer_room *room;
    void *paths;      /* those that this layer has made, for tsearch(3) */
    void *used;       /* directories of earlier layers in which it has made something */
    uint64_t names;   /* how many bytes of them may still be noted */
    uint64_t archive; /* how many bytes of the archive may still come */
    size_t ahead;     /* how much of the file is in the block and was not read from there */
    bool interrupted, too_large; /* libarchive may report another error then */
    char path[PATH_MAX];         /* of the entry, relative, without "." */
    const char *name;            /* its last component */
    int parent;                  /* the directory of it */
    char block[BLOCK];
};

static int layer_broken(const struct layer *l, const char *what, struct error *err)
{
    return error_set(
        err, ERROR_PROTOCOL, "the image is invalid: layer entry '%.200s': %s", l->path, what);
}

static int layer_failed(const struct layer *l, struct error *err)
{
    return error_set_errno(err, ERROR_IO, "unpacking '%.200s' of the image", l->path);
}

static int layer_unreadable(struct archive *a, struct error *err)
{
    const char *why = archive_error_string(a);
    return error_set(err, ERROR_PROTOCOL, "the image is invalid: %.200s", why ? why : "no archive");
}

/* ---- the readers ---- */

static bool layer_is_interrupted(struct layer *l, struct archive *a)
{
    l->interrupted = l->room->interrupt && image_is_interrupted(*l->room->interrupt);
    if (l->interrupted)
        archive_set_error(a, ECANCELED, "interrupted");
    return l->interrupted;
}

static la_ssize_t layer_read_file(struct archive *a, void *arg, const void **out)
{
    struct layer *l = arg;
    ssize_t n = (ssize_t)l->ahead;
    *out = l->block;
    l->ahead = 0;
    if (n > 0)
        return n;
    if (layer_is_interrupted(l, a))
        return -1;
    do
        n = read(l->file, l->block, sizeof l->block);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        archive_set_error(a, errno, "reading it failed: %s", strerror(errno));
    if (n > 0)
        hash_add(&l->file_hash, l->block, (size_t)n);
    return n;
}

static la_ssize_t layer_read_plain(struct archive *a, void *arg, const void **out)
{
    struct layer *l = arg;
    size_t len = 0;
    la_int64_t offset;
    if (layer_is_interrupted(l, a))
        return -1;
    int rc = archive_read_data_block(l->plain, out, &len, &offset);
    if (rc == ARCHIVE_EOF)
        return 0;
    if (rc != ARCHIVE_OK) {
        archive_set_error(a, EIO, "%s", archive_error_string(l->plain));
        return -1;
    }
    if (len > l->archive) {
        archive_set_error(a, EFBIG, "too large");
        l->too_large = true;
        return -1;
    }
    l->archive -= len;
    hash_add(&l->archive_hash, *out, len);
    return (la_ssize_t)len;
}

/* Chooses the filter by the first bytes of the file. */
static int layer_choose_filter(struct layer *l, struct error *err)
{
    static const unsigned char gzip[] = { 0x1f, 0x8b }, zstd[] = { 0x28, 0xb5, 0x2f, 0xfd },
                               skipped[] = { 0x2a, 0x4d, 0x18 }; /* after a byte 0x5? */
    const void *first;
    la_ssize_t n = layer_read_file(l->plain, l, &first);
    int rc = ARCHIVE_OK;
    if (n < 0)
        return layer_unreadable(l->plain, err);
    l->ahead = (size_t)n;
    if (n >= 2 && memcmp(l->block, gzip, sizeof gzip) == 0)
        rc = archive_read_append_filter(l->plain, ARCHIVE_FILTER_GZIP);
    else if (n >= 4 && (memcmp(l->block, zstd, sizeof zstd) == 0 ||
                           ((l->block[0] & 0xf0) == 0x50 &&
                               memcmp(l->block + 1, skipped, sizeof skipped) == 0)))
        rc = archive_read_append_filter(l->plain, ARCHIVE_FILTER_ZSTD);
    return rc == ARCHIVE_OK
               ? 0
               : error_set(err, ERROR_UNSUPPORTED, "libarchive was built without gzip or zstd");
}

static int layer_open_readers(struct layer *l, struct error *err)
{
    struct archive_entry *whole;
    l->plain = archive_read_new();
    l->tar = archive_read_new();
    if (!l->plain || !l->tar)
        return error_memory(err);
    int rc = layer_choose_filter(l, err);
    if (rc < 0)
        return rc;
    archive_read_support_format_raw(l->plain);
    archive_read_support_format_empty(l->plain);
    archive_read_support_format_tar(l->tar);
    if (archive_read_open(l->plain, l, NULL, layer_read_file, NULL) != ARCHIVE_OK)
        return layer_unreadable(l->plain, err);
    rc = archive_read_next_header(l->plain, &whole);
    if (rc != ARCHIVE_OK && rc != ARCHIVE_EOF)
        return layer_unreadable(l->plain, err);
    if (rc == ARCHIVE_EOF)
        return error_set(err, ERROR_PROTOCOL, "the image is invalid: a layer is empty");
    if (archive_read_open(l->tar, l, NULL, layer_read_plain, NULL) != ARCHIVE_OK)
        return layer_unreadable(l->tar, err);
    return 0;
}

/* What follows the end of the archive counts in the digests, too. */
static int layer_check_digests(
    struct layer *l, const char *digest, const char *diff_id, struct error *err)
{
    char of_file[HASH_TEXT_SIZE], of_archive[HASH_TEXT_SIZE];
    const void *rest;
    la_ssize_t n;
    while ((n = layer_read_plain(l->tar, l, &rest)) > 0)
        ;
    if (n < 0)
        return layer_unreadable(l->tar, err);
    while ((n = layer_read_file(l->plain, l, &rest)) > 0)
        ;
    int rc = n < 0 ? layer_unreadable(l->plain, err) : hash_take(&l->file_hash, of_file, err);
    if (rc == 0)
        rc = hash_take(&l->archive_hash, of_archive, err);
    if (rc < 0)
        return rc;
    if ((digest && strcmp(digest, of_file) != 0) || (diff_id && strcmp(diff_id, of_archive) != 0))
        return error_set(err, ERROR_PROTOCOL,
            "the image is invalid: a layer does not have the digest %.64s",
            digest && strcmp(digest, of_file) != 0 ? digest : diff_id);
    return 0;
}

/* ---- paths ---- */

/* Copies a path without "." and empty components; false for one that no image may have. */
static bool layer_clean_path(const char *from, char out[PATH_MAX])
{
    size_t len = 0, depth = 0;
    if (!from || from[0] == '/')
        return false;
    for (const char *at = from; *at;) {
        size_t n = strcspn(at, "/");
        bool here = n == 0 || (n == 1 && at[0] == '.');
        if ((n == 2 && at[0] == '.' && at[1] == '.') || n > NAME_MAX || len + n + 2 > PATH_MAX ||
            (!here && ++depth > DEPTH_MAX))
            return false;
        if (!here) {
            if (len)
                out[len++] = '/';
            memcpy(out + len, at, n);
            len += n;
        }
        at += n + (at[n] == '/');
    }
    out[len] = '\0';
    return true;
}

static int layer_open_directory(int root, const char *path)
{
    struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
    return (int)syscall(SYS_openat2, root, path[0] ? path : ".", &how, sizeof how);
}

static int layer_by_path(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool layer_made(const struct layer *l, const char *path)
{
    return tfind(path, &l->paths, layer_by_path) != NULL;
}

static bool layer_uses(const struct layer *l, const char *path)
{
    return tfind(path, &l->used, layer_by_path) != NULL;
}

static int layer_note(struct layer *l, void **set, const char *path, struct error *err)
{
    size_t size = strlen(path) + 1;
    if (tfind(path, set, layer_by_path))
        return 0;
    if (size > l->names)
        return layer_broken(l, "the layer has too many names", err);
    l->names -= size;
    char *copy = strdup(path);
    if (!copy)
        return error_memory(err);
    if (tsearch(copy, set, layer_by_path))
        return 0;
    free(copy);
    return error_memory(err);
}

/* Opens the directory of an entry, and makes those that the archive left out. */
static int layer_open_parent(struct layer *l, struct error *err)
{
    char *slash = l->path;
    int rc = 0;
    close_fd(&l->parent);
    l->parent = layer_open_directory(l->root, "");
    while (rc == 0 && l->parent >= 0 && (slash = strchr(slash, '/'))) {
        *slash = '\0';
        int next = layer_open_directory(l->root, l->path);
        if (next < 0 && errno == ENOENT) {
            const char *name = strrchr(l->path, '/') ? strrchr(l->path, '/') + 1 : l->path;
            if (l->room->entries == 0)
                rc = layer_broken(l, "the image has too many files", err);
            else if (mkdirat(l->parent, name, 0755) == 0) {
                l->room->entries--;
                rc = layer_note(l, &l->paths, l->path, err);
            }
            next = layer_open_directory(l->root, l->path);
        } else if (next >= 0) {
            rc = layer_note(l, &l->used, l->path, err);
            errno = 0;
        }
        close_fd(&l->parent);
        l->parent = next;
        *slash++ = '/';
    }
    if (rc == 0 && l->parent < 0)
        rc = errno == ENOTDIR || errno == ELOOP || errno == ENOENT
                 ? layer_broken(l, "a component of its path is not a directory", err)
                 : layer_failed(l, err);
    l->name = strrchr(l->path, '/') ? strrchr(l->path, '/') + 1 : l->path;
    return rc;
}

/* ---- whiteouts ---- */

/* Removes what earlier layers have put into a directory. */
static int layer_clear(
    struct layer *l, int directory, const char *path, unsigned depth, struct error *err)
{
    int rc = 0;
    cleanup_listing DIR *listing = depth > DEPTH_MAX ? NULL : open_listing(directory, ".");
    if (!listing)
        return layer_failed(l, err);
    for (const char *name; rc == 0 && (name = next_listed(listing));) {
        char below[PATH_MAX];
        int n = snprintf(below, sizeof below, "%s%s%s", path, path[0] ? "/" : "", name);
        bool kept = n < (int)sizeof below && (layer_made(l, below) || layer_uses(l, below));
        if (!kept) {
            rc = tree_remove(directory, name) ? 0 : layer_failed(l, err);
            continue;
        }
        cleanup_fd int next =
            openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next >= 0)
            rc = layer_clear(l, next, below, depth + 1, err);
    }
    return rc;
}

static int layer_white_out(struct layer *l, struct error *err)
{
    const char *name = l->name + strlen(WHITEOUT);
    char target[PATH_MAX];
    size_t above = (size_t)(l->name - l->path);
    if (layer_made(l, l->path))
        return 0; /* again, which would take long in a large directory */
    int rc = layer_note(l, &l->paths, l->path, err);
    if (rc < 0)
        return rc;
    if (strcmp(l->name, OPAQUE) == 0) {
        snprintf(target, sizeof target, "%.*s", (int)(above ? above - 1 : 0), l->path);
        return layer_clear(l, l->parent, target, 0, err);
    }
    if (strncmp(name, WHITEOUT, strlen(WHITEOUT)) == 0)
        return 0; /* what aufs kept for itself */
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return layer_broken(l, "it removes nothing that has a name", err);
    snprintf(target, sizeof target, "%.*s%s", (int)above, l->path, name);
    if (layer_uses(l, target)) {
        cleanup_fd int directory =
            openat(l->parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return directory >= 0 ? layer_clear(l, directory, target, 0, err) : 0;
    }
    if (layer_made(l, target) || tree_remove(l->parent, name) || errno == ENOENT)
        return 0;
    return layer_failed(l, err);
}

/* ---- entries ---- */

static int layer_dress(const struct layer *l, struct archive_entry *e, bool link, struct error *err)
{
    mode_t mode = archive_entry_perm(e) & 01777;
    bool directory = archive_entry_filetype(e) == AE_IFDIR;
    struct timespec times[2] = { { .tv_sec = archive_entry_mtime(e) },
        { .tv_sec = archive_entry_mtime(e) } };
    if (geteuid() != 0) /* it must be able to read the file, and to remove the directory */
        mode |= directory ? 0700 : 0400;
    else if (fchownat(l->parent, l->name, (uid_t)archive_entry_uid(e), (gid_t)archive_entry_gid(e),
                 AT_SYMLINK_NOFOLLOW) < 0 &&
             errno != EINVAL) /* an id that this user namespace lacks */
        return layer_failed(l, err);
    if (!link && fchmodat(l->parent, l->name, mode, 0) < 0)
        return layer_failed(l, err);
    (void)!utimensat(l->parent, l->name, times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

static int layer_copy_data(
    struct layer *l, struct archive *from, int fd, la_int64_t size, struct error *err)
{
    const void *data;
    size_t len;
    la_int64_t offset;
    int rc;
    while ((rc = archive_read_data_block(from, &data, &len, &offset)) == ARCHIVE_OK) {
        if (len == 0)
            continue; /* the end of a sparse file */
        if (offset < 0 || offset > size || len > (uint64_t)(size - offset))
            return layer_broken(l, "it has data behind its end", err);
        if (lseek(fd, offset, SEEK_SET) < 0 || file_write_all(fd, data, len) < 0)
            return layer_failed(l, err);
    }
    return rc == ARCHIVE_EOF ? 0 : layer_unreadable(from, err);
}

static int layer_make_file(struct layer *l, struct archive_entry *e, struct error *err)
{
    la_int64_t size = archive_entry_size(e);
    if (size < 0 || (uint64_t)size > l->room->bytes)
        return layer_broken(l, "the image is too large", err);
    l->room->bytes -= (uint64_t)size; /* holes count, too */
    cleanup_fd int fd =
        openat(l->parent, l->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, size) < 0)
        return layer_failed(l, err);
    return layer_copy_data(l, l->tar, fd, size, err);
}

static int layer_make_hard_link(struct layer *l, const char *to, struct error *err)
{
    char path[PATH_MAX];
    struct stat st;
    if (!layer_clean_path(to, path) || !path[0])
        return layer_broken(l, "its link leads out of the image", err);
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    cleanup_fd int from = layer_open_directory(l->root, slash ? path : "");
    const char *name = slash ? slash + 1 : path;
    if (from < 0 || fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISDIR(st.st_mode))
        return layer_broken(l, "it is a link to a file that is not there", err);
    return linkat(from, name, l->parent, l->name, 0) == 0 ? 0 : layer_failed(l, err);
}

static int layer_make_soft_link(struct layer *l, const char *to, struct error *err)
{
    if (!to || !*to)
        return layer_broken(l, "it is a link to nothing", err);
    return symlinkat(to, l->parent, l->name) == 0 ? 0 : layer_failed(l, err);
}

/* Removes what has the name of an entry, except a directory for a directory: *there. */
static int layer_make_way(struct layer *l, bool directory, bool *there, struct error *err)
{
    struct stat st;
    *there = false;
    if (fstatat(l->parent, l->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : layer_failed(l, err);
    *there = directory && S_ISDIR(st.st_mode);
    if (!*there && layer_made(l, l->path))
        return layer_broken(l, "the layer has it twice", err);
    if (!*there && !tree_remove(l->parent, l->name))
        return layer_failed(l, err);
    return 0;
}

/* A text of an entry; the first form is missing if this locale cannot have it. */
static const char *layer_text(const char *here, const char *utf8)
{
    return here ? here : utf8;
}

static int layer_make_entry(struct layer *l, struct archive_entry *e, struct error *err)
{
    const char *hard = layer_text(archive_entry_hardlink(e), archive_entry_hardlink_utf8(e));
    const char *soft = layer_text(archive_entry_symlink(e), archive_entry_symlink_utf8(e));
    mode_t type = archive_entry_filetype(e);
    bool there;
    if (!hard && type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK && type != AE_IFIFO)
        return layer_broken(l, "a device or a socket, which images for Droste may not have", err);
    int rc = layer_make_way(l, !hard && type == AE_IFDIR, &there, err);
    if (rc == 0 && hard)
        rc = layer_make_hard_link(l, hard, err);
    else if (rc == 0 && type == AE_IFREG)
        rc = layer_make_file(l, e, err);
    else if (rc == 0 && type == AE_IFLNK)
        rc = layer_make_soft_link(l, soft, err);
    else if (rc == 0 && !there &&
             (type == AE_IFDIR ? mkdirat(l->parent, l->name, 0700)
                               : mkfifoat(l->parent, l->name, 0600)) < 0)
        rc = layer_failed(l, err);
    if (rc == 0)
        rc = layer_note(l, &l->paths, l->path, err);
    return rc < 0 || hard ? rc : layer_dress(l, e, type == AE_IFLNK, err);
}

static const char *layer_path_of(struct archive_entry *e)
{
    return layer_text(archive_entry_pathname(e), archive_entry_pathname_utf8(e));
}

static int layer_take(struct layer *l, struct archive_entry *e, struct error *err)
{
    const char *path = layer_path_of(e);
    if (l->room->entries-- == 0)
        return layer_broken(l, "the image has too many files", err);
    if (!layer_clean_path(path, l->path)) {
        snprintf(l->path, sizeof l->path, "%s", path ? path : "");
        return layer_broken(l, "its path leads out of the image, or is too long", err);
    }
    if (!l->path[0] || strncmp(l->path, "dev/", 4) == 0)
        return 0;
    int rc = layer_open_parent(l, err);
    if (rc < 0)
        return rc;
    if (strncmp(l->name, WHITEOUT, strlen(WHITEOUT)) == 0)
        return layer_white_out(l, err);
    return layer_make_entry(l, e, err);
}

static int layer_begin(
    struct layer **out, int root, int file, struct layer_room *room, struct error *err)
{
    struct layer *l = calloc(1, sizeof *l);
    if (!l)
        return error_memory(err);
    l->root = root;
    l->file = file;
    l->room = room;
    l->parent = -1;
    l->names = NAMES + room->entries * NAMES_EACH;
    l->archive = room->bytes + HEADERS + room->entries * HEADERS_EACH;
    *out = l;
    int rc = hash_open(&l->file_hash, err);
    if (rc == 0)
        rc = hash_open(&l->archive_hash, err);
    return rc < 0 ? rc : layer_open_readers(l, err);
}

/* Returns rc, or why reading ended. */
static int layer_end(struct layer *l, int rc, struct error *err)
{
    if (!l)
        return rc;
    if (l->interrupted)
        rc = image_interrupted(err);
    else if (l->too_large)
        rc = error_set(
            err, ERROR_PROTOCOL, "the image is invalid: a layer is larger than its files may be");
    archive_read_free(l->tar);
    archive_read_free(l->plain);
    hash_close(&l->file_hash);
    hash_close(&l->archive_hash);
    tdestroy(l->paths, free);
    tdestroy(l->used, free);
    close_fd(&l->parent);
    free(l);
    return rc;
}

/* 1: an entry; 0: the end. */
static int layer_next(struct layer *l, struct archive_entry **e, struct error *err)
{
    int rc = archive_read_next_header(l->tar, e);
    if (rc == ARCHIVE_EOF)
        return 0;
    return rc == ARCHIVE_OK || rc == ARCHIVE_WARN ? 1 : layer_unreadable(l->tar, err);
}

int layer_apply(int root, int file, const char *digest, const char *diff_id,
    struct layer_room *room, struct error *err)
{
    struct layer *l = NULL;
    struct archive_entry *e;
    int rc = layer_begin(&l, root, file, room, err);
    while (rc == 0 && (rc = layer_next(l, &e, err)) == 1)
        rc = layer_take(l, e, err);
    if (rc == 0)
        rc = layer_check_digests(l, digest, diff_id, err);
    return layer_end(l, rc, err);
}

int layer_extract_files(
    int to, int file, const int *interrupt, struct list *names, struct error *err)
{
    struct layer_room room = { IMAGE_BYTES_MAX, 16 * IMAGE_LAYERS_MAX, interrupt };
    struct layer *l = NULL;
    struct archive_entry *e;
    char number[24];
    int rc = layer_begin(&l, to, file, &room, err);
    while (rc == 0 && (rc = layer_next(l, &e, err)) == 1) {
        rc = 0;
        if (archive_entry_filetype(e) != AE_IFREG || archive_entry_hardlink(e))
            continue;
        if (room.entries-- == 0 || !layer_clean_path(layer_path_of(e), l->path)) {
            rc = layer_broken(l, "no file of an image", err);
            break;
        }
        snprintf(number, sizeof number, "%zu", names->count);
        l->name = number;
        l->parent = l->parent < 0 ? layer_open_directory(to, "") : l->parent;
        rc = layer_make_file(l, e, err);
        if (rc == 0)
            rc = list_add(names, l->path, err);
    }
    return layer_end(l, rc, err);
}
