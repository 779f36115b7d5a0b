/* volume/checkout.c: writes the files of a commit.
 *
 * It first lists all files (git ls-tree), then requests all contents at once (git cat-file --batch)
 * in the same order: each is a line, its bytes, and a newline. Directories precede their contents.
 * Nothing else uses the directory yet, but links must still not be followed, because a repository
 * can contain a link and a directory of the same name.
 */
#include "volume/checkout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/os/beneath.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/text.h"
#include "volume/internal.h"

enum { LINE_MAX_SIZE = 128, LINK_MAX = 4095 };

struct entry {
    const char *path, *id; /* in the list */
    char kind;             /* 'd', 'f', 'x', 'l' or 'm' (a submodule) */
};

struct state {
    const struct volume *v;
    uid_t owner;
    int top;
    struct buf list;
    struct entry *entries;
    size_t entry_count, entry_room;
    droste_volume_count *count;
    /* what git says of the contents */
    size_t at; /* the entry whose contents come next, or are being read */
    bool inside, newline;
    char line[LINE_MAX_SIZE];
    size_t line_len;
    uint64_t left; /* remaining bytes of it */
    int file;
    struct buf link;
};

static int checkout_refuse(const char *path, const char *why, struct error *err)
{
    cleanup_buf struct buf shown = { 0 };
    text_append_visible(&shown, path, strnlen(path, 80));
    return error_set(err, ERROR_PROTOCOL, "the repository's file '%s' was not written: %s",
        buf_text(&shown), why);
}

static int checkout_failed(const struct state *s, const char *path, struct error *err)
{
    if (errno == EEXIST || errno == ELOOP || errno == ENOTDIR)
        return checkout_refuse(path, "another file has the same name", err);
    if (errno == ENAMETOOLONG)
        return checkout_refuse(path, "its path is too long", err);
    return volume_failed(s->v, "writing", path, err);
}

static int checkout_too_large(const struct state *s, struct error *err)
{
    const struct volume_limits *limits = volume_limits_of(s->v);
    return error_set(err, ERROR_ARGUMENT,
        "the repository is larger than the workspace may be (%llu bytes, %llu files); raise "
        "--workspace-size or --workspace-files",
        (unsigned long long)limits->size, (unsigned long long)limits->files);
}

/* ---- the list ---- */

/* No component may lead elsewhere, or make another git run what is there. */
static bool is_fine(const char *path)
{
    for (const char *part = path; part; part = strchr(part, '/'), part += part != NULL)
        if (strcspn(part, "/") == 4 && strncasecmp(part, ".git", 4) == 0)
            return false;
    return text_leads_down(path, strlen(path));
}

/* "100644 blob ID\tPATH". */
static int take_entry(struct state *s, char *line, struct error *err)
{
    static const struct {
        const char *mode;
        char kind;
    } kinds[] = { { "100644 blob ", 'f' }, { "100755 blob ", 'x' }, { "100664 blob ", 'f' },
        { "120000 blob ", 'l' }, { "040000 tree ", 'd' }, { "160000 commit ", 'm' } };
    char *path = strchr(line, '\t');
    if (!array_room(s->entries, s->entry_count, &s->entry_room))
        return error_memory(err);
    for (size_t i = 0; path && i < array_length(kinds); i++) {
        size_t n = strlen(kinds[i].mode);
        if (strncmp(line, kinds[i].mode, n) != 0)
            continue;
        *path++ = '\0';
        if (!is_fine(path))
            return checkout_refuse(path, "this name is not allowed", err);
        s->entries[s->entry_count++] = (struct entry){ path, line + n, kinds[i].kind };
        return s->entry_count > volume_limits_of(s->v)->files ? checkout_too_large(s, err) : 0;
    }
    return error_set(err, ERROR_PROTOCOL, "the repository contains an object of an unknown kind");
}

