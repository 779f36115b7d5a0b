/* base/os/tree.c: walks and removes trees with one open directory.
 *
 * A walk lists one directory, keeps the names of its subdirectories, and enters one after the
 * other. It returns through "..", and only if that leads to the directory it came from, so it never
 * leaves the tree, whatever is moved.
 */
#include "base/os/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/os/beneath.h"
#include "base/buf.h"
#include "base/cleanup.h"

/* ---- walking ---- */

struct level {
    dev_t device;
    ino_t inode;
    size_t names;  /* where the names of its unvisited subdirectories begin */
    mode_t closed; /* the mode to restore; 0: unchanged */
};

struct tree_walk {
    tree_fn *fn;
    void *arg;
    int at;       /* the current directory */
    DIR *listing; /* its listing, until the end */
    struct level *levels;
    size_t count, room;
    struct buf names; /* NUL-terminated, those of the deepest level last */
    struct buf path;  /* of the current directory, each component followed by '/' */
};

static int tree_enter(struct tree_walk *w, int fd, struct error *err)
{
    struct stat st;
    cleanup_fd int owned = fd;
    if (!array_room(w->levels, w->count, &w->room))
        return error_memory(err);
    int listed = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    w->listing = listed < 0 ? NULL : fdopendir(listed);
    if (!w->listing || fstat(fd, &st) < 0) {
        if (!w->listing && listed >= 0)
            close(listed);
        return error_set_errno(err, ERROR_IO, "listing a directory");
    }
    struct level level = { st.st_dev, st.st_ino, w->names.len, 0 };
    /* Its mode forbids reaching its contents. */
    if (faccessat(fd, ".", X_OK, AT_EACCESS) < 0 && fchmod(fd, (st.st_mode & 07777) | 0700) == 0)
        level.closed = st.st_mode;
    close_fd(&w->at);
    w->at = steal_fd(&owned);
    w->levels[w->count++] = level;
    return 0;
}

static void close_again(const struct tree_walk *w, const struct level *level)
{
    if (level->closed)
        (void)!fchmod(w->at, level->closed & 07777);
}

int tree_walk_open(int top, tree_fn *fn, void *arg, struct tree_walk **out, struct error *err)
{
    struct tree_walk *w = calloc(1, sizeof *w);
    if (!w)
        return error_memory(err);
    *w = (struct tree_walk){ .fn = fn, .arg = arg, .at = -1 };
    int fd = open_beneath(top, ".", O_RDONLY | O_DIRECTORY, 0);
    int rc =
        fd < 0 ? error_set_errno(err, ERROR_IO, "opening a directory") : tree_enter(w, fd, err);
    if (rc < 0)
        tree_walk_close(w);
    else
        *out = w;
    return rc;
}

void tree_walk_close(struct tree_walk *w)
{
    if (!w)
        return;
    if (w->listing)
        closedir(w->listing);
    if (w->count > 0)
        close_again(w, &w->levels[w->count - 1]);
    close_fd(&w->at);
    free(w->levels);
    buf_free(&w->names);
    buf_free(&w->path);
    free(w);
}

static int os_tree_visit(struct tree_walk *w, enum tree_visit os_tree_visit, const char *name,
    const struct stat *st, struct error *err)
{
    struct tree_place place = { .at = w->at,
        .path = buf_text(&w->path),
        .name = name,
        .st = st,
        .depth = (unsigned)w->count - 1 };
    return w->fn(w->arg, os_tree_visit, &place, err);
}

