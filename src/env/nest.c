/* env/nest.c: see nest.h.
 *
 * Who has a nest holds a shared lock on it (flock). A host that is killed before its zygote can tidy up leaves an empty one, whose lock
 * is nobody's then: the next host removes it.
 */
#include "env/nest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/tree.h"
#include "jail/jail.h"

#define PREFIX "droste-"

enum {
    RANDOM = 6,
    TRIES = 10
}; /* letters of mkdtemp's; against somebody who takes it for left over */

struct nest {
    unsigned holders, made;
    bool nobody;
    char *path;
    int lock;
};

static bool is_name_of_nest(const char *name)
{
    return strncmp(name, PREFIX, sizeof PREFIX - 1) == 0 &&
           strlen(name) == sizeof PREFIX - 1 + RANDOM;
}

/* Only what is empty: what is not, somebody may still want. */
static void sweep(const char *tmp)
{
    struct dirent *entry;
    DIR *directory = opendir(tmp);
    while (directory && (entry = readdir(directory))) {
        if (!is_name_of_nest(entry->d_name))
            continue;
        cleanup_fd int fd = openat(dirfd(directory), entry->d_name,
            O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        struct stat st;
        bool ours = fd >= 0 && fstat(fd, &st) == 0 &&
                    (st.st_uid == geteuid() || (geteuid() == 0 && st.st_uid == JAIL_NOBODY));
        if (ours && flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(directory), entry->d_name, AT_REMOVEDIR);
    }
    if (directory)
        closedir(directory);
}

/* A directory of its own, and its lock; -1 and errno. */
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

static int give(const struct nest *nest, const char *path, uid_t uid, struct error *err)
{
    if (!nest->nobody || chown(path, uid, uid) == 0)
        return 0;
    if (errno == EINVAL) /* in a user namespace that has no such id */
        return error_set(err, ERROR_UNSUPPORTED,
            "this root has no other user to run the guest as; run as an ordinary user");
    return error_set_errno(err, ERROR_ENVIRONMENT, "giving the guest its directory");
}

int nest_new(bool nobody, struct nest **out, struct error *err)
{
    const char *set = getenv("TMPDIR"), *tmp = set && set[0] == '/' ? set : "/tmp";
    struct buf path = { 0 };
    struct nest *nest = calloc(1, sizeof *nest);
    buf_printf(&path, "%s/" PREFIX "XXXXXX", tmp);
    char *made = buf_steal(&path);
    sweep(tmp);
    int lock = nest && made ? make_locked(made) : -1;
    if (lock < 0) {
        int rc = nest && made
                     ? error_set_errno(err, ERROR_ENVIRONMENT, "making a temporary directory")
                     : error_memory(err);
        free(nest);
        free(made);
        return rc;
    }
    *nest = (struct nest){ .holders = 1, .nobody = nobody, .path = made, .lock = lock };
    int rc = give(nest, made, JAIL_NOBODY, err);
    if (rc == 0 && nobody &&
        chmod(made, 0711) < 0) /* each guest gets to its own, which is another user's */
        rc = error_set_errno(err, ERROR_ENVIRONMENT, "giving the guest its directory");
    if (rc < 0)
        nest_release(nest);
    else
        *out = nest;
    return rc;
}

struct nest *nest_hold(struct nest *nest)
{
    nest->holders++;
    return nest;
}

void nest_release(struct nest *nest)
{
    if (!nest || --nest->holders > 0)
        return;
    tree_remove(AT_FDCWD, nest->path);
    close_fd(&nest->lock);
    free(nest->path);
    free(nest);
}

const char *nest_path(const struct nest *nest)
{
    return nest->path;
}

int nest_add(struct nest *nest, uid_t uid, char **path, struct error *err)
{
    struct buf text = { 0 };
    buf_printf(&text, "%s/%u", nest->path, ++nest->made);
    cleanup_free char *made = buf_steal(&text);
    if (!made)
        return error_memory(err);
    if (mkdir(made, 0700) < 0)
        return error_set_errno(err, ERROR_ENVIRONMENT, "making a temporary directory");
    int rc = give(nest, made, uid, err);
    if (rc < 0)
        tree_remove(AT_FDCWD, made);
    else
        *path = steal(&made);
    return rc;
}
