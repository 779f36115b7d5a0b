/* env/common/scratch_dir.c: creates and removes scratch directories.
 *
 * Each holder has a shared flock on the directory. A host that is killed before its zygote can tidy
 * up leaves an empty, unlocked directory, which the next host removes.
 */
#include "env/common/scratch_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/beneath.h"
#include "base/os/tree.h"
#include "jail/jail.h"

#define PREFIX "droste-"

enum {
    RANDOM = 6,
    TRIES = 10
}; /* added by mkdtemp; the lock keeps another host from removing it as left over */

struct scratch_dir {
    unsigned holders, made;
    bool nobody;
    char *path;
    int lock;
};

static bool is_scratch_dir_name(const char *name)
{
    return strncmp(name, PREFIX, sizeof PREFIX - 1) == 0 &&
           strlen(name) == sizeof PREFIX - 1 + RANDOM;
}

/* Removes only empty directories: the contents of others may still be wanted. */
static void scratch_dir_sweep(const char *tmp)
{
    cleanup_listing DIR *listing = opendir(tmp);
    for (const char *name; (name = next_listed(listing));) {
        if (!is_scratch_dir_name(name))
            continue;
        cleanup_fd int fd = openat(
            dirfd(listing), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        struct stat st;
        bool ours = fd >= 0 && fstat(fd, &st) == 0 &&
                    (st.st_uid == geteuid() || (geteuid() == 0 && st.st_uid == JAIL_NOBODY));
        if (ours && flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(listing), name, AT_REMOVEDIR);
    }
}

/* Creates a directory and locks it; -1 with errno. */
static int make_locked(char *path)
{
    for (int i = 0; i < TRIES; i++) {
        struct stat st;
        memset(path + strlen(path) - RANDOM, 'X', RANDOM);
        if (!mkdtemp(path))
            return -1;
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0)
            return fd;
        close_fd(&fd);
        rmdir(path);
    }
    errno = EEXIST;
    return -1;
}

static int scratch_dir_give(
    const struct scratch_dir *scratch_dir, const char *path, uid_t uid, struct error *err)
{
    if (!scratch_dir->nobody || chown(path, uid, uid) == 0)
        return 0;
    if (errno == EINVAL) /* a user namespace without this id */
        return error_set(err, ERROR_UNSUPPORTED,
            "this user namespace has no other user to run the guest as; run as an ordinary user");
    return error_set_errno(err, ERROR_ENVIRONMENT, "making the guest the owner of its directory");
}

int scratch_dir_new(bool nobody, struct scratch_dir **out, struct error *err)
{
    const char *set = getenv("TMPDIR"), *tmp = set && set[0] == '/' ? set : "/tmp";
    struct buf path = { 0 };
    struct scratch_dir *scratch_dir = calloc(1, sizeof *scratch_dir);
    buf_printf(&path, "%s/" PREFIX "XXXXXX", tmp);
    char *made = buf_steal(&path);
    scratch_dir_sweep(tmp);
    int lock = scratch_dir && made ? make_locked(made) : -1;
    if (lock < 0) {
        int rc = scratch_dir && made
                     ? error_set_errno(err, ERROR_ENVIRONMENT, "making a temporary directory")
                     : error_memory(err);
        free(scratch_dir);
        free(made);
        return rc;
    }
    *scratch_dir =
        (struct scratch_dir){ .holders = 1, .nobody = nobody, .path = made, .lock = lock };
    int rc = scratch_dir_give(scratch_dir, made, JAIL_NOBODY, err);
    if (rc == 0 && nobody &&
        chmod(made, 0711) < 0) /* each guest, a different user, must reach its own */
        rc = error_set_errno(err, ERROR_ENVIRONMENT, "making the guest the owner of its directory");
    if (rc < 0)
        scratch_dir_release(scratch_dir);
    else
        *out = scratch_dir;
    return rc;
}

struct scratch_dir *scratch_dir_hold(struct scratch_dir *scratch_dir)
{
    scratch_dir->holders++;
    return scratch_dir;
}

void scratch_dir_release(struct scratch_dir *scratch_dir)
{
    if (!scratch_dir || --scratch_dir->holders > 0)
        return;
    tree_remove(AT_FDCWD, scratch_dir->path);
    close_fd(&scratch_dir->lock);
    free(scratch_dir->path);
    free(scratch_dir);
}

const char *scratch_dir_path(const struct scratch_dir *scratch_dir)
{
    return scratch_dir->path;
}

int scratch_dir_add(struct scratch_dir *scratch_dir, uid_t uid, char **path, struct error *err)
{
    struct buf text = { 0 };
    buf_printf(&text, "%s/%u", scratch_dir->path, ++scratch_dir->made);
    cleanup_free char *made = buf_steal(&text);
    if (!made)
        return error_memory(err);
    if (mkdir(made, 0700) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "making a temporary directory");
    int rc = scratch_dir_give(scratch_dir, made, uid, err);
    if (rc < 0)
        tree_remove(AT_FDCWD, made);
    else
        *path = steal(&made);
    return rc;
}