/* Visits the next entry of the current directory. */
static int list_one(struct tree_walk *w, struct error *err)
{
    struct stat st;
    const char *name = next_listed(w->listing);
    if (!name) {
        closedir(steal(&w->listing));
        return 0;
    }
    if (fstatat(w->at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* removed meanwhile */
    int rc = os_tree_visit(w, TREE_ENTRY, name, &st, err);
    if (rc == 0 && S_ISDIR(st.st_mode))
        buf_append(&w->names, name, strlen(name) + 1);
    return rc < 0 ? rc : w->names.failed ? error_memory(err) : 0;
}

/* Removes the last name and returns it. */
static const char *take_name(struct tree_walk *w)
{
    size_t at = w->names.len - 1;
    while (at > 0 && w->names.data[at - 1] != '\0')
        at--;
    w->names.len = at;
    return w->names.data + at;
}

static int tree_enter_one(struct tree_walk *w, struct error *err)
{
    char name[NAME_MAX + 1];
    snprintf(name, sizeof name, "%s", take_name(w));
    int fd = open_anyway(w->at, name, O_RDONLY | O_DIRECTORY);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return 0; /* replaced meanwhile */
    if (fd < 0)
        return error_set_errno(err, ERROR_IO, "opening the directory '%.64s'", name);
    int rc = tree_enter(w, fd, err);
    buf_printf(&w->path, "%s/", name);
    if (rc == 0 && buf_failed(&w->path))
        rc = error_memory(err);
    return rc < 0 ? rc : os_tree_visit(w, TREE_ENTER, name, NULL, err);
}

/* Removes the last component of the path. */
static void tree_shorten_path(struct buf *path)
{
    do
        path->len--;
    while (path->len > 0 && path->data[path->len - 1] != '/');
    path->data[path->len] = '\0';
}

static int tree_leave(struct tree_walk *w, struct error *err)
{
    struct stat st;
    int rc = os_tree_visit(w, TREE_LEAVE, "", NULL, err);
    if (rc < 0)
        return rc;
    tree_shorten_path(&w->path);
    const struct level *above = &w->levels[--w->count - 1];
    cleanup_fd int up = openat(w->at, "..", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (up < 0) /* search permission without read permission is enough to return */
        up = openat(w->at, "..", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    close_again(w, above + 1);
    if (up >= 0 && fstat(up, &st) == 0 && st.st_dev == above->device && st.st_ino == above->inode) {
        close_fd(&w->at);
        w->at = steal_fd(&up);
        return 0;
    }
    errno = ESTALE;
    return error_set_errno(err, ERROR_IO, "a directory was moved while it was being read");
}

int tree_walk_step(struct tree_walk *w, size_t entries, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < entries; i++) {
        if (w->listing)
            rc = list_one(w, err);
        else if (w->names.len > w->levels[w->count - 1].names)
            rc = tree_enter_one(w, err);
        else if (w->count > 1)
            rc = tree_leave(w, err);
        else
            return 0;
    }
    return rc < 0 ? rc : 1;
}

int tree_walk(int top, tree_fn *fn, void *arg, struct error *err)
{
    struct tree_walk *w = NULL;
    int rc = tree_walk_open(top, fn, arg, &w, err);
    while (rc == 0 && (rc = tree_walk_step(w, SIZE_MAX, err)) == 1)
        rc = 0;
    tree_walk_close(w);
    return rc;
}

/* ---- removing ---- */

static bool remove_entry(int at, const char *name)
{
    return unlinkat(at, name, 0) == 0 || errno == ENOENT || unlinkat(at, name, AT_REMOVEDIR) == 0;
}

/* Its mode may forbid changing its contents: it becomes 0700 for good. */
static DIR *open_to_empty(int at, const char *name)
{
    DIR *listing = open_listing(at, name);
    if (listing)
        (void)!fchmod(dirfd(listing), 0700);
    return listing;
}

struct removal {
    int top;
    unsigned moved; /* directories moved to unused names */
    size_t left;    /* entries that may still be visited */
};

/* Moves a directory that is not empty to the top, under an unused name. */
static void move_up(struct removal *r, int from, const char *name)
{
    char fresh[32];
    DIR *listing = open_to_empty(from, name); /* which makes it writable: it could not be moved */
    if (listing)
        closedir(listing);
    do
        snprintf(fresh, sizeof fresh, "%u", ++r->moved);
    while (renameat2(from, name, r->top, fresh, RENAME_NOREPLACE) < 0 && errno == EEXIST);
}

static const char *next_to_remove(struct removal *r, DIR *listing)
{
    if (r->left == 0)
        return NULL;
    r->left--;
    return next_listed(listing);
}

/* Removes an entry of the top; subdirectories of it may move up. */
static bool remove_below(struct removal *r, const char *name)
{
    if (remove_entry(r->top, name))
        return true;
    cleanup_listing DIR *listing = open_to_empty(r->top, name);
    if (!listing)
        return false;
    for (const char *inner; (inner = next_to_remove(r, listing));)
        if (!remove_entry(dirfd(listing), inner))
            move_up(r, dirfd(listing), inner);
    return remove_entry(r->top, name);
}

/* The tree is a guest's: its paths may be longer than any call accepts, and deeper than there
 * are descriptors. So everything is removed at depth one, until a whole pass finds nothing to
 * do. */
bool tree_remove_some(int directory, const char *name, size_t most)
{
    bool some = true;
    if (remove_entry(directory, name))
        return true;
    cleanup_listing DIR *top = open_to_empty(directory, name);
    struct removal r = { .top = top ? dirfd(top) : -1, .left = most };
    while (top && some && r.left > 0) {
        some = false;
        rewinddir(top);
        for (const char *inner; (inner = next_to_remove(&r, top));)
            some = remove_below(&r, inner) || some;
    }
    return remove_entry(directory, name);
}

bool tree_remove(int directory, const char *name)
{
    return tree_remove_some(directory, name, SIZE_MAX);
}
