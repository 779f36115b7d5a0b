/* volume/limits.c: the quota of a volume, in a file of two lines. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/beneath.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "volume/internal.h"

static const char format[] = "size %llu\nfiles %llu\n";

/* More than any disk, and small enough for sums. */
#define MOST (1ull << 56)

int limits_read(int directory, struct volume_limits *limits, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    unsigned long long size, files;
    cleanup_fd int fd = open_beneath(directory, "limits", O_RDONLY, 0);
    if (fd < 0)
        return error_set_errno(err, ERROR_IO, "reading its limits");
    int rc = file_read_fd(fd, "its limits", 4096, &text, err);
    if (rc < 0)
        return rc;
    if (sscanf(buf_text(&text), format, &size, &files) != 2 || size > MOST || files > MOST)
        return error_set(err, ERROR_PROTOCOL,
            "the file `limits` is damaged; write the lines 'size BYTES' and 'files NUMBER' into "
            "it");
    *limits = (struct volume_limits){ size, files };
    return 0;
}

int limits_write(int directory, int staging, const struct volume_limits *limits, struct error *err)
{
    char name[ATOMIC_REPLACE_NAME], text[96];
    int rc = atomic_replace_name(name, err);
    if (rc < 0)
        return rc;
    cleanup_fd int fd = openat(staging, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int n = snprintf(text, sizeof text, format, (unsigned long long)limits->size,
        (unsigned long long)limits->files);
    if (fd < 0 || file_write_all(fd, text, (size_t)n) < 0 || fsync(fd) < 0 ||
        atomic_replace_move(staging, name, directory, "limits", 0) < 0) {
        rc = error_set_errno(err, ERROR_IO, "writing its limits");
        unlinkat(staging, name, 0);
    }
    return rc;
}
