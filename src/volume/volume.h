/* volume/volume.h: named directories that outlive sandboxes.
 *
 *   ROOT/NAME/data       what the guest sees
 *            /limits     its quota
 *            /lock       shared by whoever uses it, alone with whoever exchanges it
 *            /snapshots  whole copies, by name
 *            /aside      what is not finished: only what is complete is moved to where it belongs
 *
 * All is reached by descriptors, and nothing on the way may be a link (base/os/beneath.h). What is below
 * `data` is the guest's: a stranger's. A process that is killed leaves something in `aside` at most,
 * which the next one that is alone removes.
 */
#ifndef DROSTE_VOLUME_VOLUME_H
#define DROSTE_VOLUME_VOLUME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/list.h"

enum {
    VOLUME_GUEST = 65534, /* who the guest of root's is to the host, and whose the files are then */
};

/* What its data may come to. */
struct volume_limits {
    uint64_t size;  /* bytes on disk */
    uint64_t files; /* of all kinds, directories too */
};

/* ---- the place of all volumes ---- */

/* Where they are: the given path, made whole, or `volumes` where Droste keeps what lasts. The caller's
 * (free). */
int volume_root(const char *given, char **out, struct error *err);
/* The names, in order. None where there is no root. */
int volume_names(const char *root, struct list *names, struct error *err);
/* ERROR_ARGUMENT unless it is a name: letters, digits, '.', '_' and '-', no '.' or '-' in front, at most 64.
 * `what` is for the error: "volume", "snapshot". */
int volume_check_name(const char *what, const char *name, struct error *err);

/* ---- one volume ---- */

enum volume_use {
    VOLUME_SHARED, /* with any number of others */
    VOLUME_ALONE,  /* as long as it is open nobody else has it */
};

struct volume;
/* The directories that programs for Daytona's sandboxes expect, those above before those in them; NULL behind the last. */
const char *volume_seed(size_t i);
/* Makes them in a volume that is empty. */
int volume_seed_empty(struct volume *v, struct error *err);
/* Makes it, empty; ERROR_ARGUMENT where there is one. */
int volume_create(
    const char *root, const char *name, const struct volume_limits *limits, struct error *err);
/* ERROR_NOT_FOUND; ERROR_PERMISSION where a link is in its place, or where it is another user's;
 * ERROR_ARGUMENT where it is in use otherwise: the text has the process. */
int volume_open(const char *root, const char *name, enum volume_use use, struct volume **out,
    struct error *err);
/* The same, shared, and made if it is not there. */
int volume_open_or_create(const char *root, const char *name, const struct volume_limits *limits,
    struct volume **out, struct error *err);
/* One without a name, for a session: nobody else gets it, nothing of it need be on disk, and it is removed with
 * its last holder. What a killed process leaves of one, the next that makes something in this root removes. */
int volume_make_ephemeral(
    const char *root, const struct volume_limits *limits, struct volume **out, struct error *err);
struct volume *volume_hold(struct volume *v);
/* NULL is fine. */
void volume_release(struct volume *v);
/* Removes it with its snapshots: it is gone at once, and then what it held. */
int volume_remove(const char *root, const char *name, struct error *err);

const char *volume_name(const struct volume *v);
/* The path of the root, and of the data. */
const char *volume_root_of(const struct volume *v);
const char *volume_path(const struct volume *v);
int volume_data(const struct volume *v);      /* a directory's descriptor, the volume's */
int volume_directory(const struct volume *v); /* its own */
dev_t volume_device(const struct volume *v);
ino_t volume_inode(const struct volume *v); /* of the data */
uid_t volume_owner(const struct volume *v); /* of the data, and of what is put there */
const struct volume_limits *volume_limits_of(const struct volume *v);
int volume_set_limits(struct volume *v, const struct volume_limits *limits, struct error *err);
/* All that is in it becomes this user's, as the guests of root are not always the same; nothing where it is.
 * ERROR_ARGUMENT while somebody else uses it. */
int volume_give(struct volume *v, uid_t uid, struct error *err);
/* A descriptor (-1: none) that ends copying into it, once it is readable: ERROR_CANCELLED. */
void volume_interrupt_by(struct volume *v, int fd);
/* The first directory above the data that this user cannot pass, the caller's (free); NULL: there is none. */
char *volume_barrier(const struct volume *v, uid_t uid);

/* ---- what it holds ---- */

struct volume_usage {
    uint64_t size, files;
};
/* All of it. A file with several names counts under each. */
int volume_measure(const struct volume *v, struct volume_usage *out, struct error *err);
/* A piece at a time; from the beginning again after its end. */
struct volume_measuring;
int volume_measuring_open(const struct volume *v, struct volume_measuring **out, struct error *err);
/* About so many entries: 1 if there is more to see, 0 if that was all, and *out has it; more than the limits
 * is all. What guests move meanwhile may be missed. */
int volume_measuring_step(
    struct volume_measuring *m, size_t entries, struct volume_usage *out, struct error *err);
void volume_measuring_close(struct volume_measuring *m);

/* ---- its files. Paths are relative, or begin with one of the places where guests see it. ---- */

struct volume_count {
    uint64_t files, bytes;
    uint64_t left_out; /* links, FIFOs, sockets and devices */
};

struct volume_entry {
    const char *path; /* any bytes but zero */
    mode_t mode;
    uint64_t size;
    int64_t mtime; /* seconds since 1970 */
};
typedef int volume_entry_fn(void *arg, const struct volume_entry *entry, struct error *err);
/* What is in a directory, `depth` levels of it, in order; at most so many, and then *more. A file is listed
 * alone. */
int volume_list(const struct volume *v, const char *path, unsigned depth, size_t most,
    volume_entry_fn *fn, void *arg, bool *more, struct error *err);

/* An open file, pipe or directory of the caller's becomes `path`, whose directories are made: whole, or not at
 * all. A file takes the place of another one; ERROR_ARGUMENT for anything else that is there. */
int volume_put(const struct volume *v, int source, const char *path, struct volume_count *count,
    struct error *err);
/* A file or directory becomes the file or directory `to` of this machine, whole, or not at all; a file takes
 * the place of another one. */
int volume_get(const struct volume *v, const char *path, const char *to, struct volume_count *count,
    struct error *err);
/* A file's data to a descriptor. ERROR_ARGUMENT if it is no file. */
int volume_read(const struct volume *v, const char *path, int out, struct error *err);
/* Removes a file, or a directory with all that is in it: it is gone at once. */
int volume_remove_path(const struct volume *v, const char *path, struct error *err);

/* ---- snapshots: whole copies. The volume must be open alone. ---- */

int volume_snapshots(const struct volume *v, struct list *names, struct error *err);
/* ERROR_ARGUMENT where there is one of this name. */
int volume_snapshot(
    const struct volume *v, const char *name, struct volume_count *count, struct error *err);
/* The data become what they were; what they are now is gone. */
int volume_restore(
    struct volume *v, const char *name, struct volume_count *count, struct error *err);
int volume_snapshot_remove(const struct volume *v, const char *name, struct error *err);
int volume_snapshot_measure(
    const struct volume *v, const char *name, struct volume_usage *out, struct error *err);

#endif
