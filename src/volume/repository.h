/* volume/repository.h: the user's cache of remote repositories.
 *
 *   $XDG_CACHE_HOME/droste/repos/HASH/git    what was fetched from one URL, bare
 *                                    /lock   shared by readers, exclusive for fetching
 *                                    /busy exists during a fetch: if it is left over, the cache is
 *                                            rebuilt
 *                                    /url
 *
 * The directory may be removed whenever nothing is being staged from it.
 */
#pragma once

#include "base/error.h"
#include "volume/git.h"

enum { COMMIT_SIZE = 65 }; /* hexadecimal digits and the NUL */

struct repository {
    char *path;  /* the bare repository in the cache */
    int lock;    /* while it is open, nothing is fetched into the cache */
    int busy_at; /* its parent directory */
    char commit[COMMIT_SIZE];
};

/* ERROR_ARGUMENT unless the URL is https://, ssh:// or file:///, without a password, token or
 * invalid bytes, and the ref is the name of a branch or tag, or a commit id (NULL is fine). */
int repository_check(const char *url, const char *ref, struct error *err);
/* "droste" for "https://host/some/droste.git": the name of its directory. 65 bytes. */
void repository_name(const char *url, char out[65]);
/* Resolves the ref (a branch before a tag; NULL: the host's HEAD) to a commit and fetches it
 * into the cache if necessary. Asks the host unless the ref is a full commit id in the cache.
 * Commit ids may be abbreviated to 7 digits. Errors as in git_run; ERROR_NOT_FOUND: no such ref. */
int repository_open(const char *url, const char *ref, const struct git_bounds *bounds,
    struct repository *out, struct error *err);
void repository_close(struct repository *r);
/* Marks an incomplete cache, to be rebuilt the next time. */
void repository_distrust(const struct repository *r);
