/* volume/snapshot.c: complete copies of the data beside them. The volume is open exclusively. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/beneath.h"
#include "base/cleanup.h"
#include "base/os/tree.h"
#include "volume/internal.h"

static int snapshots_open(const struct volume *v, struct error *err)
{
    int fd = open_beneath(v->directory, "snapshots", O_RDONLY | O_DIRECTORY, 0);
    return fd < 0 ? volume_failed(v, "opening", "its snapshots", err) : fd;
}

int snapshot_open(const struct volume *v, const char *name, struct error *err)
{
    int rc = volume_check_name("snapshot", name, err);
    if (rc < 0)
        return rc;
    cleanup_fd int all = snapshots_open(v, err);
    if (all < 0)
        return all;
    int fd = open_beneath(all, name, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 && errno == ENOENT)
        return error_set(err, ERROR_NOT_FOUND,
            "volume '%s' has no snapshot '%s'; `droste volume ls %s --snapshots` lists them",
            v->name, name, v->name);
    return fd < 0 ? volume_failed(v, "opening the snapshot", name, err) : fd;
}

int volume_snapshots(const struct volume *v, struct list *names, struct error *err)
{
    cleanup_fd int all = snapshots_open(v, err);
    return all < 0 ? all : names_in(all, names, err);
}

/* Copies a tree to a directory in `aside` and syncs it. */
static int copy_staged(const struct volume *v, int from, int staging, const char *name,
    droste_volume_count *count, struct error *err)
{
    struct copying c = { .v = v, .owner = v->owner, .links = true, .most_bytes = v->limits.size };
    if (mkdirat(staging, name, 0700) < 0)
        return volume_failed(v, "making", "a copy", err);
    cleanup_fd int to = open_beneath(staging, name, O_RDONLY | O_DIRECTORY, 0);
    int rc = to < 0 ? volume_failed(v, "making", "a copy", err) : copy_tree(&c, from, to, err);
    if (rc == 0 && syncfs(to) < 0)
        rc = volume_failed(v, "writing", "a copy", err);
    *count = c.count;
    return rc;
}

int volume_snapshot(
    const struct volume *v, const char *name, droste_volume_count *count, struct error *err)
{
    char fresh[ATOMIC_REPLACE_NAME];
    int rc = volume_check_name("snapshot", name, err);
    if (rc < 0)
        return rc;
    cleanup_fd int all = snapshots_open(v, err),
                   staging = all < 0 ? all : atomic_replace_begin(v, fresh, err);
    if (staging < 0)
        return staging;
    if (faccessat(all, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return error_set(err, ERROR_ARGUMENT,
            "volume '%s' already has a snapshot '%s'; give another name, or remove it", v->name,
            name);
    rc = copy_staged(v, v->data, staging, fresh, count, err);
    if (rc == 0 && atomic_replace_move(staging, fresh, all, name, RENAME_NOREPLACE) < 0)
        rc = volume_failed(v, "making the snapshot", name, err);
    if (rc < 0)
        tree_remove(staging, fresh);
    return rc;
}

/* Restoring replaced the open directory. */
static int volume_reopen_data(struct volume *v, struct error *err)
{
    struct stat st;
    cleanup_fd int data = open_beneath(v->directory, "data", O_RDONLY | O_DIRECTORY, 0);
    if (data < 0 || fstat(data, &st) < 0)
        return volume_failed(v, "opening", "what was restored", err);
    close_fd(&v->data);
    v->data = steal_fd(&data);
    v->inode = st.st_ino;
    return 0;
}

int volume_restore(
    struct volume *v, const char *name, droste_volume_count *count, struct error *err)
{
    char fresh[ATOMIC_REPLACE_NAME];
    cleanup_fd int from = snapshot_open(v, name, err),
                   staging = from < 0 ? from : atomic_replace_begin(v, fresh, err);
    if (staging < 0)
        return staging;
    int rc = copy_staged(v, from, staging, fresh, count, err);
    if (rc == 0 && atomic_replace_move(staging, fresh, v->directory, "data", RENAME_EXCHANGE) < 0)
        rc = volume_failed(v, "restoring", name, err);
    if (rc == 0)
        rc = volume_reopen_data(v, err);
    tree_remove(staging, fresh); /* the previous data, or the incomplete copy */
    return rc;
}

int volume_snapshot_remove(const struct volume *v, const char *name, struct error *err)
{
    char fresh[ATOMIC_REPLACE_NAME];
    cleanup_fd int found = snapshot_open(v, name, err);
    if (found < 0)
        return found;
    cleanup_fd int all = snapshots_open(v, err),
                   staging = all < 0 ? all : atomic_replace_begin(v, fresh, err);
    if (staging < 0)
        return staging;
    if (atomic_replace_move(all, name, staging, fresh, RENAME_NOREPLACE) < 0)
        return volume_failed(v, "removing the snapshot", name, err);
    tree_remove(staging, fresh);
    return 0;
}
