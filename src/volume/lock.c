/* volume/lock.c: tracks users of a volume with flock(2), which the kernel releases when a process
 * ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "base/os/file.h"
#include "volume/internal.h"

enum { TRY_MS = 10 };

int lock_within(int fd, int operation, unsigned ms)
{
    const struct timespec moment = { .tv_nsec = TRY_MS * 1000000L };
    while (flock(fd, operation | LOCK_NB) < 0) {
        if ((errno != EWOULDBLOCK && errno != EINTR) || ms < TRY_MS)
            return -1;
        nanosleep(&moment, NULL);
        ms -= TRY_MS;
    }
    return 0;
}

/* A line of /proc/locks is "1: FLOCK  ADVISORY  READ 1234 fd:01:5678 0 EOF". */
void lock_holders(int fd, struct buf *out)
{
    cleanup_buf struct buf text = { 0 };
    struct stat st;
    if (fstat(fd, &st) < 0 || file_read("/proc/locks", 16 << 20, &text, NULL) < 0)
        return;
    char *rest = NULL;
    for (char *line = text.data ? strtok_r(text.data, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        long pid;
        unsigned major_number, minor_number;
        unsigned long long inode;
        bool ours = sscanf(line, "%*d: FLOCK %*s %*s %ld %x:%x:%llu", &pid, &major_number,
                        &minor_number, &inode) == 4 &&
                    inode == st.st_ino && major_number == major(st.st_dev) &&
                    minor_number == minor(st.st_dev) && pid > 0;
        if (ours && out->len < 60)
            buf_printf(out, "%sprocess %ld", out->len ? ", " : "", pid);
    }
}
