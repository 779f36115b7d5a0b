/* env/local/cgroup_tree.h: the tree of control groups, version 2.
 *
 * It belongs to others (systemd, a container's runtime), and what is made in it is named so that what a killed host
 * has left is told from what is in use: droste-PID-START-SPACE-N. Everything is done on descriptors of directories, by
 * small reads and writes (cgroups(7)).
 */
#ifndef DROSTE_ENV_LOCAL_CGROUP_TREE_H
#define DROSTE_ENV_LOCAL_CGROUP_TREE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/os/owner.h"

#define GROUP_DIRECTORY (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)

/* Writes a file of a directory; -1 with errno. */
int group_put(int dir, const char *file, const char *text);
/* The beginning of it; "" where it cannot be read. */
void group_get(int dir, const char *file, char *out, size_t size);
/* Whether it is one of the words, between blanks. */
bool group_has_word(const char *text, const char *word);

/* Where this process is. */
struct group_place {
    int mount;   /* the directory where the tree is mounted */
    char *point; /* its path */
    char *path;  /* of the process's group below it, without a leading slash */
};

/* `root` is a descriptor of the root directory. The caller frees the place, also after an error:
 * ERROR_UNSUPPORTED, why there is none; ERROR_MEMORY. */
int group_find(int root, struct group_place *out, struct error *err);
void group_place_free(struct group_place *place);

/* Makes a directory of this host's; -1 with errno, and no name. */
int group_make(int parent, const struct owner *self, char *name, size_t size);
/* Removes one with its children. 0, or -1 where a process is still in it. */
int group_remove(int parent, const char *name);
/* Removes those of hosts that are gone; what is still busy is left to the next start. */
void group_sweep(int parent, const struct owner *self);

#endif
