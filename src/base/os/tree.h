/* base/os/tree.h: trees of files that strangers made: walked, and removed.
 *
 * Paths in them may be longer than any call takes and deeper than descriptors last; what is in them may
 * be moved while it is looked at. Links are never followed, and a walk holds one directory at a time. One
 * that its owner has closed is opened for as long as the walk is in it.
 */
#ifndef DROSTE_BASE_OS_TREE_H
#define DROSTE_BASE_OS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "base/error.h"

/* Removes what has this name, with all that is in it. False if some of it is left, with errno. */
bool tree_remove(int directory, const char *name);
/* The same where somebody may still be putting something into it: it ends after about so many entries. */
bool tree_remove_some(int directory, const char *name, size_t most);

enum tree_visit {
    TREE_ENTRY, /* anything; of a directory, before it is entered */
    TREE_ENTER, /* a directory: `at` is now the directory itself */
    TREE_LEAVE, /* all of it was visited; `at` is the directory itself, once more */
};

struct tree_place {
    int at; /* the directory that it is in */
    const char *name;
    const struct stat *st; /* of ENTRY */
    unsigned depth;        /* directories above it, below the top */
};

/* A negative return ends the walk and is its result. Of an ENTRY that is a directory, 1: it is not
 * entered. */
typedef int tree_fn(
    void *arg, enum tree_visit visit, const struct tree_place *place, struct error *err);

struct tree_walk;
/* All below a directory, which is the caller's. */
int tree_walk_open(int top, tree_fn *fn, void *arg, struct tree_walk **out, struct error *err);
/* Visits about so many entries. 1: there are more, 0: that was all. Names that vanish meanwhile are passed
 * over; ERROR_IO where a directory cannot be read, or is elsewhere when it is left (sys is ESTALE). */
int tree_walk_step(struct tree_walk *walk, size_t entries, struct error *err);
/* NULL is fine. */
void tree_walk_close(struct tree_walk *walk);

/* The whole walk. */
int tree_walk(int top, tree_fn *fn, void *arg, struct error *err);

#endif
