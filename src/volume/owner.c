/* volume/owner.c: whose the files of a volume are.
 *
 * A guest of root's is another user at the levels that are a wall, and root itself, without its powers, at
 * `process`: files that one has made would be closed to the other. So they all become those of the guest that
 * is to come. The data themselves come last: a process that is killed meanwhile has not done it yet.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/tree.h"
#include "volume/internal.h"

/* What has several names may have some that are elsewhere: it stays whose it is. */
static int give_entry(
    void *arg, enum tree_visit visit, const struct tree_place *place, struct error *err)
{
    uid_t uid = *(const uid_t *)arg;
    bool whole = visit == TREE_ENTRY && place->st->st_uid != uid &&
                 (S_ISDIR(place->st->st_mode) || place->st->st_nlink == 1);
    if (whole && fchownat(place->at, place->name, uid, uid, AT_SYMLINK_NOFOLLOW) < 0 &&
        errno != ENOENT)
        return error_set_errno(err, ERROR_IO, "giving its files to the guest's user");
    return 0;
}

/* With the lock alone. */
static int owner_give_all(struct volume *v, uid_t uid, struct error *err)
{
    int rc = tree_walk(v->data, give_entry, &uid, err);
    if (rc == 0 && fchown(v->data, uid, uid) < 0)
        rc = error_set_errno(err, ERROR_IO, "giving its files to the guest's user");
    if (rc == 0)
        v->owner = uid;
    return rc;
}

/* Nobody may be writing as the user of before: for this moment the lock is this one's alone. flock(2): who asks
 * for that in vain has lost the lock that he had. */
int volume_give(struct volume *v, uid_t uid, struct error *err)
{
    if (v->owner == uid)
        return 0;
    int rc = flock(v->lock, LOCK_EX | LOCK_NB) == 0
                 ? owner_give_all(v, uid, err)
                 : error_set(err, ERROR_ARGUMENT,
                       "it is in use by sessions whose guests are another user (root's are, at "
                       "isolation `process`); wait until they have ended");
    if (flock(v->lock, LOCK_SH | LOCK_NB) < 0 && rc == 0)
        rc = error_set(err, ERROR_ARGUMENT, "it is being changed as a whole; try again");
    return rc < 0 ? error_wrap(err, "volume '%s'", v->name) : 0;
}
