/* volume/unpack.c: applies a sandbox's changes to its volume (pack.h). The input is untrusted: it
 * is validated as a whole before anything is changed, and no links in the volume are followed.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/beneath.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/tree.h"
#include "base/text.h"
#include "volume/internal.h"
#include "volume/pack.h"

enum { PIECE = 256 << 10 };

struct entry {
    uint8_t kind;
    mode_t mode;
    uint64_t len; /* of the data */
    int64_t time;
    char path[PACK_PATH_MAX + 1];
};

struct unpacking {
    const struct volume *v;
    int file, staging;
    uint64_t left; /* remaining bytes of the file */
    struct entry entry;
    struct list paths;
    uint64_t bytes; /* of data, so far */
    char piece[PIECE];
};

/* ---- reading ---- */

static int unpack_broken(const struct unpacking *u, const char *what, struct error *err)
{
    return error_set(
        err, ERROR_PROTOCOL, "volume '%s': the sandbox sent invalid data: %s", u->v->name, what);
}

static int read_exactly(struct unpacking *u, void *to, size_t len, struct error *err)
{
    char *at = to;
    if (len > u->left)
        return unpack_broken(u, "the data ends in the middle of an entry", err);
    u->left -= len;
    while (len > 0) {
        ssize_t n = read(u->file, at, len);
        if (n <= 0)
            return volume_failed(u->v, "reading", "what was sent of it", err);
        at += n;
        len -= (size_t)n;
    }
    return 0;
}

static int read_entry(struct unpacking *u, struct error *err)
{
    unsigned char header[PACK_HEADER_SIZE];
    struct entry *e = &u->entry;
    uint16_t mode;
    uint32_t path;
    uint64_t len, time;
    int rc = read_exactly(u, header, sizeof header, err);
    if (rc < 0)
        return rc;
    memcpy(&mode, header + 2, sizeof mode);
    memcpy(&path, header + 4, sizeof path);
    memcpy(&len, header + 8, sizeof len);
    memcpy(&time, header + 16, sizeof time);
    path = le32toh(path);
    *e = (struct entry){ .kind = header[0],
        .mode = le16toh(mode) & 0777,
        .len = le64toh(len),
        .time = (int64_t)le64toh(time) };
    if (path > PACK_PATH_MAX)
        return unpack_broken(u, "a path that is too long", err);
    rc = read_exactly(u, e->path, path, err);
    if (rc < 0)
        return rc;
    if (e->kind < PACK_DIRECTORY || e->kind > PACK_KEEP)
        return unpack_broken(u, "an entry of an unknown kind", err);
    bool has_data = e->kind == PACK_FILE || e->kind == PACK_LINK;
    if ((!has_data && e->len > 0) || (e->kind == PACK_LINK && e->len > PACK_PATH_MAX))
        return unpack_broken(u, "data for an entry that has none", err);
    if (e->kind == PACK_END ? path >= PACK_SUM_SIZE : !text_leads_down(e->path, path))
        return unpack_broken(u, "an invalid path", err);
    return 0;
}

static int from_the_beginning(struct unpacking *u, struct error *err)
{
    struct stat st;
    if (fstat(u->file, &st) < 0 || lseek(u->file, 0, SEEK_SET) < 0)
        return volume_failed(u->v, "reading", "what was sent of it", err);
    u->left = (uint64_t)st.st_size;
    return 0;
}

static int skip_data(struct unpacking *u, struct error *err)
{
    if (u->entry.len > u->left)
        return unpack_broken(u, "the data ends in the middle of an entry", err);
    u->left -= u->entry.len;
    if (lseek(u->file, (off_t)u->entry.len, SEEK_CUR) < 0)
        return volume_failed(u->v, "reading", "what was sent of it", err);
    return 0;
}

