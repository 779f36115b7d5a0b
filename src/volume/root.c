/* volume/root.c: the directory of all volumes, including sessions' (ephemeral.c). Names that begin
 * with '.' are not volumes; see open.c.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/beneath.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/text.h"
#include "base/os/tree.h"
#include "volume/internal.h"

enum { WAIT_MS = 10000 }; /* for locks that are held only briefly */

int volume_root(const char *configured, char **out, struct error *err)
{
    struct buf path = { 0 };
    cleanup_free char *before = NULL;
    int rc = 0;
    bool whole = configured && configured[0] == '/';
    if (!configured)
        rc = file_data_home(&before, err);
    else if (!whole && !(before = getcwd(NULL, 0)))
        rc = error_set_errno(err, ERROR_IO, "finding the working directory");
    if (rc < 0)
        return rc;
    buf_printf(&path, "%s%s%s", whole ? "" : before, whole ? "" : "/",
        configured ? configured : "volumes");
    *out = buf_steal(&path);
    return *out ? 0 : error_memory(err);
}

int root_failed(const char *root, const char *what, struct error *err)
{
    return error_set_errno(err, errno == EACCES || errno == EPERM ? ERROR_PERMISSION : ERROR_IO,
        "%s the volumes at %.100s (--volume-root says where they are)", what, root);
}

/* A guest of root is another user, who must reach its volume but not list the directories above
 * it. */
mode_t passable(void)
{
    return geteuid() == 0 ? 0711 : 0700;
}

int root_make(const char *root, struct error *err)
{
    int rc = file_make_directories(root, err);
    if (rc == 0 && chmod(root, passable()) < 0 && errno != EPERM)
        return root_failed(root, "making", err);
    return rc;
}

/* Locks the root for creating and removing. -1 with errno. */
int root_lock(int root)
{
    cleanup_fd int fd =
        openat(root, ".lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0 || lock_within(fd, LOCK_EX, WAIT_MS) < 0)
        return -1;
    return steal_fd(&fd);
}

static bool is_on_its_way(const char *name)
{
    return strncmp(name, ".new-", 5) == 0 || strncmp(name, ".gone-", 6) == 0;
}

/* True for a session's volume that no process locks any more. */
static bool is_left(int root, const char *name)
{
    if (strncmp(name, EPHEMERAL_PREFIX, strlen(EPHEMERAL_PREFIX)) != 0)
        return false;
    cleanup_fd int directory = open_beneath(root, name, O_RDONLY | O_DIRECTORY, 0);
    cleanup_fd int lock = directory < 0 ? -1 : open_beneath(directory, "lock", O_RDWR, 0);
    return lock < 0 || flock(lock, LOCK_EX | LOCK_NB) == 0;
}

/* The root is locked. */
void root_sweep(int root)
{
    cleanup_listing DIR *listing = open_listing(root, ".");
    for (const char *name; (name = next_listed(listing));)
        if (is_on_its_way(name) || is_left(root, name))
            tree_remove(root, name);
}

int names_in(int directory, struct list *names, struct error *err)
{
    int rc = 0;
    cleanup_listing DIR *listing = open_listing(directory, ".");
    if (!listing)
        return error_set_errno(err, ERROR_IO, "listing a directory");
    for (const char *name; rc == 0 && (name = next_listed(listing));)
        if (text_is_name(name))
            rc = list_add(names, name, err);
    list_sort(names);
    return rc;
}

/* The root itself may be a link, because it belongs to the user. */
int volume_names(const char *root, struct list *names, struct error *err)
{
    cleanup_fd int directory = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return errno == ENOENT ? 0 : root_failed(root, "listing", err);
    return names_in(directory, names, err);
}

uid_t owner_of_new(void)
{
    return geteuid() == 0 ? VOLUME_GUEST : geteuid();
}

/* EINVAL: in a user namespace without other users. */
int give_to_guest(int directory, const char *name)
{
    if (geteuid() != 0 ||
        fchownat(directory, name, VOLUME_GUEST, VOLUME_GUEST, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    return errno == EINVAL ? 0 : -1;
}

int volume_find_path(struct volume *v, struct error *err)
{
    char self[32], path[PATH_MAX];
    cleanup_buf struct buf end = { 0 };
    snprintf(self, sizeof self, "/proc/self/fd/%d", v->data);
    buf_printf(&end, "/%s/data", v->name);
    ssize_t n = readlink(self, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = '\0';
    errno = ENOENT; /* it was removed manually */
    if (n < (ssize_t)end.len || strcmp(path + n - end.len, buf_text(&end)) != 0)
        return volume_failed(v, "finding", "its path", err);
    free(v->root);
    v->path = strdup(path);
    v->root = text_copy(path, (size_t)n - end.len);
    return v->path && v->root ? 0 : error_memory(err);
}
