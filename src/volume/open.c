/* volume/open.c: creates, opens and removes volumes; see volume.h.
 *
 * A volume appears and disappears by one rename in the root. Names that begin with '.' are volumes
 * that are being created or removed under the root's lock; the next holder of that lock removes
 * those that a killed process has left.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/beneath.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "base/os/tree.h"
#include "volume/internal.h"

enum {
    WAIT_MS = 10000,     /* for locks that are held only briefly */
    WAIT_ALONE_MS = 500, /* for users that may stay for hours */
    OPEN_TRIES = 10,     /* another process keeps removing and creating it */
};

int volume_check_name(const char *what, const char *name, struct error *err)
{
    cleanup_buf struct buf shown = { 0 };
    if (text_is_name(name))
        return 0;
    text_append_visible(&shown, name, strnlen(name, 80));
    return error_set(err, ERROR_ARGUMENT,
        "%s name '%.80s': use at most 64 letters, digits, '.', '_' and '-', and no '.' or '-' in "
        "front",
        what, buf_text(&shown));
}

/* ---- making ---- */

static int make_data(int directory)
{
    cleanup_fd int data = -1;
    if (mkdirat(directory, "data", 0700) < 0 || give_to_guest(directory, "data") < 0)
        return -1;
    data = open_beneath(directory, "data", O_RDONLY | O_DIRECTORY, 0);
    return data < 0 ? -1 : syncfs(data);
}

/* True unless it contains something or cannot be read. */
static bool is_empty(int data)
{
    cleanup_listing DIR *listing = open_listing(data, ".");
    return listing && !next_listed(listing);
}

int volume_fill_empty(struct volume *v, const char *const *names, struct error *err)
{
    if (!is_empty(v->data))
        return 0;
    for (size_t i = 0; names[i]; i++)
        if ((mkdirat(v->data, names[i], 0700) < 0 && errno != EEXIST) ||
            give_to_guest(v->data, names[i]) < 0)
            return error_set_errno(
                err, ERROR_IO, "creating the directories of the volume '%s'", volume_name(v));
    return 0;
}

