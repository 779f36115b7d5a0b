/* env/local/cgroup_tree.h: files and directories of the cgroup trees.
 *
 * Other software manages the tree, so names of Droste's directories identify their host:
 * droste-PID-START-SPACE-N. All access is by small reads and writes relative to directory
 * descriptors (cgroups(7)).
 */
#pragma once

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/os/owner.h"

#define GROUP_DIRECTORY (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)

/* Writes a file in a directory; -1 with errno. */
int group_put(int dir, const char *file, const char *text);
/* True if the text contains this word, separated by blanks or commas. */
bool group_has_word(const char *text, const char *word);

/* The cgroup of this process. */
struct cgroup_location {
    int mount;   /* the mount point of the tree */
    char *point; /* its path */
    char *path;  /* of the process's cgroup below it, without a leading slash */
};

/* In the tree of version 2 (NULL), or in that of version 1 with this controller. `root` is a
 * descriptor of the root directory. The caller frees the contents of `out`, also after an error:
 * ERROR_UNSUPPORTED (no such tree, with the reason), ERROR_MEMORY. */
int group_find(int root, const char *controller, struct cgroup_location *out, struct error *err);
void cgroup_location_free(struct cgroup_location *place);

/* Creates a directory with this host's name; -1 with errno, and an empty name. */
int group_make(int parent, const struct owner *self, char *name, size_t size);
/* Removes a directory and its children. 0, or -1 if a process is still in it. */
int group_remove(int parent, const char *name);
/* Removes directories of dead hosts; busy ones are left to the next start. */
void group_sweep(int parent, const struct owner *self);
