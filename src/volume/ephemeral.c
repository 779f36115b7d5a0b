/* volume/ephemeral.c: sessions' volumes, which have no public name and are removed with their last
 * holder. Each holds a lock while it exists; root_sweep removes the unlocked ones.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/os/beneath.h"
#include "base/cleanup.h"
#include "volume/internal.h"

/* Creates its directories and its lock, which must be held before root_sweep can run. */
static int ephemeral_fill(struct volume *v, int root)
{
    if (mkdirat(root, v->name, passable()) < 0)
        return -1;
    v->directory = open_beneath(root, v->name, O_RDONLY | O_DIRECTORY, 0);
    if (v->directory < 0 || fchmod(v->directory, passable()) < 0)
        return -1;
    v->lock = openat(v->directory, "lock", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (v->lock < 0 || flock(v->lock, LOCK_EX | LOCK_NB) < 0 ||
        mkdirat(v->directory, "aside", 0700) < 0 || mkdirat(v->directory, "data", 0700) < 0 ||
        give_to_guest(v->directory, "data") < 0)
        return -1;
    v->data = open_beneath(v->directory, "data", O_RDONLY | O_DIRECTORY, 0);
    return v->data < 0 ? -1 : 0;
}

static int ephemeral_make(struct volume *v, struct error *err)
{
    struct stat st;
    int rc = root_make(v->root, err);
    if (rc < 0)
        return rc;
    cleanup_fd int root = open(v->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_fd int lock = root < 0 ? -1 : root_lock(root);
    if (lock < 0)
        return root_failed(v->root, "locking", err);
    root_sweep(root);
    v->ephemeral = true;
    if (ephemeral_fill(v, root) < 0 || fstat(v->data, &st) < 0)
        return volume_failed(v, "making", "its directories", err);
    v->device = st.st_dev;
    v->inode = st.st_ino;
    v->owner = st.st_uid;
    return volume_find_path(v, err);
}

int volume_make_ephemeral(
    const char *root, const struct volume_limits *limits, struct volume **out, struct error *err)
{
    char fresh[ATOMIC_REPLACE_NAME];
    struct buf name = { 0 };
    int rc = atomic_replace_name(fresh, err);
    if (rc < 0)
        return rc;
    struct volume *v = calloc(1, sizeof *v);
    if (!v)
        return error_memory(err);
    *v = (struct volume){
        .holders = 1, .directory = -1, .data = -1, .lock = -1, .interrupt = -1, .limits = *limits
    };
    buf_printf(&name, "%s%s", EPHEMERAL_PREFIX, fresh);
    v->name = buf_steal(&name);
    v->root = strdup(root);
    rc = v->name && v->root ? ephemeral_make(v, err) : error_memory(err);
    if (rc < 0)
        volume_release(v);
    else
        *out = v;
    return rc;
}
