/* serve/jupyter/contents_place.c: paths below the permitted directory, and what they name. See
 * contents.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/os/beneath.h"
#include "base/os/file.h"
#include "base/os/random.h"
#include "base/text.h"
#include "serve/jupyter/contents.h"

void contents_refuse(
    struct contents_job *job, unsigned status, const char *code, const char *format, ...)
{
    va_list args;
    if (job->code) /* the first reason */
        return;
    job->status = status;
    job->code = code;
    va_start(args, format);
    buf_vprintf(&job->why, format, args);
    va_end(args);
}

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

/* ---- paths ---- */

bool contents_may_name(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == '\x7f' || name[i] == '/')
            return false;
    return n > 0 && n < 256 && name[0] != '.' && text_is_utf8(name, n, NULL);
}

bool contents_take_path(struct contents_job *job, const char *path, char **out)
{
    cleanup_buf struct buf whole = { 0 };
    for (const char *at = path; *at;) {
        size_t n = strcspn(at, "/");
        cleanup_free char *name = text_copy(at, n);
        at += n + (at[n] == '/');
        if (n == 0) /* slashes at the ends, or two of them */
            continue;
        if (!name || whole.len + n > 4000 || !contents_may_name(name)) {
            bool is_hidden = name && name[0] == '.';
            contents_refuse(job, is_hidden ? 404 : 400, is_hidden ? "not_found" : "argument",
                is_hidden ? "%s: names that begin with a dot are hidden"
                          : "%s: the path is too long, or has characters that no name has",
                path);
            return false;
        }
        if (whole.len > 0)
            buf_putc(&whole, '/');
        buf_puts(&whole, name);
    }
    *out = whole.len > 0 ? buf_steal(&whole) : strdup("");
    if (!*out)
        contents_refuse(job, 503, "memory", "out of memory");
    return *out != NULL;
}

/* ---- describing ---- */

bool contents_ends(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n > m && strcasecmp(name + n - m, ending) == 0;
}

const char *contents_media_type(const char *name)
{
    static const struct {
        const char *ending, *type;
    } rows[] = {
        { ".css", "text/css" },
        { ".csv", "text/csv" },
        { ".gif", "image/gif" },
        { ".htm", "text/html" },
        { ".html", "text/html" },
        { ".jpeg", "image/jpeg" },
        { ".jpg", "image/jpeg" },
        { ".js", "text/javascript" },
        { ".json", "application/json" },
        { ".md", "text/markdown" },
        { ".pdf", "application/pdf" },
        { ".png", "image/png" },
        { ".py", "text/x-python" },
        { ".svg", "image/svg+xml" },
        { ".tsv", "text/tab-separated-values" },
        { ".txt", "text/plain" },
        { ".webp", "image/webp" },
        { ".xml", "text/xml" },
    };
    for (size_t i = 0; i < array_length(rows); i++)
        if (contents_ends(name, rows[i].ending))
            return rows[i].type;
    return NULL;
}

const char *contents_type(const struct contents_place *p)
{
    return S_ISDIR(p->st.st_mode)             ? "directory"
           : contents_ends(p->name, ".ipynb") ? "notebook"
                                              : "file";
}

static int64_t contents_ms(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void contents_put_head(
    struct buf *out, const struct contents_place *p, const char *type, const char *hash)
{
    field_open(out, NULL, '{');
    field_string(out, "name", p->path[0] ? p->name : "");
    field_string(out, "path", p->path);
    field_string(out, "type", type);
    field_time(out, "created", contents_ms(p->st.st_ctim));
    field_time(out, "last_modified", contents_ms(p->st.st_mtim));
    if (S_ISDIR(p->st.st_mode))
        field_null(out, "size");
    else
        field_int(out, "size", p->st.st_size);
    field_bool(out, "writable", faccessat(p->directory, p->name, W_OK, AT_EACCESS) == 0);
    field_string(out, "hash", hash);
    field_string(out, "hash_algorithm", hash ? "sha256" : NULL);
}

void contents_put_empty(
    struct buf *out, const struct contents_place *p, const char *type, const char *hash)
{
    contents_put_head(out, p, type, hash);
    field_null(out, "content");
    field_null(out, "format");
    field_string(out, "mimetype", strcmp(type, "file") == 0 ? contents_media_type(p->name) : NULL);
    field_close(out, '}');
}

void contents_put_model(struct buf *out, const struct contents_place *p, const char *type)
{
    contents_put_empty(out, p, type, NULL);
}
