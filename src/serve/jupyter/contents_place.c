/* serve/jupyter/contents_place.c: finds and replaces files below the permitted directory. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/beneath.h"
#include "base/os/file.h"
#include "base/os/random.h"
#include "base/text.h"
#include "serve/jupyter/contents.h"

void contents_fail(struct contents_job *job, const char *path)
{
    static const struct {
        int sys;
        unsigned status;
        const char *code, *text;
    } rows[] = {
        { ENOENT, 404, "not_found", "there is no such file or directory" },
        { ENOTDIR, 404, "not_found", "a part of the path is not a directory" },
        { ELOOP, 404, "not_found", "links are not followed" },
        { EXDEV, 404, "not_found", "it is elsewhere" },
        { EISDIR, 400, "argument", "it is a directory" },
        { EBADF, 400, "argument", "it is neither a file nor a directory" },
        { EINVAL, 400, "argument", "a directory cannot be moved into itself" },
        { ENAMETOOLONG, 400, "argument", "the name is too long" },
        { ENOTEMPTY, 400, "argument", "the directory is not empty" },
        { EEXIST, 409, "exists", "there is such a file or directory already" },
        { EACCES, 403, "permission", "the server may not do that" },
        { EPERM, 403, "permission", "the server may not do that" },
        { EROFS, 403, "permission", "the directory is read-only" },
        { EFBIG, 413, "too_large", "the file is larger than 1 GiB" },
        { ENOSPC, 507, "full", "there is no space left" },
        { EDQUOT, 507, "full", "there is no space left" },
        { ENOMEM, 503, "memory", "out of memory" },
    };
    int sys = errno;
    for (size_t i = 0; i < array_length(rows); i++)
        if (rows[i].sys == sys) {
            contents_refuse(job, rows[i].status, rows[i].code, "%s: %s", path, rows[i].text);
            return;
        }
    contents_refuse(job, 500, "io", "%s: %s", path, strerror(sys));
}

bool contents_enter(struct contents_job *job, const char *path, struct contents_place *p)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    cleanup_free char *parent = slash ? text_copy(path, (size_t)(slash - path)) : strdup(".");
    p->path = strdup(path);
    errno = ENOMEM;
    if (parent && p->path && strlen(name) >= sizeof p->name) {
        errno = ENAMETOOLONG;
    } else if (parent && p->path) {
        strcpy(p->name, name[0] ? name : ".");
        p->directory = open_beneath(job->root, parent, O_RDONLY | O_DIRECTORY, 0);
    }
    if (p->directory < 0)
        contents_fail(job, path);
    return p->directory >= 0;
}

int contents_look(struct contents_place *p)
{
    if (fstatat(p->directory, p->name, &p->st, AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    errno = S_ISLNK(p->st.st_mode) ? ELOOP : EBADF;
    return S_ISREG(p->st.st_mode) || S_ISDIR(p->st.st_mode) ? 0 : -1;
}

bool contents_find(struct contents_job *job, const char *path, struct contents_place *p)
{
    if (!contents_enter(job, path, p))
        return false;
    if (contents_look(p) == 0)
        return true;
    contents_fail(job, path);
    return false;
}

/* Looks first: opening a device can do something to it. */
int contents_open_file(int directory, const char *name)
{
    struct contents_place p = { .directory = directory };
    errno = ENAMETOOLONG;
    if (strlen(name) >= sizeof p.name)
        return -1;
    strcpy(p.name, name);
    if (contents_look(&p) < 0)
        return -1;
    cleanup_fd int fd = open_beneath(directory, name, O_RDONLY | O_NOCTTY, 0);
    if (fd < 0 || fstat(fd, &p.st) < 0)
        return -1;
    if (S_ISREG(p.st.st_mode))
        return steal_fd(&fd);
    errno = S_ISDIR(p.st.st_mode) ? EISDIR : EBADF;
    return -1;
}

void contents_leave(struct contents_place *p)
{
    close_fd(&p->directory);
    free(steal(&p->path));
}

/* ---- drafts ---- */

int contents_draft_open(struct contents_draft *d, int directory)
{
    strcpy(d->name, ".droste-");
    if (random_hex(d->name + 8, 16, NULL) < 0) {
        errno = EIO;
        return -1;
    }
    d->directory = directory;
    d->fd = openat(directory, d->name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (d->fd < 0)
        d->name[0] = '\0';
    return d->fd < 0 ? -1 : 0;
}

int contents_draft_copy(struct contents_draft *d, int from)
{
    char data[65536];
    size_t all = 0;
    ssize_t n;
    while ((n = read(from, data, sizeof data)) > 0 && all <= CONTENTS_FILE_MAX) {
        if (file_write_all(d->fd, data, (size_t)n) < 0)
            return -1;
        all += (size_t)n;
    }
    if (all > CONTENTS_FILE_MAX)
        errno = EFBIG;
    return n < 0 || all > CONTENTS_FILE_MAX ? -1 : 0;
}

int contents_draft_place(struct contents_draft *d, int directory, const char *name, unsigned flags)
{
    struct stat st;
    bool exists = fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (exists && !(flags & RENAME_NOREPLACE)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : S_ISLNK(st.st_mode) ? ELOOP : EBADF;
        if (!S_ISREG(st.st_mode) || faccessat(directory, name, W_OK, AT_EACCESS) < 0 ||
            fchmod(d->fd, st.st_mode & 0777) < 0)
            return -1;
    }
    if (fsync(d->fd) < 0 || renameat2(d->directory, d->name, directory, name, flags) < 0)
        return -1;
    d->name[0] = '\0';
    return 0;
}

void contents_draft_drop(struct contents_draft *d)
{
    int saved = errno;
    close_fd(&d->fd);
    if (d->name[0])
        unlinkat(d->directory, d->name, 0);
    d->name[0] = '\0';
    errno = saved;
}
