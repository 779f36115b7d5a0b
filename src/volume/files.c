/* volume/files.c: puts, gets, removes and lists files of a volume, from the host.
 *
 * A path consists of a directory below the data, resolved without links, and a name in it. New
 * files are complete and synced before they get their name.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/os/beneath.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/text.h"
#include "base/os/tree.h"
#include "volume/internal.h"

/* ---- paths ---- */

/* Relative to the data; "" is the data itself. NULL: outside of the volume. */
static const char *files_relative(const char *path)
{
    const char *below = text_below(path, "/data");
    return below ? below : path[0] == '/' ? NULL : path;
}

/* A path split in two. */
struct place {
    char *directory; /* "." is the data */
    char *name;      /* "": the path is the data directory itself */
};

static void place_free(struct place *p)
{
    free(p->directory);
    free(p->name);
}
#define cleanup_place __attribute__((cleanup(place_free)))

static int files_place_of(
    const struct volume *v, const char *path, struct place *out, struct error *err)
{
    const char *inside = files_relative(path);
    if (!inside)
        return error_set(err, ERROR_ARGUMENT,
            "volume '%s': a path must be relative, or begin with /data", v->name);
    size_t len;
    const char *name = text_last_name(inside, &len);
    out->name = strndup(name, len);
    out->directory = name > inside ? strndup(inside, (size_t)(name - inside)) : strdup(".");
    if (!out->name || !out->directory)
        return error_memory(err);
    if (strcmp(out->name, "..") == 0)
        return error_set(err, ERROR_ARGUMENT, "volume '%s': a path must end with a name", v->name);
    if (strcmp(out->name, ".") == 0)
        out->name[0] = '\0';
    return 0;
}

/* Opens the parent directory of the path. */
static int open_directory_of(
    const struct volume *v, const struct place *p, const char *path, struct error *err)
{
    int fd = open_beneath(v->data, p->directory, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 && errno == EACCES) /* listing is not needed, so its mode may forbid it */
        fd = open_beneath(v->data, p->directory, O_PATH | O_DIRECTORY, 0);
    return fd < 0 ? volume_failed(v, "opening", path, err) : fd;
}

/* ---- reading ---- */

/* Opens a regular file or directory; does not wait for FIFOs or talk to devices. */
static int files_open_source(const struct volume *v, const struct place *p, const char *path,
    struct stat *st, struct error *err)
{
    cleanup_fd int directory = open_directory_of(v, p, path, err);
    if (directory < 0)
        return directory;
    const char *name = p->name[0] ? p->name : ".";
    if (fstatat(directory, name, st, AT_SYMLINK_NOFOLLOW) < 0)
        return volume_failed(v, "opening", path, err);
    cleanup_fd int fd = -1;
    if (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode)) {
        fd = open_anyway(directory, name, O_RDONLY);
        if (fd < 0 || fstat(fd, st) < 0)
            return volume_failed(v, "opening", path, err);
    }
    if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode))
        return error_set(err, ERROR_ARGUMENT,
            "volume '%s': the path is a %s; only files and directories can be read", v->name,
            S_ISLNK(st->st_mode)    ? "link"
            : S_ISFIFO(st->st_mode) ? "FIFO"
            : S_ISSOCK(st->st_mode) ? "socket"
                                    : "device");
    return steal_fd(&fd);
}

static struct copying copying_out(const struct volume *v)
{
    return (struct copying){
        .v = v, .owner = geteuid(), .mask = file_umask(), .most_bytes = v->limits.size
    };
}

int volume_read(const struct volume *v, const char *path, int out, struct error *err)
{
    cleanup_place struct place p = { 0 };
    struct stat st;
    int rc = files_place_of(v, path, &p, err);
    cleanup_fd int from = rc < 0 ? rc : files_open_source(v, &p, path, &st, err);
    if (from < 0)
        return from;
    if (S_ISDIR(st.st_mode))
        return error_set(err, ERROR_ARGUMENT,
            "volume '%s': the path is a directory; give a path to copy it to", v->name);
    struct copying c = copying_out(v);
    c.most_bytes = UINT64_MAX;
    c.behind = true;
    return copy_data(&c, from, out, err);
}

/* Copies to an unused name. */
static int copy_to(
    struct copying *c, int from, mode_t mode, int directory, const char *name, struct error *err)
{
    if (!S_ISDIR(mode))
        return copy_file(c, from, directory, name, err);
    if (mkdirat(directory, name, 0700) < 0)
        return volume_failed(c->v, "making", name, err);
    cleanup_fd int to = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int rc = to < 0 ? volume_failed(c->v, "making", name, err) : copy_tree(c, from, to, err);
    c->count.files += rc == 0;
    return rc;
}

/* Syncs, so that the name never refers to an incomplete file. */
static int files_settle(const struct volume *v, int directory, const char *name, struct error *err)
{
    struct stat st;
    if (v->ephemeral)
        return 0;
    cleanup_fd int fd = open_anyway(directory, name, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) < 0 || (S_ISDIR(st.st_mode) ? syncfs(fd) : fsync(fd)) < 0)
        return volume_failed(v, "writing", "a copy", err);
    return 0;
}

