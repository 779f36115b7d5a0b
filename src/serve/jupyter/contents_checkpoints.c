/* serve/jupyter/contents_checkpoints.c: the one checkpoint of a file, and uploads in chunks.
 *
 * Both are in the hidden directory beside the file, which is made when it is needed. An upload is
 * .part-NAME there; one that is begun again starts over.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/os/beneath.h"
#include "base/os/file.h"
#include "base/os/tree.h"
#include "base/text.h"
#include "serve/jupyter/contents.h"

static const char checkpoints_name[] = ".ipynb_checkpoints";

/* Longer than a name can be, which the kernel says then. */
struct checkpoint_name {
    char text[300];
};

static struct checkpoint_name checkpoint_name_of(const char *file)
{
    struct checkpoint_name out;
    const char *dot = strrchr(file, '.');
    int stem = (int)(dot ? (size_t)(dot - file) : strlen(file));
    snprintf(out.text, sizeof out.text, "%.*s-checkpoint%s", stem, file, file + stem);
    return out;
}

/* Negative, with errno: there is none. */
static int checkpoints_open(const struct contents_place *p, bool is_made)
{
    if (is_made && mkdirat(p->directory, checkpoints_name, 0777) < 0 && errno != EEXIST)
        return -1;
    return open_beneath(p->directory, checkpoints_name, O_RDONLY | O_DIRECTORY, 0);
}

/* Removes the directory if it is empty. */
static void checkpoints_leave(const struct contents_place *p)
{
    unlinkat(p->directory, checkpoints_name, AT_REMOVEDIR);
}

/* ---- for clients ---- */

/* False: there is no such file. */
static bool checkpoint_find(struct contents_job *job, struct contents_place *p)
{
    if (!contents_find(job, job->path, p))
        return false;
    if (S_ISREG(p->st.st_mode) &&
        (!job->checkpoint[0] || strcmp(job->checkpoint, "checkpoint") == 0))
        return true;
    if (S_ISREG(p->st.st_mode))
        contents_refuse(job, 404, "not_found", "there is no checkpoint '%s'", job->checkpoint);
    else
        contents_refuse(job, 400, "type", "%s: only files have checkpoints", job->path);
    return false;
}

