/* droste/volume.h: volumes, which outlive sandboxes. */
#ifndef DROSTE_VOLUME_H
#define DROSTE_VOLUME_H

#include <stddef.h>
#include <stdint.h>

#include "droste/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A directory that outlives sandboxes (docs/volumes.md). The setting "env" determines whose volumes
 * these are: with daytona and modal the provider's, which every operation reaches through a sandbox
 * of its own; otherwise this machine's, below "volume-root". Paths in a volume are relative, or
 * absolute as guests see them. Links are never followed. An operation is atomic. */
typedef struct droste_volume droste_volume;

/* True if the provider keeps the volumes. Then only list, get, read and put are supported; other
 * functions return ERROR_UNSUPPORTED. */
DROSTE_API int droste_volumes_are_remote(const droste *d);
/* The directory of this machine's volumes, which need not exist; NULL with *err. Valid until the
 * next call. */
DROSTE_API const char *droste_volume_root(droste *d, droste_error *err);
/* Lists the names in order. The function may call other functions of the volume. */
DROSTE_API int droste_volume_names(droste *d, droste_name_fn *fn, void *arg, droste_error *err);
/* Creates an empty volume with the limits "volume-size" and "volume-files". ERROR_ARGUMENT if it
 * exists. */
DROSTE_API int droste_volume_create(droste *d, const char *name, droste_error *err);
/* Removes a volume with its snapshots. ERROR_ARGUMENT while it is in use. */
DROSTE_API int droste_volume_remove(droste *d, const char *name, droste_error *err);

/* Excludes all sessions. Snapshots require it. */
enum { DROSTE_VOLUME_ALONE = 1 };
/* Opens a volume. ERROR_NOT_FOUND; ERROR_PERMISSION (another user's, or a link); ERROR_ARGUMENT if
 * it is in use and `flags` excludes that. For a provider's volume, the first operation reports
 * these. Close it before droste_free. */
DROSTE_API int droste_volume_open(
    droste *d, const char *name, int flags, droste_volume **out, droste_error *err);
/* NULL is allowed. */
DROSTE_API void droste_volume_close(droste_volume *v);
DROSTE_API const char *droste_volume_name(const droste_volume *v);
/* Its directory on this machine; NULL: the provider keeps it. */
DROSTE_API const char *droste_volume_path(const droste_volume *v);

typedef struct droste_volume_usage {
    uint64_t size, files;             /* bytes on disk; files of all kinds, with directories */
    uint64_t size_limit, files_limit; /* 0 for a snapshot */
} droste_volume_usage;
DROSTE_API int droste_volume_measure(
    const droste_volume *v, droste_volume_usage *out, droste_error *err);
/* Sets its limits, as the settings write them ("2G", "50000"). NULL: unchanged. */
DROSTE_API int droste_volume_limit(
    droste_volume *v, const char *size, const char *files, droste_error *err);

typedef struct droste_volume_entry {
    const char *path; /* relative to the listed directory; any bytes but NUL */
    uint32_t mode;    /* as in struct stat */
    uint64_t size;
    int64_t mtime; /* seconds since 1970 */
} droste_volume_entry;
/* Returns 0 to continue. */
typedef int droste_volume_entry_fn(void *arg, const droste_volume_entry *entry);
/* Lists `depth` levels of a directory, in order, or one file. Returns 1 if there are more than
 * `most` entries. */
DROSTE_API int droste_volume_list(droste_volume *v, const char *path, unsigned depth, size_t most,
    droste_volume_entry_fn *fn, void *arg, droste_error *err);

/* What was copied. */
typedef struct droste_volume_count {
    uint64_t files, bytes;
    uint64_t left_out; /* links, FIFOs, sockets and devices */
} droste_volume_count;
/* In the following functions, `count` may be NULL. */
/* Copies a file or directory to `to` on this machine. A file replaces an existing one. */
DROSTE_API int droste_volume_get(droste_volume *v, const char *path, const char *to,
    droste_volume_count *count, droste_error *err);
/* Writes a file's data to a descriptor. ERROR_ARGUMENT if it is not a file. */
DROSTE_API int droste_volume_read(droste_volume *v, const char *path, int out, droste_error *err);
/* Copies an open file, pipe or directory to `path`, and creates its directories. A file replaces
 * an existing one; ERROR_ARGUMENT if something else has this path. */
DROSTE_API int droste_volume_put(
    droste_volume *v, int source, const char *path, droste_volume_count *count, droste_error *err);
/* Removes a file, or a directory with its contents. */
DROSTE_API int droste_volume_delete(droste_volume *v, const char *path, droste_error *err);

/* Snapshots are complete copies. They do not count towards the limits. */
DROSTE_API int droste_volume_snapshots(
    const droste_volume *v, droste_name_fn *fn, void *arg, droste_error *err);
DROSTE_API int droste_volume_snapshot_measure(
    const droste_volume *v, const char *name, droste_volume_usage *out, droste_error *err);
/* These three need DROSTE_VOLUME_ALONE. ERROR_ARGUMENT if a snapshot has this name. */
DROSTE_API int droste_volume_snapshot(
    droste_volume *v, const char *name, droste_volume_count *count, droste_error *err);
/* Replaces the contents of the volume. */
DROSTE_API int droste_volume_restore(
    droste_volume *v, const char *name, droste_volume_count *count, droste_error *err);
DROSTE_API int droste_volume_snapshot_remove(droste_volume *v, const char *name, droste_error *err);

/* A commit is a copy in a directory that machines share, as chunks that are named by their content,
 * so that only what has changed is written. */
enum { DROSTE_COMMIT_SIZE = 65 }; /* of its name, with the NUL */
/* Needs DROSTE_VOLUME_ALONE. */
DROSTE_API int droste_volume_commit(droste_volume *v, const char *share,
    char commit[DROSTE_COMMIT_SIZE], droste_volume_count *count, droste_error *err);
/* Creates a volume with the contents and limits of a commit. ERROR_ARGUMENT if it exists. */
DROSTE_API int droste_volume_create_from(
    droste *d, const char *name, const char *share, const char *commit, droste_error *err);

#ifdef __cplusplus
}
#endif

#endif