int volume_get(const struct volume *v, const char *path, const char *to, droste_volume_count *count,
    struct error *err)
{
    cleanup_place struct place p = { 0 };
    char fresh[ATOMIC_REPLACE_NAME];
    struct stat st;
    int rc = files_place_of(v, path, &p, err);
    if (rc == 0)
        rc = atomic_replace_name(fresh, err);
    cleanup_fd int from = rc < 0 ? rc : files_open_source(v, &p, path, &st, err);
    if (from < 0)
        return from;
    cleanup_buf struct buf staging = { 0 };
    buf_printf(&staging, "%s.part-%.16s", to, fresh);
    if (buf_failed(&staging))
        return error_memory(err);
    struct copying c = copying_out(v);
    rc = copy_to(&c, from, st.st_mode, AT_FDCWD, buf_text(&staging), err);
    if (rc == 0)
        rc = files_settle(v, AT_FDCWD, buf_text(&staging), err);
    /* A directory does not replace anything. */
    if (rc == 0 && renameat2(AT_FDCWD, buf_text(&staging), AT_FDCWD, to,
                       S_ISDIR(st.st_mode) ? RENAME_NOREPLACE : 0) < 0)
        rc = error_set_errno(err, ERROR_IO, "making %.150s", to);
    if (rc < 0)
        tree_remove(AT_FDCWD, buf_text(&staging));
    *count = c.count;
    return rc;
}

/* ---- writing ---- */

/* Makes a directory in `staging` and moves it to its name once it is the guest's: a guest that runs
 * meanwhile never sees one in which it may not write. 0 also if the name is taken. */