/* Creates a volume's contents in a directory with a temporary name. */
static int volume_fill(int directory, const struct volume_limits *limits, struct error *err)
{
    cleanup_fd int lock = openat(directory, "lock", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    cleanup_fd int staging = -1;
    if (lock < 0 || mkdirat(directory, "aside", 0700) < 0 ||
        mkdirat(directory, "snapshots", 0700) < 0)
        return error_set_errno(err, ERROR_IO, "making its directories");
    staging = open_beneath(directory, "aside", O_RDONLY | O_DIRECTORY, 0);
    int rc = limits_write(directory, staging, limits, err);
    if (rc == 0 && make_data(directory) < 0)
        rc = error_set_errno(err, ERROR_IO, "making its directories");
    return rc;
}

static int volume_make(
    int root, const char *name, const struct volume_limits *limits, struct error *err)
{
    static const char fresh[] = ".new-volume";
    if (mkdirat(root, fresh, passable()) < 0)
        return error_set_errno(err, ERROR_IO, "making its directory");
    cleanup_fd int directory = open_beneath(root, fresh, O_RDONLY | O_DIRECTORY, 0);
    int rc = directory < 0 || fchmod(directory, passable()) < 0
                 ? error_set_errno(err, ERROR_IO, "making its directory")
                 : volume_fill(directory, limits, err);
    if (rc == 0 && atomic_replace_move(root, fresh, root, name, RENAME_NOREPLACE) < 0)
        rc = errno == EEXIST
                 ? error_set(err, ERROR_ARGUMENT, "a volume of this name exists already")
                 : error_set_errno(err, ERROR_IO, "giving it its name");
    if (rc < 0)
        tree_remove(root, fresh);
    return rc;
}

int volume_create(
    const char *root, const char *name, const struct volume_limits *limits, struct error *err)
{
    int rc = volume_check_name("volume", name, err);
    if (rc == 0)
        rc = root_make(root, err);
    if (rc < 0)
        return rc;
    cleanup_fd int directory = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_fd int lock = directory < 0 ? -1 : root_lock(directory);
    if (lock < 0)
        return root_failed(root, "locking", err);
    root_sweep(directory);
    rc = volume_make(directory, name, limits, err);
    return rc < 0 ? error_wrap(err, "creating the volume '%s'", name) : 0;
}

/* ---- opening ---- */

static int open_directories(struct volume *v, int root, struct error *err)
{
    struct stat st;
    v->directory = open_beneath(root, v->name, O_RDONLY | O_DIRECTORY, 0);
    if (root < 0 || (v->directory < 0 && errno == ENOENT))
        return error_set(err, ERROR_NOT_FOUND,
            "there is no volume '%s' at %.120s; create it with `droste volume create %s`", v->name,
            v->root, v->name);
    if (v->directory >= 0)
        v->data = open_beneath(v->directory, "data", O_RDONLY | O_DIRECTORY, 0);
    if (v->data < 0 && (errno == ELOOP || errno == ENOTDIR))
        return error_set(err, ERROR_PERMISSION,
            "volume '%s' is no longer a directory: a link or a file has replaced it at %.100s",
            v->name, v->root);
    if (v->data < 0 || fstat(v->data, &st) < 0)
        return volume_failed(v, "opening", "it", err);
    v->device = st.st_dev;
    v->inode = st.st_ino;
    v->owner = st.st_uid;
    if (st.st_uid != geteuid() && st.st_uid != owner_of_new()) /* root may own both kinds */
        return error_set(err, ERROR_PERMISSION,
            "volume '%s' belongs to the user %u; run as that user", v->name, st.st_uid);
    return 0;
}

static int in_use(struct volume *v, enum volume_use use, struct error *err)
{
    cleanup_buf struct buf holders = { 0 };
    lock_holders(v->lock, &holders);
    const char *who = holders.len ? buf_text(&holders) : "another process";
    if (use == VOLUME_ALONE)
        return error_set(err, ERROR_ARGUMENT,
            "volume '%s' is in use by %s; wait until its sessions have ended", v->name, who);
    return error_set(err, ERROR_ARGUMENT,
        "volume '%s' is locked for a change as a whole by %s; try again when that is done", v->name,
        who);
}

/* With exclusive access, everything in `aside` is left over. */
static void volume_sweep(const struct volume *v)
{
    cleanup_fd int staging = open_beneath(v->directory, "aside", O_RDONLY | O_DIRECTORY, 0);
    cleanup_listing DIR *listing = staging < 0 ? NULL : open_listing(staging, ".");
    for (const char *name; (name = next_listed(listing));)
        tree_remove(staging, name);
}

static int take_lock(struct volume *v, enum volume_use use, struct error *err)
{
    v->lock = open_beneath(v->directory, "lock", O_RDWR, 0);
    if (v->lock < 0)
        return volume_failed(v, "opening", "its lock", err);
    if (flock(v->lock, LOCK_EX | LOCK_NB) == 0)
        volume_sweep(v);
    else if (use == VOLUME_ALONE && lock_within(v->lock, LOCK_EX, WAIT_ALONE_MS) == 0)
        volume_sweep(v);
    else if (use == VOLUME_ALONE)
        return in_use(v, use, err);
    if (use == VOLUME_SHARED && lock_within(v->lock, LOCK_SH, WAIT_MS) < 0)
        return in_use(v, use, err);
    return 0;
}

/* It was removed, or its data replaced, before the lock was taken. */
static bool is_another(const struct volume *v, int root)
{
    struct stat st, mine;
    cleanup_fd int now = open_beneath(root, v->name, O_PATH | O_DIRECTORY, 0);
    cleanup_fd int data = now < 0 ? -1 : open_beneath(now, "data", O_PATH | O_DIRECTORY, 0);
    return data < 0 || fstat(data, &st) < 0 || fstat(v->data, &mine) < 0 ||
           st.st_ino != mine.st_ino || st.st_dev != mine.st_dev;
}

/* 1: it was replaced meanwhile. */
static int open_once(struct volume *v, int root, enum volume_use use, struct error *err)
{
    int rc = open_directories(v, root, err);
    if (rc == 0)
        rc = take_lock(v, use, err);
    if (rc == 0 && is_another(v, root))
        return 1;
    if (rc == 0 && (rc = limits_read(v->directory, &v->limits, err)) < 0)
        return error_wrap(err, "volume '%s'", v->name);
    return rc < 0 ? rc : volume_find_path(v, err);
}

static void close_all(struct volume *v)
{
    close_fd(&v->directory);
    close_fd(&v->data);
    close_fd(&v->lock);
}

int volume_open(
    const char *root, const char *name, enum volume_use use, struct volume **out, struct error *err)
{
    int rc = volume_check_name("volume", name, err);
    if (rc < 0)
        return rc;
    cleanup_fd int directory = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 && errno != ENOENT)
        return root_failed(root, "opening", err);
    struct volume *v = calloc(1, sizeof *v);
    if (!v)
        return error_memory(err);
    *v = (struct volume){ .holders = 1, .directory = -1, .data = -1, .lock = -1, .interrupt = -1 };
    v->name = strdup(name);
    v->root = strdup(root);
    rc = v->name && v->root ? 1 : error_memory(err);
    for (int i = 0; rc == 1 && i < OPEN_TRIES; i++) {
        close_all(v);
        errno = ENOENT;
        rc = open_once(v, directory, use, err);
    }
    if (rc == 1)
        rc = error_set(err, ERROR_IO,
            "volume '%s' is removed and created again repeatedly by "
            "other processes; try again later",
            name);
    if (rc < 0)
        volume_release(v);
    else
        *out = v;
    return rc;
}

