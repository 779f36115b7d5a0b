/* volume/workspace.h: files that are staged in a sandbox before its session begins: a repository's,
 * and files of this machine.
 *
 *   REPOSITORY/   as named in the URL
 *   context/      the paths, under their last components
 *
 * All are copies: guests' changes reach neither the cache nor the machine, and disappear with the
 * last holder of the workspace.
 */
#pragma once

#include "base/list.h"
#include "volume/git.h"
#include "volume/repository.h"
#include "volume/volume.h"

/* What was staged. Texts are NULL without a repository. */
struct staged {
    char *repo; /* its directory in the workspace */
    char *url, *ref;
    char commit[COMMIT_SIZE];  /* "": none */
    struct list paths;         /* in the workspace, in the given order */
    droste_volume_count count; /* in total; `left_out`: links and devices, which are not copied */
};

struct workspace;
/* Creates an empty one below the root of volumes. */
int workspace_new(const char *root, const struct volume_limits *limits, struct workspace **out,
    struct error *err);
/* Filling it stops with ERROR_CANCELLED once this descriptor is readable; -1: never. */
void workspace_interrupt_by(struct workspace *w, int fd);
struct workspace *workspace_hold(struct workspace *w);
/* NULL is fine. */
void workspace_release(struct workspace *w);
/* repository_open and checkout. */
int workspace_add_repository(struct workspace *w, const char *url, const char *ref,
    const struct git_bounds *bounds, struct error *err);
/* Adds a file or directory of this machine. ERROR_NOT_FOUND; ERROR_ARGUMENT if the name is
 * taken. */
int workspace_add_path(struct workspace *w, const char *path, struct error *err);

struct volume *workspace_volume(const struct workspace *w); /* borrowed */
const struct staged *workspace_staged(const struct workspace *w);
/* {"url":…,"ref":…,"commit":…} or null. */
void workspace_put_repo(const struct workspace *w, struct buf *json);