static int make_component(const struct volume *v, int staging, int at, const char *name)
{
    char fresh[ATOMIC_REPLACE_NAME];
    if (faccessat(at, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    if (atomic_replace_name(fresh, NULL) < 0 || mkdirat(staging, fresh, 0755) < 0)
        return -1;
    if (geteuid() == 0)
        (void)!fchownat(staging, fresh, v->owner, v->owner, AT_SYMLINK_NOFOLLOW);
    if (renameat2(staging, fresh, at, name, RENAME_NOREPLACE) == 0)
        return 0;
    int why = errno;
    unlinkat(staging, fresh, AT_REMOVEDIR);
    errno = why;
    return why == EEXIST ? 0 : -1;
}

/* Opens the parent directory, creating missing components. */
static int make_directory_of(
    const struct volume *v, int staging, const struct place *p, const char *path, struct error *err)
{
    cleanup_free char *copy = strdup(p->directory);
    cleanup_fd int at = open_beneath(v->data, ".", O_RDONLY | O_DIRECTORY, 0);
    char *rest = NULL;
    if (!copy)
        return error_memory(err);
    for (char *part = strtok_r(copy, "/", &rest); part; part = strtok_r(NULL, "/", &rest)) {
        if (make_component(v, staging, at, part) < 0)
            return volume_failed(v, "making a directory of", path, err);
        int inner = open_beneath(at, part, O_RDONLY | O_DIRECTORY, 0);
        if (inner < 0)
            return volume_failed(v, "opening a directory of", path, err);
        close_fd(&at);
        at = inner;
    }
    return steal_fd(&at);
}

/* Whether the new entry may take this name. */
static int check_target(const struct volume *v, int directory, const struct place *p, mode_t mode,
    const char *path, struct error *err)
{
    struct stat st;
    if (fstatat(directory, p->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : volume_failed(v, "putting", path, err);
    if (S_ISREG(st.st_mode) && !S_ISDIR(mode))
        return 0;
    return error_set(err, ERROR_ARGUMENT,
        "volume '%s': %s of this name exists and is not replaced; remove it first with `droste "
        "volume rm`",
        v->name, S_ISDIR(st.st_mode) ? "a directory" : "something else");
}

int volume_put(const struct volume *v, int source, const char *path, droste_volume_count *count,
    struct error *err)
{
    cleanup_place struct place p = { 0 };
    char fresh[ATOMIC_REPLACE_NAME];
    struct stat st;
    struct copying c = { .v = v, .owner = v->owner, .most_bytes = v->limits.size };
    int rc = files_place_of(v, path, &p, err);
    if (rc == 0 && fstat(source, &st) < 0)
        rc = error_set_errno(err, ERROR_IO, "looking at what is to be put");
    if (rc == 0 && !p.name[0])
        rc = error_set(err, ERROR_ARGUMENT, "volume '%s': give a name for the new file", v->name);
    cleanup_fd int staging = rc < 0 ? rc : atomic_replace_begin(v, fresh, err);
    cleanup_fd int directory = staging < 0 ? staging : make_directory_of(v, staging, &p, path, err);
    if (directory < 0)
        return directory;
    rc = check_target(v, directory, &p, st.st_mode, path, err);
    if (rc < 0)
        return rc;
    rc = copy_to(&c, source, st.st_mode, staging, fresh, err);
    if (rc == 0)
        rc = files_settle(v, staging, fresh, err);
    if (rc == 0 && atomic_replace_move(staging, fresh, directory, p.name,
                       S_ISDIR(st.st_mode) ? RENAME_NOREPLACE : 0) < 0)
        rc = volume_failed(v, "putting", path, err);
    if (rc < 0)
        tree_remove(staging, fresh);
    *count = c.count;
    return rc;
}

int volume_remove_path(const struct volume *v, const char *path, struct error *err)
{
    cleanup_place struct place p = { 0 };
    char fresh[ATOMIC_REPLACE_NAME];
    int rc = files_place_of(v, path, &p, err);
    if (rc == 0 && !p.name[0])
        rc = error_set(err, ERROR_ARGUMENT,
            "volume '%s': give the path to remove; without a path the whole volume is removed",
            v->name);
    cleanup_fd int staging = rc < 0 ? rc : atomic_replace_begin(v, fresh, err);
    cleanup_fd int directory = staging < 0 ? staging : open_directory_of(v, &p, path, err);
    if (directory < 0)
        return directory;
    rc = atomic_replace_move(directory, p.name, staging, fresh, RENAME_NOREPLACE);
    if (rc < 0 && errno == EACCES) { /* a read-only directory cannot be moved */
        cleanup_fd int inner = open_anyway(directory, p.name, O_RDONLY | O_DIRECTORY);
        if (inner >= 0 && fchmod(inner, 0700) == 0)
            rc = atomic_replace_move(directory, p.name, staging, fresh, RENAME_NOREPLACE);
    }
    if (rc < 0)
        return volume_failed(v, "removing", path, err);
    /* A guest may still be inside and add more than is removed; the next exclusive user removes
     * the rest. Each directory is visited more than once. */
    tree_remove_some(staging, fresh, 16 * (size_t)v->limits.files);
    return 0;
}

/* ---- listing ---- */

struct found {
    char *path;
    struct stat st;
};

struct listing {
    struct found *items;
    size_t count, room, most;
    unsigned depth;
    bool more;
};

static int add_found(struct listing *l, const char *directory, const char *name,
    const struct stat *st, struct error *err)
{
    char *path = text_printf("%s%s", directory, name);
    if (!path || !array_room(l->items, l->count, &l->room)) {
        free(path);
        return error_memory(err);
    }
    l->items[l->count++] = (struct found){ path, *st };
    return 0;
}

static int list_visit(
    void *arg, enum tree_visit visit, const struct tree_place *place, struct error *err)
{
    struct listing *l = arg;
    if (visit != TREE_ENTRY)
        return 0;
    if (l->count == l->most) {
        l->more = true;
        return 1;
    }
    int rc = add_found(l, place->path, place->name, place->st, err);
    return rc < 0 ? rc : place->depth + 1 >= l->depth;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct found *)a)->path, ((const struct found *)b)->path);
}

static int tell_found(const struct listing *l, volume_entry_fn *fn, void *arg, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < l->count; i++) {
        const struct found *f = &l->items[i];
        droste_volume_entry entry = { .path = f->path,
            .mode = f->st.st_mode,
            .size = (uint64_t)f->st.st_size,
            .mtime = f->st.st_mtim.tv_sec };
        rc = fn(arg, &entry, err);
    }
    return rc;
}

/* Opens a directory, or returns -1 and one entry. */
static int list_top(
    const struct volume *v, const char *path, struct listing *l, int *top, struct error *err)
{
    cleanup_place struct place p = { 0 };
    struct stat st;
    int rc = files_place_of(v, path, &p, err);
    cleanup_fd int directory = rc < 0 ? rc : open_directory_of(v, &p, path, err);
    if (directory < 0)
        return directory;
    const char *name = p.name[0] ? p.name : ".";
    if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return volume_failed(v, "listing", path, err);
    if (!S_ISDIR(st.st_mode))
        return add_found(l, "", p.name, &st, err);
    *top = open_anyway(directory, name, O_RDONLY | O_DIRECTORY);
    return *top < 0 ? volume_failed(v, "listing", path, err) : 0;
}

int volume_list(const struct volume *v, const char *path, unsigned depth, size_t most,
    volume_entry_fn *fn, void *arg, bool *more, struct error *err)
{
    struct listing l = { .depth = depth, .most = most };
    cleanup_fd int top = -1;
    int rc = list_top(v, path, &l, &top, err);
    if (rc == 0 && top >= 0)
        rc = tree_walk(top, list_visit, &l, err);
    if (rc == 0 && l.count > 1)
        qsort(l.items, l.count, sizeof *l.items, by_path);
    if (rc == 0)
        rc = tell_found(&l, fn, arg, err);
    *more = l.more;
    for (size_t i = 0; i < l.count; i++)
        free(l.items[i].path);
    free(l.items);
    return rc;
}