static int checkout_read_list(
    struct state *s, const struct repository *r, const struct git_bounds *bounds, struct error *err)
{
    const char *words[] = { "ls-tree", "-r", "-t", "-z", "--full-tree", r->commit, NULL };
    struct git_call call = { .directory = r->path,
        .words = words,
        .input = -1,
        .lock = r->lock,
        .take = git_keep,
        .arg = &s->list };
    int rc = git_run(&call, bounds, NULL, err);
    for (size_t at = 0, len; rc == 0 && at < s->list.len; at += len + 1) {
        len = strlen(s->list.data + at); /* measured before the text is split */
        rc = take_entry(s, s->list.data + at, err);
    }
    return rc;
}

/* ---- what git has no contents of ---- */

/* Opens the directory of an entry. */
static int checkout_open_parent(struct state *s, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    cleanup_free char *parent = slash ? text_copy(path, (size_t)(slash - path)) : strdup(".");
    *name = slash ? slash + 1 : path;
    return parent ? open_beneath(s->top, parent, O_PATH | O_DIRECTORY, 0) : -1;
}

static int checkout_make_directory(struct state *s, const char *path, struct error *err)
{
    const char *name;
    cleanup_fd int at = checkout_open_parent(s, path, &name);
    if (at < 0 || mkdirat(at, name, 0755) < 0 ||
        (geteuid() == 0 && fchownat(at, name, s->owner, s->owner, AT_SYMLINK_NOFOLLOW) < 0 &&
            errno != EINVAL))
        return checkout_failed(s, path, err);
    s->count->files++;
    return 0;
}

static bool has_contents(const struct entry *e)
{
    return e->kind != 'd' && e->kind != 'm';
}

/* Moves to the next entry with contents; creates the ones before it. */
static int checkout_advance(struct state *s, struct error *err)
{
    int rc = 0;
    while (rc == 0 && s->at < s->entry_count && !has_contents(&s->entries[s->at]))
        rc = checkout_make_directory(s, s->entries[s->at++].path, err);
    return rc;
}

/* ---- contents ---- */

static int begin_file(struct state *s, const struct entry *e, struct error *err)
{
    if (e->kind == 'l') {
        buf_clear(&s->link);
        return s->left > LINK_MAX
                   ? checkout_refuse(e->path, "the target of the link is too long", err)
                   : 0;
    }
    s->file =
        open_beneath(s->top, e->path, O_WRONLY | O_CREAT | O_EXCL, e->kind == 'x' ? 0755 : 0644);
    if (s->file < 0)
        return checkout_failed(s, e->path, err);
    /* Independent of the umask. */
    if (fchmod(s->file, e->kind == 'x' ? 0755 : 0644) < 0 ||
        (geteuid() == 0 && fchown(s->file, s->owner, s->owner) < 0 && errno != EINVAL))
        return checkout_failed(s, e->path, err);
    return 0;
}

static int make_link(struct state *s, const char *path, struct error *err)
{
    const char *name;
    if (buf_failed(&s->link))
        return error_memory(err);
    if (s->link.len == 0 || strlen(s->link.data) != s->link.len)
        return checkout_refuse(path, "the link has no target", err);
    cleanup_fd int at = checkout_open_parent(s, path, &name);
    if (at < 0 || symlinkat(s->link.data, at, name) < 0)
        return checkout_failed(s, path, err);
    if (geteuid() == 0)
        (void)!fchownat(at, name, s->owner, s->owner, AT_SYMLINK_NOFOLLOW);
    return 0;
}

static int end_file(struct state *s, struct error *err)
{
    const struct entry *e = &s->entries[s->at++];
    int rc = e->kind == 'l' ? make_link(s, e->path, err) : 0;
    close_fd(&s->file);
    s->inside = false;
    s->newline = true;
    s->count->files++;
    return rc;
}

/* "ID blob SIZE" of the current entry, or "ID missing". */
static int checkout_take_line(struct state *s, struct error *err)
{
    const struct entry *e = &s->entries[s->at];
    size_t n = strlen(e->id);
    char *end = NULL;
    s->line[s->line_len] = '\0';
    s->line_len = 0;
    if (strncmp(s->line, e->id, n) != 0 || strncmp(s->line + n, " blob ", 6) != 0)
        return error_set(err, ERROR_PROTOCOL,
            "some of the repository's files are missing: the host did not send them, or the cache "
            "is damaged; the next attempt fetches it again");
    s->left = strtoull(s->line + n + 6, &end, 10);
    if (*end != '\0')
        return error_set(err, ERROR_PROTOCOL, "git sent an invalid file size");
    if (s->left > volume_limits_of(s->v)->size - s->count->bytes)
        return checkout_too_large(s, err);
    s->inside = true;
    s->count->bytes += s->left;
    return begin_file(s, e, err);
}