/* False: there is none. */
static bool checkpoint_put(struct buf *out, int directory, const char *name)
{
    struct stat st;
    if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return false;
    field_open(out, NULL, '{');
    field_string(out, "id", "checkpoint");
    field_time(
        out, "last_modified", (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000);
    field_close(out, '}');
    return true;
}

void contents_list_checkpoints(struct contents_job *job)
{
    cleanup_place struct contents_place p = { .directory = -1 };
    if (!checkpoint_find(job, &p))
        return;
    cleanup_fd int directory = checkpoints_open(&p, false);
    buf_putc(&job->out, '[');
    if (directory >= 0)
        checkpoint_put(&job->out, directory, checkpoint_name_of(p.name).text);
    buf_putc(&job->out, ']');
    job->status = 200;
}

/* Copies a file to a place where it replaces another. Negative, with errno. */
static int checkpoint_copy(int from_directory, const char *from, int directory, const char *name)
{
    cleanup_draft struct contents_draft d = { .fd = -1 };
    cleanup_fd int fd = contents_open_file(from_directory, from);
    if (fd < 0 || contents_draft_open(&d, directory) < 0 || contents_draft_copy(&d, fd) < 0)
        return -1;
    return contents_draft_place(&d, directory, name, 0);
}

void contents_make_checkpoint(struct contents_job *job)
{
    cleanup_place struct contents_place p = { .directory = -1 };
    if (!checkpoint_find(job, &p))
        return;
    struct checkpoint_name name = checkpoint_name_of(p.name);
    cleanup_fd int directory = checkpoints_open(&p, true);
    if (directory < 0 || checkpoint_copy(p.directory, p.name, directory, name.text) < 0 ||
        !checkpoint_put(&job->out, directory, name.text)) {
        contents_fail(job, p.path);
        return;
    }
    job->status = 201;
    job->location = text_printf("%s/checkpoints/checkpoint", p.path);
}

void contents_restore_checkpoint(struct contents_job *job)
{
    cleanup_place struct contents_place p = { .directory = -1 };
    if (!checkpoint_find(job, &p))
        return;
    cleanup_fd int directory = checkpoints_open(&p, false);
    if (directory < 0 ||
        checkpoint_copy(directory, checkpoint_name_of(p.name).text, p.directory, p.name) < 0)
        contents_fail(job, "checkpoint");
    else
        job->status = 204;
}

void contents_delete_checkpoint(struct contents_job *job)
{
    cleanup_place struct contents_place p = { .directory = -1 };
    if (!checkpoint_find(job, &p))
        return;
    cleanup_fd int directory = checkpoints_open(&p, false);
    if (directory < 0 || unlinkat(directory, checkpoint_name_of(p.name).text, 0) < 0) {
        contents_fail(job, "checkpoint");
        return;
    }
    checkpoints_leave(&p);
    job->status = 204;
}

/* ---- with their files ---- */

void contents_move_checkpoint(const struct contents_place *from, const struct contents_place *to)
{
    struct checkpoint_name name = checkpoint_name_of(from->name);
    struct stat st;
    cleanup_fd int old = checkpoints_open(from, false);
    if (old < 0 || fstatat(old, name.text, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    cleanup_fd int directory = checkpoints_open(to, true);
    if (directory >= 0)
        renameat(old, name.text, directory, checkpoint_name_of(to->name).text);
    checkpoints_leave(from);
}

void contents_forget_checkpoint(const struct contents_place *p)
{
    cleanup_fd int directory = checkpoints_open(p, false);
    if (directory < 0)
        return;
    unlinkat(directory, checkpoint_name_of(p->name).text, 0);
    checkpoints_leave(p);
}

void contents_clear_checkpoints(const struct contents_place *p)
{
    cleanup_fd int fd = open_beneath(p->directory, p->name, O_RDONLY | O_DIRECTORY, 0);
    DIR *listing = fd < 0 ? NULL : open_listing(fd, ".");
    bool is_alone = listing != NULL;
    const char *name;
    while (listing && (name = next_listed(listing)))
        is_alone = is_alone && strcmp(name, checkpoints_name) == 0;
    if (listing)
        closedir(listing);
    if (is_alone)
        tree_remove(fd, checkpoints_name);
}

/* ---- uploads ---- */

/* Negative, with errno. The draft stays if the caller takes its name away. */
static int upload_add(struct contents_draft *d, int64_t chunk, const struct buf *bytes)
{
    struct stat st;
    if (chunk == 1)
        unlinkat(d->directory, d->name, 0);
    d->fd = open_beneath(
        d->directory, d->name, O_WRONLY | O_APPEND | (chunk == 1 ? O_CREAT | O_EXCL : 0), 0666);
    if (d->fd < 0 || fstat(d->fd, &st) < 0)
        return -1;
    errno = S_ISREG(st.st_mode) ? EFBIG : EBADF;
    if (!S_ISREG(st.st_mode) || st.st_size + (off_t)bytes->len > CONTENTS_FILE_MAX)
        return -1;
    return file_write_all(d->fd, buf_text(bytes), bytes->len);
}

bool contents_take_chunk(struct contents_job *job, const struct contents_place *p, int64_t chunk,
    const struct buf *bytes)
{
    struct contents_place part = { .directory = checkpoints_open(p, true), .path = p->path };
    cleanup_fd int directory = part.directory;
    cleanup_draft struct contents_draft d = { .directory = directory, .fd = -1 };
    if ((size_t)snprintf(d.name, sizeof d.name, ".part-%s", p->name) >= sizeof d.name) {
        d.name[0] = '\0';
        errno = ENAMETOOLONG;
    } else if (directory >= 0 && upload_add(&d, chunk, bytes) == 0) {
        if (chunk == -1 && contents_draft_place(&d, p->directory, p->name, 0) == 0) {
            checkpoints_leave(p);
            return true;
        }
        if (chunk != -1 && fstat(d.fd, &part.st) == 0) {
            snprintf(part.name, sizeof part.name, "%s", d.name);
            contents_put_model(&job->out, &part, "file");
            job->status = 200;
            d.name[0] = '\0'; /* it stays */
            return false;
        }
    }
    if (errno == ENOENT)
        contents_refuse(job, 400, "argument", "%s: the first chunk has the number 1", p->path);
    else
        contents_fail(job, p->path);
    return false;
}
