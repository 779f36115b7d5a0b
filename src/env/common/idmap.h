/* env/common/idmap.h: a directory of one owner, mounted so that another user is its owner there.
 *
 * Several sandboxes that write to one volume are users of their own, and its files stay those of
 * one: each has an idmapped mount of it (mount_setattr(2), "ID-mapped mounts"), in which the
 * owner's id is the sandbox's.
 */
#ifndef DROSTE_ENV_COMMON_IDMAP_H
#define DROSTE_ENV_COMMON_IDMAP_H

#include <sys/types.h>

/* A mount of the directory, and of what is mounted below it, that is attached nowhere yet: a
 * descriptor to close, for move_mount(2). What `owner` has on disk, user and group, belongs to
 * `user` in it; ids of others are nobody's there. Nothing in it runs with somebody else's rights or
 * is a device. -1 with errno: EINVAL where the file system cannot do it (before Linux 5.12 none,
 * tmpfs from 6.3 on), EPERM without root's powers. */
int idmap_mount(int directory, uid_t owner, uid_t user);

#endif
