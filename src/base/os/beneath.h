/* base/os/beneath.h: opens files below an untrusted directory.
 *
 * No component may be a link or lead out of the directory (openat2(2), Linux 5.6), so that its
 * contents cannot redirect the host.
 */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <sys/types.h>

/* As openat(2), with O_CLOEXEC, for a relative path; "." is the directory itself. ELOOP: a
 * component is a link; EXDEV: it would lead out. Never waits for a FIFO. */
int open_beneath(int directory, const char *path, int flags, mode_t mode);
/* Opens one name that is not a link, even if its mode forbids that: the mode is changed for a
 * moment. Preceding components, if any, must belong to the caller. */
int open_anyway(int directory, const char *name, int flags);
/* Opens a directory for listing, whatever its mode; NULL with errno, ENOTDIR or ELOOP if it is
 * none. */
DIR *open_listing(int directory, const char *name);
/* The next name other than "." and ".."; NULL at the end, or without a listing. */
const char *next_listed(DIR *listing);

static inline void cleanup_listing_fn(DIR **listing)
{
    if (*listing)
        closedir(*listing);
}
#define cleanup_listing __attribute__((cleanup(cleanup_listing_fn)))
