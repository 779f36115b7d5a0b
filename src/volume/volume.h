/* volume/volume.h: named directories that outlive sandboxes.
 *
 *   ROOT/NAME/data       what the guest sees
 *            /limits     its quota
 *            /lock       shared by users of the volume, exclusive for replacing its data
 *            /snapshots  complete copies, by name
 *            /aside      staging: complete entries are renamed to their place
 *
 * Everything is accessed through descriptors, and no component of a path may be a link
 * (base/os/beneath.h). The contents of `data` are a guest's and so untrusted. A killed process
 * leaves at most something in `aside`, which the next exclusive user removes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "droste/volume.h"
#include "base/list.h"

enum {
    VOLUME_GUEST = 65534, /* the user of guests that root starts, who then owns the files */
};

/* The limits of its data. */
struct volume_limits {
    uint64_t size;  /* bytes on disk */
    uint64_t files; /* of all kinds, including directories */
};

/* ---- the place of all volumes ---- */

/* Their directory: the given path, made absolute, or `volumes` in Droste's data directory. The
 * caller frees it. */
int volume_root(const char *configured, char **out, struct error *err);
/* The sorted names; none if there is no root. */
int volume_names(const char *root, struct list *names, struct error *err);
/* ERROR_ARGUMENT unless it is a valid name: letters, digits, '.', '_' and '-', at most 64,
 * without a leading '.' or '-'. `what` is for the error: "volume", "snapshot". */
int volume_check_name(const char *what, const char *name, struct error *err);

/* ---- one volume ---- */

enum volume_use {
    VOLUME_SHARED, /* together with others */
    VOLUME_ALONE,  /* exclusively */
};

struct volume;
/* Creates directories in an empty volume: parents first, NULL after the last. */
int volume_fill_empty(struct volume *v, const char *const *names, struct error *err);
/* Creates an empty volume; ERROR_ARGUMENT if it exists. */
int volume_create(
    const char *root, const char *name, const struct volume_limits *limits, struct error *err);
/* ERROR_NOT_FOUND; ERROR_PERMISSION if it is a link, or another user's; ERROR_ARGUMENT, naming
 * the processes, if it is in use in a conflicting way. */
int volume_open(const char *root, const char *name, enum volume_use use, struct volume **out,
    struct error *err);
/* Opens it shared; creates it if necessary. */
int volume_open_or_create(const char *root, const char *name, const struct volume_limits *limits,
    struct volume **out, struct error *err);
/* Creates an unnamed volume for a session: never shared, not synced to disk, and removed with
 * its last holder. If its process is killed, the next process that creates one in this root
 * removes it. */
int volume_make_ephemeral(
    const char *root, const struct volume_limits *limits, struct volume **out, struct error *err);
struct volume *volume_hold(struct volume *v);
/* NULL is fine. */
void volume_release(struct volume *v);
/* Removes it with its snapshots: the name disappears at once, then the contents. */
int volume_remove(const char *root, const char *name, struct error *err);

const char *volume_name(const struct volume *v);
/* The paths of the root, and of the data. */
const char *volume_root_of(const struct volume *v);
const char *volume_path(const struct volume *v);
int volume_data(const struct volume *v); /* the data directory's descriptor, borrowed */
dev_t volume_device(const struct volume *v);
ino_t volume_inode(const struct volume *v); /* of the data */
uid_t volume_owner(const struct volume *v); /* of the data, and of what is put there */
const struct volume_limits *volume_limits_of(const struct volume *v);
int volume_set_limits(struct volume *v, const struct volume_limits *limits, struct error *err);
/* Whether something else, or nothing, has its name now. */
bool volume_is_moved(const struct volume *v);
/* Changes the owner of all data, because guests of root do not always have the same user;
 * nothing to do if it is right. ERROR_ARGUMENT while another process uses the volume. */
int volume_give(struct volume *v, uid_t uid, struct error *err);
/* Copying into it stops with ERROR_CANCELLED once this descriptor (-1: none) is readable. */
void volume_interrupt_by(struct volume *v, int fd);
/* The first parent directory of the data that this user cannot traverse (free); NULL: none. */
char *volume_barrier(const struct volume *v, uid_t uid);

/* ---- what it holds ---- */

struct volume_usage {
    uint64_t size, files;
};
/* Counts everything. A file with several links counts for each. */
int volume_measure(const struct volume *v, struct volume_usage *out, struct error *err);
/* Counts in steps; starts again after the end. */
struct volume_measuring;
int volume_measuring_open(const struct volume *v, struct volume_measuring **out, struct error *err);
/* Visits about `entries` entries. Returns 1 if there are more, 0 with the result in *out at the
 * end, or when a limit is exceeded. May miss what guests move meanwhile. */
int volume_measuring_step(
    struct volume_measuring *m, size_t entries, struct volume_usage *out, struct error *err);
void volume_measuring_close(struct volume_measuring *m);

/* Files of a volume. Paths are relative, or begin with a directory in which guests see it. */

/* The entry is valid during the call. A negative result ends the listing. */
typedef int volume_entry_fn(void *arg, const droste_volume_entry *entry, struct error *err);
/* Lists a directory in order, `depth` levels deep, at most `max` entries; *more if there are
 * others. A file is listed alone. */
int volume_list(const struct volume *v, const char *path, unsigned depth, size_t most,
    volume_entry_fn *fn, void *arg, bool *more, struct error *err);

/* Stores an open file, pipe or directory as `path`, atomically, creating parent directories. A
 * file replaces another file; ERROR_ARGUMENT if anything else exists there. */
int volume_put(const struct volume *v, int source, const char *path, droste_volume_count *count,
    struct error *err);
/* A file or directory becomes the file or directory `to` of this machine, whole, or not at all; a
 * file takes the place of another one. */
int volume_get(const struct volume *v, const char *path, const char *to, droste_volume_count *count,
    struct error *err);
/* A file's data to a descriptor. ERROR_ARGUMENT if it is not a file. */
int volume_read(const struct volume *v, const char *path, int out, struct error *err);
/* Removes a file, or a directory with all that is in it: it is gone at once. */
int volume_remove_path(const struct volume *v, const char *path, struct error *err);

/* Snapshots: complete copies. The volume must be open exclusively. */

int volume_snapshots(const struct volume *v, struct list *names, struct error *err);
/* ERROR_ARGUMENT if the name exists. */
int volume_snapshot(
    const struct volume *v, const char *name, droste_volume_count *count, struct error *err);
/* Replaces the data by a snapshot; the current data are lost. */
int volume_restore(
    struct volume *v, const char *name, droste_volume_count *count, struct error *err);
int volume_snapshot_remove(const struct volume *v, const char *name, struct error *err);
int volume_snapshot_measure(
    const struct volume *v, const char *name, struct volume_usage *out, struct error *err);