/* Validates everything before use. The last entry stays in u->entry. */
static int look_through(struct unpacking *u, bool *over, struct error *err)
{
    const struct volume_limits *limits = &u->v->limits;
    int rc = from_the_beginning(u, err);
    while (rc == 0 && (rc = read_entry(u, err)) == 0 && u->entry.kind != PACK_END) {
        u->bytes += u->entry.len;
        rc = skip_data(u, err);
        if (u->bytes > limits->size || u->paths.count >= limits->files)
            *over = true;
        if (rc == 0 && !*over)
            rc = list_add(&u->paths, u->entry.path, err);
    }
    return rc;
}

/* ---- writing ---- */

/* Opens the parent directory of a path; *name is its last component. */
static int open_parent(struct unpacking *u, const char **name, struct error *err)
{
    char *slash = strrchr(u->entry.path, '/');
    *name = slash ? slash + 1 : u->entry.path;
    if (slash)
        *slash = '\0';
    int fd = open_beneath(u->v->data, slash ? u->entry.path : ".", O_RDONLY | O_DIRECTORY, 0);
    int rc = fd < 0 ? volume_failed(u->v, "opening a directory of", u->entry.path, err) : fd;
    if (slash)
        *slash = '/';
    return rc;
}

/* Removes whatever has the name of a new entry. */
static int clear_name(struct unpacking *u, int parent, const char *name, bool directory,
    bool *there, struct error *err)
{
    struct stat st;
    *there = false;
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : volume_failed(u->v, "looking at", u->entry.path, err);
    if (directory && S_ISDIR(st.st_mode))
        *there = true;
    else if ((directory || S_ISDIR(st.st_mode)) && !tree_remove(parent, name))
        return volume_failed(u->v, "removing", u->entry.path, err);
    return 0;
}

static int unpack_dress(const struct unpacking *u, int fd, struct error *err)
{
    const struct entry *e = &u->entry;
    struct timespec times[2] = { { .tv_sec = e->time }, { .tv_sec = e->time } };
    if ((geteuid() == 0 && fchown(fd, u->v->owner, u->v->owner) < 0 && errno != EINVAL) ||
        fchmod(fd, e->mode) < 0)
        return volume_failed(u->v, "making", e->path, err);
    (void)!futimens(fd, times); /* the file system may not support the time */
    return 0;
}

