/* volume/owner.c: changes the owner of a volume's files.
 *
 * A guest started by root is another user at the levels that isolate, and root without capabilities
 * at `process`; neither could access files of the other. So all files get the next guest's owner.
 * The data directory changes last: if the process is killed meanwhile, the next one starts again.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/tree.h"
#include "volume/internal.h"

/* A file with several links may have some elsewhere: it keeps its owner. */
static int give_entry(
    void *arg, enum tree_visit visit, const struct tree_place *place, struct error *err)
{
    uid_t uid = *(const uid_t *)arg;
    bool whole = visit == TREE_ENTRY && place->st->st_uid != uid &&
                 (S_ISDIR(place->st->st_mode) || place->st->st_nlink == 1);
    if (whole && fchownat(place->at, place->name, uid, uid, AT_SYMLINK_NOFOLLOW) < 0 &&
        errno != ENOENT)
        return error_set_errno(
            err, ERROR_IO, "changing the owner of its files to the guest's user");
    return 0;
}

/* With the exclusive lock. */
static int owner_give_all(struct volume *v, uid_t uid, struct error *err)
{
    int rc = tree_walk(v->data, give_entry, &uid, err);
    if (rc == 0 && fchown(v->data, uid, uid) < 0)
        rc = error_set_errno(err, ERROR_IO, "changing the owner of its files to the guest's user");
    if (rc == 0)
        v->owner = uid;
    return rc;
}

/* The previous user must not be writing, so this takes the exclusive lock for a moment.
 * flock(2): a failed attempt to convert a lock may lose the lock held before. */
int volume_give(struct volume *v, uid_t uid, struct error *err)
{
    if (v->owner == uid)
        return 0;
    int rc = flock(v->lock, LOCK_EX | LOCK_NB) == 0
                 ? owner_give_all(v, uid, err)
                 : error_set(err, ERROR_ARGUMENT,
                       "sessions whose guests run as another user are using it (as root's do, at "
                       "isolation `process`); wait until they have ended");
    if (flock(v->lock, LOCK_SH | LOCK_NB) < 0 && rc == 0)
        rc = error_set(err, ERROR_ARGUMENT, "another process is changing all of it; try again");
    return rc < 0 ? error_wrap(err, "volume '%s'", v->name) : 0;
}