static int checkout_take_bytes(struct state *s, const char *data, size_t len, struct error *err)
{
    const struct entry *e = &s->entries[s->at];
    s->left -= len;
    if (e->kind == 'l')
        buf_append(&s->link, data, len);
    else if (file_write_all(s->file, data, len) < 0)
        return volume_failed(s->v, "writing", e->path, err);
    return 0;
}

static int take_contents(void *arg, const char *data, size_t len, struct error *err)
{
    struct state *s = arg;
    int rc = 0;
    while (rc == 0 && (len > 0 || (s->inside && s->left == 0))) {
        if (s->inside) {
            size_t n = s->left < len ? (size_t)s->left : len;
            rc = n > 0 ? checkout_take_bytes(s, data, n, err) : 0;
            data += n;
            len -= n;
            if (rc == 0 && s->left == 0)
                rc = end_file(s, err);
            continue;
        }
        char c = *data++;
        len--;
        if (s->newline) {
            s->newline = false;
            rc = checkout_advance(s, err);
        } else if (c == '\n' && s->at < s->entry_count) {
            rc = checkout_take_line(s, err);
        } else if (s->line_len == sizeof s->line - 1 || s->at >= s->entry_count) {
            rc = error_set(err, ERROR_PROTOCOL, "git sent more than requested");
        } else {
            s->line[s->line_len++] = c;
        }
    }
    return rc;
}

/* Writes the ids of all entries with contents to a file for git. */
static int write_ids(const struct state *s, struct error *err)
{
    cleanup_buf struct buf ids = { 0 };
    cleanup_fd int fd = file_memfd("objects", err);
    for (size_t i = 0; i < s->entry_count; i++)
        if (has_contents(&s->entries[i]))
            buf_printf(&ids, "%s\n", s->entries[i].id);
    if (fd < 0)
        return fd;
    if (buf_failed(&ids))
        return error_memory(err);
    if (file_write_all(fd, ids.data, ids.len) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return error_set_errno(err, ERROR_IO, "writing a memory file");
    return steal_fd(&fd);
}

static int read_contents(
    struct state *s, const struct repository *r, const struct git_bounds *bounds, struct error *err)
{
    static const char *const words[] = { "cat-file", "--batch", "--buffer", NULL };
    cleanup_fd int ids = write_ids(s, err);
    if (ids < 0)
        return ids;
    struct git_call call = { .directory = r->path,
        .words = words,
        .input = ids,
        .lock = r->lock,
        .take = take_contents,
        .arg = s };
    int rc = checkout_advance(s, err);
    if (rc == 0)
        rc = git_run(&call, bounds, NULL, err);
    if (rc == 0 && s->at != s->entry_count)
        rc = error_set(err, ERROR_PROTOCOL, "git sent fewer files than requested");
    return rc;
}

int checkout(const struct volume *v, const char *name, const struct repository *r,
    const struct git_bounds *bounds, droste_volume_count *count, struct error *err)
{
    struct state s = { .v = v, .owner = volume_owner(v), .top = volume_data(v), .file = -1 };
    s.count = count;
    *count = (droste_volume_count){ 0 };
    int rc = checkout_make_directory(&s, name, err);
    s.top = rc < 0 ? -1 : open_beneath(volume_data(v), name, O_RDONLY | O_DIRECTORY, 0);
    if (rc == 0 && s.top < 0)
        rc = checkout_failed(&s, name, err);
    if (rc == 0)
        rc = checkout_read_list(&s, r, bounds, err);
    if (rc == 0)
        rc = read_contents(&s, r, bounds, err);
    if (rc == -(int)ERROR_PROTOCOL || rc == -(int)ERROR_IO)
        repository_distrust(r);
    close_fd(&s.file);
    if (s.top >= 0)
        close(s.top);
    buf_free(&s.list);
    buf_free(&s.link);
    free(s.entries);
    return rc;
}
