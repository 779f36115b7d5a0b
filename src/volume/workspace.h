/* volume/workspace.h: what is put into a sandbox before its session begins: the files of a repository, and
 * files of this machine.
 *
 *   REPOSITORY/   as named in the URL
 *   context/      the paths, under their last names
 *
 * All are copies: what guests do to them reaches neither the cache nor the machine, and is gone with the last
 * who holds the workspace.
 */
#ifndef DROSTE_VOLUME_WORKSPACE_H
#define DROSTE_VOLUME_WORKSPACE_H

#include "base/list.h"
#include "volume/git.h"
#include "volume/repository.h"
#include "volume/volume.h"

/* What is in it. Texts are NULL where there is no repository. */
struct staged {
    char *repo; /* its directory in the workspace */
    char *url, *ref;
    char commit[COMMIT_SIZE]; /* "": none */
    struct list paths;        /* in the workspace, in the order in which they were given */
    struct volume_count
        count; /* of all; `left_out`: links of paths, which are not copied, and devices */
};

struct workspace;
/* An empty one below the root of volumes. */
int workspace_new(const char *root, const struct volume_limits *limits, struct workspace **out,
    struct error *err);
/* Filling it ends with ERROR_CANCELLED once this descriptor is readable; -1: nothing ends it. */
void workspace_interrupt_by(struct workspace *w, int fd);
struct workspace *workspace_hold(struct workspace *w);
/* NULL is fine. */
void workspace_release(struct workspace *w);
/* As repository_open, and checkout. */
int workspace_add_repository(struct workspace *w, const char *url, const char *ref,
    const struct git_bounds *bounds, struct error *err);
/* A file or directory of this machine. ERROR_NOT_FOUND, ERROR_ARGUMENT where another one has the same name. */
int workspace_add_path(struct workspace *w, const char *path, struct error *err);

struct volume *workspace_volume(const struct workspace *w); /* borrowed */
const struct staged *workspace_staged(const struct workspace *w);
/* {"url":…,"ref":…,"commit":…} or null. */
void workspace_put_repo(const struct workspace *w, struct buf *json);

#endif
