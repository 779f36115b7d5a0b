/* volume/repository.h: repositories of the network, in a cache of this user's.
 *
 *   $XDG_CACHE_HOME/droste/repos/HASH/git    what was fetched of one URL, bare
 *                                    /lock   shared by who reads, alone with who fetches
 *                                    /busy   is there while something is fetched: a cache in which it is left
 *                                            is made anew
 *                                    /url
 *
 * The directory may be removed at any time that nobody stages from it.
 */
#ifndef DROSTE_VOLUME_REPOSITORY_H
#define DROSTE_VOLUME_REPOSITORY_H

#include "base/error.h"
#include "volume/git.h"

enum { COMMIT_SIZE = 65 }; /* hexadecimal digits and the NUL */

struct repository {
    char *path;  /* of the bare repository in the cache */
    int lock;    /* as long as it is open nobody fetches into it */
    int busy_at; /* the directory around it */
    char commit[COMMIT_SIZE];
};

/* ERROR_ARGUMENT unless it is https://, ssh:// or file:///, without a password or token and without bytes that no
 * URL has; and unless the ref is the name of a branch or tag, or a commit id (NULL is fine). */
int repository_check(const char *url, const char *ref, struct error *err);
/* "droste" of "https://host/some/droste.git": a name for its directory. 65 bytes. */
void repository_name(const char *url, char out[65]);
/* Finds the commit that the ref is now (a branch before a tag; NULL: the host's HEAD) and has it in the
 * cache: asks the host unless the ref is a whole commit id that is there, and fetches only what is not.
 * Commit ids may be shortened to 7 digits. The errors are those of git_run; ERROR_NOT_FOUND: no such ref. */
int repository_open(const char *url, const char *ref, const struct git_bounds *bounds,
    struct repository *out, struct error *err);
void repository_close(struct repository *r);
/* The cache lacks something: it is made anew the next time. */
void repository_distrust(const struct repository *r);

#endif
