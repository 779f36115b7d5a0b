/* droste/files.h: the files of an open session's sandbox. */
#ifndef DROSTE_FILES_H
#define DROSTE_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "droste/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A process beside the session's serves them, so no call waits for a running cell (docs/files.md).
 * Paths are absolute, or relative to the directory in which the session's cells start, and are
 * resolved in the sandbox with the code's rights. Only regular files are read and written. An error
 * has the errno in `sys`. What comes from a sandbox is untrusted: names are checked, contents are
 * not. */

typedef struct droste_session droste_session;

typedef struct droste_file_entry {
    /* without a NUL; never with "." or ".."; relative, except of droste_file_glob with an absolute
     * pattern; "" of one file */
    const char *name;
    uint32_t mode; /* as in struct stat */
    uint64_t size;
    int64_t mtime_ns; /* since 1970 */
    uint32_t uid, gid;
    const char *user, *group; /* their names in the sandbox; "": they have none */
    const char *target;       /* of a link: the path that it leads to, without links; "": no link */
    uint32_t target_mode;     /* of what is there; 0: nothing, or it is not a link */
    /* with DROSTE_FILE_ATTRIBUTES: lines NAME=VALUE of the extended attributes user.* whose names
     * and values are printable ASCII; at most 8 KiB */
    const char *attributes;
} droste_file_entry;
/* Returns 0 to continue. The texts are valid during the call. */
typedef int droste_file_entry_fn(void *arg, const droste_file_entry *entry);

/* A file or directory; with `follow`, that to which a link points. The entry has no texts. */
DROSTE_API int droste_file_stat(
    droste_session *s, const char *path, int follow, droste_file_entry *out, droste_error *err);
/* Lists `depth` levels of a directory, without following links. Returns 1 if there are more than
 * `most` entries (100,000 at most); then these are some of them. */
DROSTE_API int droste_file_list(droste_session *s, const char *path, unsigned depth, size_t most,
    droste_file_entry_fn *fn, void *arg, droste_error *err);
/* Lists the regular files that match a pattern as a shell has it; "**" stands for any directories.
 * Returns as droste_file_list. */
DROSTE_API int droste_file_glob(droste_session *s, const char *pattern, size_t most,
    droste_file_entry_fn *fn, void *arg, droste_error *err);
/* With `parents`, creates those too, and the directory may exist. */
DROSTE_API int droste_file_make_directory(
    droste_session *s, const char *path, int parents, droste_error *err);
/* Removes a file, a link, or an empty directory; with `recursive`, a directory and its contents. */
DROSTE_API int droste_file_remove(
    droste_session *s, const char *path, int recursive, droste_error *err);
/* Replaces a file that has the new name. */
DROSTE_API int droste_file_rename(
    droste_session *s, const char *from, const char *to, droste_error *err);

/* Copies at most `length` bytes from `offset` to a descriptor. A file that grows meanwhile is
 * copied up to the size that it had. *copied may be NULL. */
DROSTE_API int droste_file_get(droste_session *s, const char *path, uint64_t offset,
    uint64_t length, int out, uint64_t *copied, droste_error *err);
/* Copies what can be read from a descriptor to a file, which is created or replaced. */
DROSTE_API int droste_file_put(
    droste_session *s, int source, const char *path, uint64_t *copied, droste_error *err);

/* ---- requests that do not block ---- */

enum { DROSTE_FILE_PIECE = 1 << 20 }; /* bytes of one read or write */
enum {
    DROSTE_FILE_FOLLOW = 1,
    DROSTE_FILE_PARENTS = 2,
    DROSTE_FILE_RECURSIVE = 4,
    DROSTE_FILE_ATTRIBUTES = 8 /* of "open", "stat" and "list": answer them */
};

typedef struct droste_file_request {
    const char *op; /* "open", "read", "write", "close", "stat", "list", "glob", "mkdir", "remove",
                       * "rename", "mark" */
    const char *path; /* or pattern */
    /* of "rename"; of "mark" a prefix, and lines NAME=VALUE that replace the extended attributes
     * whose names begin with it */
    const char *to;
    const char *mode; /* of "open": "r"; "w", created or emptied; "x", created; "a", to append */
    uint64_t handle;  /* of "read", "write" and "close" */
    int64_t offset;   /* of "read"; of "write" -1 stands for the position after the last one */
    size_t length;    /* of "read", at most DROSTE_FILE_PIECE */
    unsigned depth;   /* of "list" */
    size_t most;      /* of "list" and "glob" */
    int flags;        /* DROSTE_FILE_… */
    const void *data; /* of "write": at most DROSTE_FILE_PIECE bytes */
    size_t len;
} droste_file_request;

typedef struct droste_file_reply {
    uint64_t handle;  /* of "open" */
    const void *data; /* of "read"; fewer bytes than were requested at the end of the file, or 0 */
    size_t len;
    const droste_file_entry *entries; /* of "open", "stat", "list" and "glob" */
    size_t count;
    int more; /* of "list" and "glob": there are more than `most` */
} droste_file_reply;
/* Called once, in the loop's thread, with a reply, valid during the call, or an error; also when
 * the session is closed. It must not call functions that wait. */
typedef void droste_file_fn(void *arg, const droste_file_reply *reply, const droste_error *err);
/* Starts a request. Requests of a session are answered in their order. */
DROSTE_API int droste_file_start(droste_session *s, const droste_file_request *request,
    droste_file_fn *fn, void *arg, droste_error *err);

#ifdef __cplusplus
}
#endif

#endif
