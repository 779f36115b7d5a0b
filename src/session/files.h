/* session/files.h: the files of a session's sandbox, whatever its cells do (session/service.h,
 * guest/python/core/serve_files.py).
 */
#pragma once

#include "session/session.h"

enum {
    FILES_PIECE = 1 << 20,      /* bytes of a read or write */
    FILES_ENTRIES_MAX = 100000, /* of a listing */
    FILES_PATH_MAX = 4096,
};

enum file_op {
    FILE_OPEN,  /* a regular file, to `mode` "r", "w", "x" or "a"; answers a handle and an entry */
    FILE_READ,  /* at most `length` bytes from `offset` */
    FILE_WRITE, /* `data` at `offset`; negative: where the last write ended, or at the end */
    FILE_CLOSE,
    FILE_STAT,
    FILE_LIST, /* `depth` levels of a directory */
    FILE_GLOB, /* regular files that match `path`, patterns with NUL between them */
    FILE_MKDIR,
    FILE_REMOVE,
    FILE_RENAME,
    FILE_MARK, /* `to`: a prefix, and lines NAME=VALUE that replace the attributes with it */
    FILE_OP_COUNT
};

struct file_call {
    enum file_op op;
    const char *path; /* relative to the session's first directory, or absolute */
    size_t path_len;
    const char *to; /* of FILE_RENAME and FILE_MARK */
    const char *mode;
    uint64_t handle;
    int64_t offset;
    size_t length;
    unsigned depth, limit;
    bool follow;     /* FILE_STAT: of what a link points to */
    bool parents;    /* FILE_MKDIR: create them too; a directory may exist */
    bool recursive;  /* FILE_REMOVE: a directory with its contents */
    bool attributes; /* FILE_OPEN, FILE_STAT and FILE_LIST: answer them */
    const void *data;
    size_t len;
};

struct file_entry {
    const char *name; /* without a terminating NUL; relative, without ".." */
    size_t name_len;
    uint32_t mode;
    uint64_t size;
    int64_t mtime_ns;
    uint32_t uid, gid;
    const char *target, *user, *group; /* without a terminating NUL; length 0: none, or unknown */
    const char *attributes; /* lines NAME=VALUE of printable ASCII, if they were asked for */
    size_t target_len, user_len, group_len, attributes_len;
    uint32_t target_mode; /* of what a link leads to; 0: nothing, or it is not a link */
};

struct file_answer {
    uint64_t handle;
    bool more;  /* there are more entries than `limit` */
    bool lists; /* `data` is a list of entries */
    const char *data;
    size_t len;
};

/* Takes the next entry of a checked answer; false after the last. `*at` begins with 0. */
bool file_entry_next(const struct file_answer *answer, size_t *at, struct file_entry *out);

/* Called once, with an answer, which is valid during the call, or an error. It may start calls. */
typedef void file_done_fn(void *arg, const struct file_answer *answer, const struct error *why);

/* Starts a call; calls for files are answered in order. ERROR_UNSUPPORTED if the environment has no
 * files. An error has the errno in `sys`. */
int session_file(struct session *s, const struct file_call *call, file_done_fn *done, void *arg,
    struct error *err);
/* Drops the call with this argument: `done` is not called. */
void session_file_forget(struct session *s, const void *arg);
