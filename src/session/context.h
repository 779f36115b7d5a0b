/* session/context.h: reads a context from a file, a directory, standard input or memory.
 *
 * The context is passed as a sealed memfd. A file of one gigabyte thus costs the host one copy in
 * the page cache and hardly any memory of its own, and nothing can change it while guests map it.
 * Several sessions may use the same context.
 */
#pragma once

#include "base/error.h"
#include "base/hash.h"
#include "session/session.h"

struct context {
    enum value_kind kind;
    int fd;               /* sealed memfd; -1 for an empty one */
    size_t len;           /* bytes in the memfd */
    char *name;           /* additional name in the guest; NULL: none */
    char *source;         /* the path, "standard input" or "memory" */
    char *path;           /* absolute, of a file or directory; NULL: cannot be read again */
    uint64_t files;       /* of a directory */
    uint64_t left_out;    /* files that are not text or could not be read */
    char *first_left_out; /* path and reason of the first of these; or NULL */
};

/* The kind of a context is "auto", "text", "bytes", "json" or "jsonl". "auto" parses .json and
 * .jsonl files by their names; other files are text if they are UTF-8, otherwise bytes. A
 * directory becomes {path: text} in the order of paths, without following links and without
 * version control directories. */
int context_kind_parse(const char *word, enum value_kind *out, struct error *err);

struct context_filter {
    const char *const *include; /* only files of a directory that match one of these */
    size_t count;               /* glob(7) patterns, by name or path. None: all files */
    uint64_t most;              /* size limit in bytes; 0: CONTEXT_MOST */
    const int *interrupt;       /* a descriptor that ends reading once readable; NULL: none */
};

/* Reads a regular file, a directory, or with "-" standard input of any type. Other files are
 * opened only to determine their type, without blocking. `filter->most` limits the total;
 * `filter` may be NULL. ERROR_NOT_FOUND, ERROR_PERMISSION, ERROR_ARGUMENT (no text in it, a
 * device or pipe, or too large), ERROR_CANCELLED (by a signal or `filter->interrupt`), ERROR_IO
 * (including lack of space). */
int context_load(const char *path, enum value_kind kind, const struct context_filter *filter,
    struct context **out, struct error *err);
/* Checks for the errors of context_load that need no reading, except those of the kind. */
int context_look(const char *path, const struct context_filter *filter, struct error *err);
int context_from_memory(
    const void *data, size_t len, enum value_kind kind, struct context **out, struct error *err);
/* The same of parts, which follow each other. */
int context_from_parts(const struct session_part *parts, size_t count, enum value_kind kind,
    struct context **out, struct error *err);
void context_free(struct context *context);

/* The contexts of a session, in order. */
struct contexts {
    struct context **items;
    size_t count;
};

/* Takes ownership of the context, even on failure. */
int contexts_add(struct contexts *all, struct context *context, struct error *err);
void contexts_free(struct contexts *all);

/* Returns the names of a context in the guest (NULL: of a placeholder). The first context is
 * `context` and `context_0`, the next `context_1`…, plus its own name if it has one. The first
 * of `names` is for display. */
struct context_names {
    const char *names[3];
    size_t count;
    char numbered[24];
};
void context_names(const struct context *context, size_t index, struct context_names *out);

/* Sets the error for a name that a tool or a tool's value already has. */
int context_hides_tool(const char *name, struct error *err);

/* Stores what a record needs to provide the same context again: its SHA-256, and the contents if
 * the context cannot be read again and has at most CONTEXT_KEPT_MAX bytes. */
enum { CONTEXT_KEPT_MAX = 64 << 20 };
int context_keep(
    const struct context *context, char hash[HASH_TEXT_SIZE], struct buf *kept, struct error *err);

/* Describes in one line (to be freed) which files of a directory are missing; NULL if none are. */
char *context_notice(const struct context *context);

/* Binds the context in a session; the caller keeps ownership. */
int context_set(const struct context *context, struct session *s, const char *const *names,
    size_t name_count, session_done_fn *done, void *arg, struct error *err);

/* Sets the error of the cell that bound the context (NULL: none): ERROR_ARGUMENT if Python could
 * not parse it as its kind. */
int context_refused(
    const struct context *context, const struct cell_result *result, struct error *err);
