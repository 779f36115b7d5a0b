/* env/common/idmap.h: idmapped mounts, which show a directory's files as another user's.
 *
 * Sandboxes that share a volume run as different users, but its files on disk belong to one user.
 * Each sandbox gets an idmapped mount (mount_setattr(2), "ID-mapped mounts") that translates the
 * owner's id to the sandbox's.
 */
#pragma once

#include <sys/types.h>

/* A detached mount of the directory and everything mounted below it: a descriptor to close, for
 * move_mount(2). Files that belong to `owner` (user and group) appear as `user`'s; all other ids
 * map to nobody. The mount is nosuid and nodev. -1 with errno: EINVAL if the file system does not
 * support idmapped mounts (no file system before Linux 5.12, tmpfs from 6.3 on), EPERM without
 * root's capabilities. */
int idmap_mount(int directory, uid_t owner, uid_t user);
