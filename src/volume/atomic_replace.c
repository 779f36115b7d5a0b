/* volume/atomic_replace.c: builds entries in `aside` and renames them once they are complete and
 * synced. A killed process leaves its entry there for the next one to remove.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/os/beneath.h"
#include "base/os/random.h"
#include "volume/internal.h"

int atomic_replace_name(char name[ATOMIC_REPLACE_NAME], struct error *err)
{
    return random_hex(name, 32, err);
}

int atomic_replace_open(const struct volume *v, struct error *err)
{
    int fd = open_beneath(v->directory, "aside", O_RDONLY | O_DIRECTORY, 0);
    return fd < 0 ? volume_failed(v, "opening", "its place for what is unfinished", err) : fd;
}

int atomic_replace_begin(const struct volume *v, char name[ATOMIC_REPLACE_NAME], struct error *err)
{
    int rc = atomic_replace_name(name, err);
    return rc < 0 ? rc : atomic_replace_open(v, err);
}

/* Syncs the renamed entry's directory. Directories without a disk, or opened with O_PATH, cannot
 * be synced. */
static int atomic_replace_settle(int directory)
{
    return fsync(directory) == 0 || errno == EINVAL || errno == EBADF ? 0 : -1;
}

int atomic_replace_move(
    int staging, const char *name, int directory, const char *to, unsigned flags)
{
    if (renameat2(staging, name, directory, to, flags) < 0)
        return -1;
    return atomic_replace_settle(directory) < 0 || atomic_replace_settle(staging) < 0 ? -1 : 0;
}
