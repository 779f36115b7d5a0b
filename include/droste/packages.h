/* droste/packages.h: sets of Python packages, which sessions share.
 *
 * The settings "packages" and "requirements" say what a set has. The first session that needs it
 * builds it; these functions build it before, list what is on disk, and remove it.
 */
#ifndef DROSTE_PACKAGES_H
#define DROSTE_PACKAGES_H

#include "droste/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *id, *path, *python;
    const char *packages; /* JSON: ["NAME==VERSION", …] */
    unsigned long long bytes, files;
    long long made, used; /* seconds since 1970 */
    int in_use, damaged;
} droste_package_set;
/* A result other than 0 ends the listing. */
typedef int droste_packages_fn(void *arg, const droste_package_set *set);

/* Builds the set of the settings unless it exists, and waits for that. `again`: resolves them once
 * more, so that newer versions are found. *path is where its packages are, valid until droste_free
 * or the next build; it may be NULL. */
DROSTE_API int droste_packages_build(droste *d, int again, const char **path, droste_error *err);
/* The sets on disk, the latest used first. */
DROSTE_API int droste_packages_list(
    droste *d, droste_packages_fn *fn, void *arg, droste_error *err);
/* By its id, or the beginning of it. ERROR_ARGUMENT while it is in use. */
DROSTE_API int droste_packages_remove(droste *d, const char *id, droste_error *err);
/* Removes the sets that nothing has used for so many seconds, damaged ones, and what killed builds
 * have left. *count and *bytes, which may be NULL, are what was removed. */
DROSTE_API int droste_packages_gc(
    droste *d, double seconds, unsigned *count, unsigned long long *bytes, droste_error *err);

#ifdef __cplusplus
}
#endif

#endif
