/* base/os/tree.h: walks and removes untrusted directory trees.
 *
 * Their paths may be longer than any call accepts and deeper than there are descriptors, and may be
 * moved during the walk. Links are never followed, and a walk keeps one directory open at a time. A
 * directory whose mode forbids entering gets another mode while the walk is in it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "base/error.h"

/* Removes this entry with all its contents. False, with errno, if something is left. */
bool tree_remove(int directory, const char *name);
/* The same if another process may still be adding to it: stops after about `most` entries. */
bool tree_remove_some(int directory, const char *name, size_t most);

enum tree_visit {
    TREE_ENTRY, /* anything; of a directory, before it is entered */
    TREE_ENTER, /* a directory: `at` is now the directory itself */
    TREE_LEAVE, /* all of it was visited; `at` is the directory itself, once more */
};

struct tree_place {
    int at;           /* the directory that it is in */
    const char *path; /* of that directory, each component followed by '/'; "" at the top */
    const char *name;
    const struct stat *st; /* of ENTRY */
    unsigned depth;        /* directories above it, below the top */
};

/* A negative return ends the walk and is its result. For an ENTRY that is a directory, 1 skips
 * its contents. */
typedef int tree_fn(
    void *arg, enum tree_visit visit, const struct tree_place *place, struct error *err);

struct tree_walk;
/* Walks everything below a directory, which the caller owns. */
int tree_walk_open(int top, tree_fn *fn, void *arg, struct tree_walk **out, struct error *err);
/* Visits about `entries` entries. Returns 1 if there are more, 0 at the end. Names that vanish
 * meanwhile are skipped; ERROR_IO if a directory cannot be read, or was moved (sys is ESTALE). */
int tree_walk_step(struct tree_walk *walk, size_t entries, struct error *err);
/* NULL is fine. */
void tree_walk_close(struct tree_walk *walk);

/* The whole walk in one step. */
int tree_walk(int top, tree_fn *fn, void *arg, struct error *err);
