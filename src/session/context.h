/* session/context.h: where a context comes from: a file, a directory, standard input, memory.
 *
 * A context is carried as a sealed memfd, so that a file of a gigabyte costs the host a copy in
 * page cache and hardly any memory of its own, and so that what the guest maps can never change
 * under it. The same context can be set in several sessions.
 */
#ifndef DROSTE_SESSION_CONTEXT_H
#define DROSTE_SESSION_CONTEXT_H

#include "base/error.h"
#include "base/hash.h"
#include "session/session.h"

struct context {
    enum value_kind kind;
    int fd;               /* sealed memfd; -1 for an empty one */
    size_t len;           /* bytes in it */
    char *name;           /* what else the guest calls it; NULL: nothing */
    char *source;         /* the path, "standard input" or "memory" */
    char *path;           /* whole, of a file or directory; NULL: it cannot be read again */
    uint64_t files;       /* of a directory */
    uint64_t left_out;    /* files of it that are not text, or could not be read */
    char *first_left_out; /* the path of one of them, and why; or NULL */
};

/* The kind of the context: "auto" (by the name: .json and .jsonl are parsed, the rest is text if it
 * is UTF-8, else bytes), "text", "bytes", "json", "jsonl". A directory becomes {path: text}, its
 * files in order of their paths, links not followed, version control directories passed over. */
int context_kind_parse(const char *word, enum value_kind *out, struct error *err);

struct context_filter {
    const char *const *include; /* of a directory only files that match one of these patterns; */
    size_t count;               /* glob(7), against the name or the path in it. None: all */
    uint64_t most;              /* bytes of the context; 0: CONTEXT_MOST */
    const int *interrupt;       /* a descriptor that, once readable, ends the reading; NULL: none */
};

/* Reads a regular file, a directory, or with "-" standard input, whatever that is; nothing else is opened for longer than a
 * look, and nothing waited for. `filter->most` is for all of it; `filter` may be NULL. ERROR_NOT_FOUND,
 * ERROR_PERMISSION, ERROR_ARGUMENT (nothing of it is text, it is a device or a pipe, or too large), ERROR_CANCELLED (by a signal, or `filter->interrupt`), ERROR_IO
 * (also: no room). */
int context_load(const char *path, enum value_kind kind, const struct context_filter *filter,
    struct context **out, struct error *err);
/* The errors of context_load that can be told without reading, but for those of the kind. */
int context_look(const char *path, const struct context_filter *filter, struct error *err);
int context_from_memory(
    const void *data, size_t len, enum value_kind kind, struct context **out, struct error *err);
void context_free(struct context *context);

/* The contexts of a session, in their order. */
struct contexts {
    struct context **items;
    size_t count;
};

/* Takes the context, also when it fails. */
int contexts_add(struct contexts *all, struct context *context, struct error *err);
void contexts_free(struct contexts *all);

/* The names of one in the guest (NULL: of what stands in its place): the first is `context` and `context_0`, the next `context_1`…; and its
 * own, if it has one. The first of `names` is what it is called before people. */
struct context_names {
    const char *names[3];
    size_t count;
    char numbered[24];
};
void context_names(const struct context *context, size_t index, struct context_names *out);

/* What is wrong with a name that a tool, or a value of the tools, has already. */
int context_hides_tool(const char *name, struct error *err);

/* What a record needs in order to have the same context again: its SHA-256, and the bytes of one
 * that cannot be read again, if they are no more than CONTEXT_KEPT_MAX. */
enum { CONTEXT_KEPT_MAX = 64 << 20 };
int context_keep(
    const struct context *context, char hash[HASH_TEXT_SIZE], struct buf *kept, struct error *err);

/* What of a directory is not in it, in a line (free); NULL where nothing is missing. */
char *context_notice(const struct context *context);

/* Binds it in a session; the context stays the caller's. */
int context_set(const struct context *context, struct session *s, const char *const *names,
    size_t name_count, session_done_fn *done, void *arg, struct error *err);

/* Why the cell that bound it (NULL: nothing) failed: ERROR_ARGUMENT where Python could not read it as
 * its kind. */
int context_refused(
    const struct context *context, const struct cell_result *result, struct error *err);

#endif
