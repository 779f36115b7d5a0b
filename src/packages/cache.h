/* packages/cache.h: package sets on disk, which sessions share.
 *
 *   $XDG_CACHE_HOME/droste/packages/lock            held by the one build at a time
 *                                  /requests/HASH   the set that a request was resolved to
 *                                  /sets/ID/site    the packages, as in a site-packages directory
 *                                          /set.json
 *                                          /lock    shared by its users, exclusive for removal
 *                                  /building        staging; whatever a killed build leaves there,
 *                                                   the next holder of the lock removes
 *
 * An ID is the SHA-256 of the interpreter's facts and of all names and contents, computed by the
 * host: code that runs in a build cannot pass its result off as another set. The contents are
 * untrusted: the host copies, hashes and removes them, and never imports or executes them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/hash.h"

struct package_cache;
/* Creates it. ERROR_PERMISSION unless it is this user's, and no other user may write to it. */
int package_cache_open(struct package_cache **out, struct error *err);
/* NULL is fine. */
void package_cache_close(struct package_cache *cache);
/* The directory for staging. */
const char *package_cache_building(const struct package_cache *cache);

/* The directory of shown.h, and its path, which the caller closes and frees. */
int package_cache_open_shown(
    const struct package_cache *cache, int *out, char **path, struct error *err);

/* A note of the cache about something else than a set, such as an interpreter: one short text by
 * its hash. *out is NULL if there is none; the caller frees it. */
int package_cache_read_note(
    struct package_cache *cache, const char hash[HASH_TEXT_SIZE], char **out, struct error *err);
int package_cache_write_note(struct package_cache *cache, const char hash[HASH_TEXT_SIZE],
    const char *text, struct error *err);

/* Waits for the lock, which the cache then holds until it is closed, and removes what killed builds
 * have left. `cancelled` is asked from time to time; `waits` is called once if it takes longer. */
int package_cache_lock(struct package_cache *cache, bool (*cancelled)(void *arg),
    void (*waits)(void *arg), void *arg, struct error *err);

/* A set that cannot be removed while it is held. */
struct package_set;
/* *out is NULL if the request is not resolved yet, or its set is damaged. */
int package_cache_find(struct package_cache *cache, const char request[HASH_TEXT_SIZE],
    struct package_set **out, struct error *err);
/* The same by ID, or its unambiguous beginning. */
int package_cache_find_id(
    struct package_cache *cache, const char *id, struct package_set **out, struct error *err);
/* Takes a complete tree, the directory `staged` of the staging directory: normalizes its modes,
 * names it by its contents, and lets the request resolve to it. With the lock. */
int package_cache_publish(struct package_cache *cache, const char request[HASH_TEXT_SIZE],
    const char *staged, const char *facts, struct package_set **out, struct error *err);
/* NULL is fine. */
void package_set_drop(struct package_set *set);
const char *package_set_id(const struct package_set *set);
/* The path of its packages. */
const char *package_set_site(const struct package_set *set);
/* Their names and versions, as JSON: ["NAME==VERSION", …] */
const char *package_set_packages(const struct package_set *set);

/* What is known about a set. Texts are valid during the call. */
struct package_set_facts {
    const char *id, *site, *python;
    const char *packages; /* JSON: ["NAME==VERSION", …] */
    uint64_t bytes, files;
    int64_t made, used; /* seconds since 1970 */
    bool in_use, damaged;
};
typedef int package_cache_fn(void *arg, const struct package_set_facts *facts, struct error *err);
/* Visits all sets, the latest used first. A negative return ends it. */
int package_cache_list(
    struct package_cache *cache, package_cache_fn *fn, void *arg, struct error *err);
/* ERROR_ARGUMENT while it is in use; ERROR_NOT_FOUND. With the lock. */
int package_cache_remove(struct package_cache *cache, const char *id, struct error *err);

/* The error for a full disk, for a build that says so. */
int package_cache_disk_full(const struct package_cache *cache, struct error *err);