static int unpack_make_directory(
    struct unpacking *u, int parent, const char *name, struct error *err)
{
    bool there;
    int rc = clear_name(u, parent, name, true, &there, err);
    if (rc < 0)
        return rc;
    if (!there && mkdirat(parent, name, 0700) < 0)
        return volume_failed(u->v, "making", u->entry.path, err);
    cleanup_fd int fd = open_anyway(parent, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return volume_failed(u->v, "opening", u->entry.path, err);
    u->entry.mode |= 0700;
    return unpack_dress(u, fd, err);
}

static int fill_file(struct unpacking *u, int to, struct error *err)
{
    uint64_t left = u->entry.len;
    int rc = 0;
    while (rc == 0 && left > 0) {
        size_t n = left < PIECE ? (size_t)left : PIECE;
        rc = read_exactly(u, u->piece, n, err);
        if (rc == 0 && file_write_all(to, u->piece, n) < 0)
            rc = volume_failed(u->v, "writing", u->entry.path, err);
        left -= n;
    }
    return rc;
}

static int make_staged(struct unpacking *u, const char *fresh, struct error *err)
{
    char target[PACK_PATH_MAX + 1] = "";
    if (u->entry.kind == PACK_LINK) {
        int rc = read_exactly(u, target, (size_t)u->entry.len, err);
        if (rc == 0 && symlinkat(target[0] ? target : ".", u->staging, fresh) < 0)
            rc = volume_failed(u->v, "making", u->entry.path, err);
        if (rc == 0 && geteuid() == 0)
            (void)!fchownat(u->staging, fresh, u->v->owner, u->v->owner, AT_SYMLINK_NOFOLLOW);
        return rc;
    }
    cleanup_fd int fd =
        openat(u->staging, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return volume_failed(u->v, "making", u->entry.path, err);
    int rc = fill_file(u, fd, err);
    return rc < 0 ? rc : unpack_dress(u, fd, err);
}

static int put_entry(struct unpacking *u, struct error *err)
{
    char fresh[ATOMIC_REPLACE_NAME];
    const char *name;
    bool there;
    if (u->entry.kind == PACK_KEEP)
        return 0;
    cleanup_fd int parent = open_parent(u, &name, err);
    if (parent < 0)
        return parent;
    if (u->entry.kind == PACK_DIRECTORY)
        return unpack_make_directory(u, parent, name, err);
    int rc = atomic_replace_name(fresh, err);
    if (rc < 0)
        return rc;
    rc = make_staged(u, fresh, err);
    if (rc == 0)
        rc = clear_name(u, parent, name, false, &there, err);
    if (rc == 0 && renameat(u->staging, fresh, parent, name) < 0)
        rc = volume_failed(u->v, "putting", u->entry.path, err);
    if (rc < 0)
        tree_remove(u->staging, fresh);
    return rc;
}

/* Removes what the sandbox had and has removed; other entries here stay. */
static int remove_gone(struct unpacking *u, struct list *had, struct error *err)
{
    size_t now = 0;
    list_sort(had);
    list_sort(&u->paths);
    for (size_t i = 0; i < had->count; i++) {
        struct error why = { 0 };
        const char *path = had->items[i];
        while (now < u->paths.count && strcmp(u->paths.items[now], path) < 0)
            now++;
        if (now < u->paths.count && strcmp(u->paths.items[now], path) == 0)
            continue;
        /* It may be gone with its directory, which may also be a file or link now. */
        bool failed = volume_remove_path(u->v, path, &why) < 0 &&
                      (why.code == ERROR_IO || why.code == ERROR_MEMORY);
        if (failed) {
            *err = why;
            return -(int)why.code;
        }
    }
    return 0;
}

static int unpack_put_all(struct unpacking *u, struct error *err)
{
    int rc = from_the_beginning(u, err);
    u->staging = atomic_replace_open(u->v, err);
    if (u->staging < 0)
        return u->staging;
    while (rc == 0 && (rc = read_entry(u, err)) == 0 && u->entry.kind != PACK_END)
        rc = put_entry(u, err);
    close_fd(&u->staging);
    if (rc == 0 && !u->v->ephemeral && syncfs(u->v->data) < 0)
        rc = volume_failed(u->v, "writing", "it to the disk", err);
    return rc;
}

static bool is_over_now(const struct volume *v)
{
    struct volume_usage usage;
    return volume_measure(v, &usage, NULL) == 0 &&
           (usage.size > v->limits.size || usage.files > v->limits.files);
}

int volume_unpack(
    const struct volume *v, int file, struct pack_state *state, bool *over, struct error *err)
{
    cleanup_free struct unpacking *u = calloc(1, sizeof *u);
    if (!u)
        return error_memory(err);
    *over = false;
    u->v = v;
    u->file = file;
    u->staging = -1;
    int rc = look_through(u, over, err);
    struct entry end = u->entry;
    bool changed = rc == 0 && !*over && end.mode != 1;
    if (changed)
        rc = unpack_put_all(u, err);
    if (rc == 0 && changed)
        rc = remove_gone(u, &state->paths, err);
    if (rc == 0 && changed) {
        list_clear(&state->paths);
        state->paths = u->paths;
        u->paths = (struct list){ 0 };
        *over = is_over_now(v);
    }
    if (rc == 0) {
        state->since = end.time;
        memcpy(state->sum, end.path, PACK_SUM_SIZE);
        state->sum[PACK_SUM_SIZE - 1] = '\0';
    }
    list_clear(&u->paths);
    return rc;
}