int volume_open_or_create(const char *root, const char *name, const struct volume_limits *limits,
    struct volume **out, struct error *err)
{
    int rc = volume_open(root, name, VOLUME_SHARED, out, err);
    if (rc != -(int)ERROR_NOT_FOUND)
        return rc;
    rc = volume_create(root, name, limits, err);
    /* ERROR_ARGUMENT: another process created it first. */
    return rc < 0 && rc != -(int)ERROR_ARGUMENT ? rc
                                                : volume_open(root, name, VOLUME_SHARED, out, err);
}

struct volume *volume_hold(struct volume *v)
{
    if (v)
        v->holders++;
    return v;
}

/* The volume of a session, whose last holder is leaving it. */
static void volume_drop_ephemeral(struct volume *v)
{
    cleanup_fd int root = open(v->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root >= 0)
        tree_remove(root, v->name);
}

void volume_release(struct volume *v)
{
    if (!v || --v->holders > 0)
        return;
    if (v->ephemeral)
        volume_drop_ephemeral(v);
    close_all(v);
    free(v->root);
    free(v->name);
    free(v->path);
    free(v);
}

/* ---- removing ---- */

int volume_remove(const char *root, const char *name, struct error *err)
{
    char gone[ATOMIC_REPLACE_NAME + 8], fresh[ATOMIC_REPLACE_NAME];
    struct volume *v = NULL;
    cleanup_fd int directory = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = atomic_replace_name(fresh, err);
    if (rc == 0)
        rc = volume_open(root, name, VOLUME_ALONE, &v, err);
    if (rc < 0)
        return rc;
    cleanup_fd int lock = root_lock(directory);
    snprintf(gone, sizeof gone, ".gone-%s", fresh);
    if (lock < 0)
        rc = root_failed(root, "locking", err);
    else if (atomic_replace_move(directory, name, directory, gone, RENAME_NOREPLACE) < 0)
        rc = volume_failed(v, "removing", "it", err);
    if (rc == 0)
        root_sweep(directory);
    close_fd(&lock);
    volume_release(v);
    return rc;
}

/* ---- what is known of it ---- */

const char *volume_name(const struct volume *v)
{
    return v->name;
}

const char *volume_root_of(const struct volume *v)
{
    return v->root;
}

const char *volume_path(const struct volume *v)
{
    return v->path;
}

int volume_data(const struct volume *v)
{
    return v->data;
}

dev_t volume_device(const struct volume *v)
{
    return v->device;
}

ino_t volume_inode(const struct volume *v)
{
    return v->inode;
}

uid_t volume_owner(const struct volume *v)
{
    return v->owner;
}

const struct volume_limits *volume_limits_of(const struct volume *v)
{
    return &v->limits;
}

int volume_set_limits(struct volume *v, const struct volume_limits *limits, struct error *err)
{
    cleanup_fd int staging = atomic_replace_open(v, err);
    if (staging < 0)
        return staging;
    int rc = limits_write(v->directory, staging, limits, err);
    if (rc == 0)
        v->limits = *limits;
    return rc < 0 ? error_wrap(err, "volume '%s'", v->name) : 0;
}

void volume_interrupt_by(struct volume *v, int fd)
{
    v->interrupt = fd;
}

bool volume_is_moved(const struct volume *v)
{
    struct stat st;
    return stat(v->path, &st) < 0 ? errno == ENOENT : st.st_ino != v->inode;
}

char *volume_barrier(const struct volume *v, uid_t uid)
{
    char *path = strdup(v->path);
    struct stat st;
    for (char *at = path ? path + 1 : NULL; at && (at = strchr(at, '/')); at++) {
        *at = '\0';
        bool passes = stat(path, &st) == 0 && (st.st_mode & (st.st_uid == uid ? S_IXUSR : S_IXOTH));
        if (!passes)
            return path;
        *at = '/';
    }
    free(path);
    return NULL;
}
