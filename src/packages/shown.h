/* packages/shown.h: sets that sessions get while they run.
 *
 *   $XDG_CACHE_HOME/droste/packages/shown/RANDOM/lock    held while it is in use
 *                                               /ID      the files of a set, as hard links
 *
 * A sandbox's view of the host is made when it starts. One that may install packages therefore sees
 * a directory of its droste from the beginning, read-only, into which the host puts sets later. The
 * directory can be searched, but not listed: a session finds the sets whose id, the SHA-256 of
 * their contents, it was told.
 */
#pragma once

#include "packages/cache.h"

struct package_shown;
/* Makes an empty one, and removes those that killed processes have left. */
int package_shown_open(
    const struct package_cache *cache, struct package_shown **out, struct error *err);
/* Removes it; the sets stay in the cache. NULL is fine. */
void package_shown_close(struct package_shown *shown);
const char *package_shown_path(const struct package_shown *shown);
/* Adds the set's files, as PATH/ID, and a user of them. Threads may do so at the same time. */
int package_shown_add(
    struct package_shown *shown, const struct package_set *set, struct error *err);
/* Takes a user away; the last one's end removes the files. */
void package_shown_remove(struct package_shown *shown, const struct package_set *set);
