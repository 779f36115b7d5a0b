/* base/os/beneath.h: opening files below a directory that strangers write to.
 *
 * Nothing on the way may be a link, nor lead out of the directory (openat2(2), Linux 5.6): what a
 * stranger puts there decides about nothing but itself.
 */
#ifndef DROSTE_BASE_OS_BENEATH_H
#define DROSTE_BASE_OS_BENEATH_H

#include <dirent.h>
#include <stdbool.h>
#include <sys/types.h>

/* As openat(2), with O_CLOEXEC, for a relative path of any number of names; "." is the directory itself.
 * ELOOP: a link is in the way; EXDEV: it would lead out. A FIFO is opened without waiting. */
int open_beneath(int directory, const char *path, int flags, mode_t mode);
/* One name, which is no link, also where its owner has forbidden himself to open it: its mode is changed
 * for this moment. What stands before the name, if anything does, must be the caller's own. */
int open_anyway(int directory, const char *name, int flags);
/* A directory to be listed, whatever its mode; NULL with errno, ENOTDIR and ELOOP where it is none. */
DIR *open_listing(int directory, const char *name);
/* The next name but "." and ".."; NULL at the end. */
const char *next_listed(DIR *listing);

#endif
