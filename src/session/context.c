/* session/context.c: reads contexts into sealed memfds. */
#include "session/context.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <fts.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/suggest.h"
#include "base/text.h"

static const uint64_t default_most = (uint64_t)4 << 30; /* CONTEXT_MOST */

static const struct {
    const char *word;
    enum value_kind kind;
} kinds[] = {
    { "auto", VALUE_AUTO },
    { "text", VALUE_TEXT },
    { "bytes", VALUE_BYTES },
    { "json", VALUE_JSON },
    { "jsonl", VALUE_JSONL },
    { "values", VALUE_TYPED },
};

int context_kind_parse(const char *word, enum value_kind *out, struct error *err)
{
    for (size_t i = 0; i < array_length(kinds); i++) {
        if (strcmp(kinds[i].word, word) != 0)
            continue;
        *out = kinds[i].kind;
        return 0;
    }
    return suggest_refuse(
        "context type", word, &kinds[0].word, sizeof kinds[0], array_length(kinds), err);
}

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n >= m && strcmp(path + n - m, end) == 0;
}

static enum value_kind kind_by_name(const char *path)
{
    if (ends_with(path, ".json"))
        return VALUE_JSON;
    if (ends_with(path, ".jsonl") || ends_with(path, ".ndjson"))
        return VALUE_JSONL;
    return VALUE_AUTO;
}

void context_free(struct context *c)
{
    if (!c)
        return;
    close_fd(&c->fd);
    free(c->name);
    free(c->source);
    free(c->path);
    free(c->first_left_out);
    free(c);
}

int contexts_add(struct contexts *all, struct context *context, struct error *err)
{
    struct context **items = reallocarray(all->items, all->count + 1, sizeof(*items));
    if (!items) {
        context_free(context);
        return error_memory(err);
    }
    all->items = items;
    items[all->count++] = context;
    return 0;
}

void contexts_free(struct contexts *all)
{
    for (size_t i = 0; i < all->count; i++)
        context_free(all->items[i]);
    free(all->items);
    *all = (struct contexts){ 0 };
}

void context_names(const struct context *c, size_t index, struct context_names *out)
{
    out->count = 0;
    snprintf(out->numbered, sizeof out->numbered, "context_%zu", index);
    if (index == 0)
        out->names[out->count++] = "context";
    out->names[out->count++] = out->numbered;
    if (c && c->name)
        out->names[out->count++] = c->name;
}

static void cleanup_context(struct context **c)
{
    context_free(*c);
}

static int context_new(
    const char *source, enum value_kind kind, struct context **out, struct error *err)
{
    struct context *c = calloc(1, sizeof *c);
    if (!c)
        return error_memory(err);
    *c = (struct context){ .kind = kind, .fd = -1, .source = strdup(source) };
    c->fd = file_memfd("droste-context", err);
    if (c->fd < 0 || !c->source) {
        int rc = c->source ? c->fd : error_memory(err);
        context_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

static int context_seal(struct context *c, struct error *err)
{
    struct stat st;
    if (fstat(c->fd, &st) < 0)
        return error_set_errno(err, ERROR_IO, "measuring the context");
    c->len = (size_t)st.st_size;
    return file_memfd_seal(c->fd, err);
}

/* A read from a pipe may block forever; a signal whose handler does not restart the read (Ctrl-C
 * in the commands) ends it. */
static int cannot_read(const char *path, struct error *err)
{
    enum error_code code = errno == EINTR    ? ERROR_CANCELLED
                           : errno == EACCES ? ERROR_PERMISSION
                                             : ERROR_IO;
    return error_set_errno(err, code, "the context %.100s could not be read", path);
}

static int context_too_large(const char *name, uint64_t most, struct error *err)
{
    return error_set(err, ERROR_ARGUMENT,
        "the context %.100s is larger than the %.6g MiB that context-size allows: raise it, or "
        "give a smaller context",
        name, (double)most / (1 << 20));
}

/* Waits for input, unless `from` is -1; a file is always readable. */
static int context_interrupted(
    int from, const struct context_filter *filter, const char *name, struct error *err)
{
    if (!filter || !filter->interrupt)
        return 0;
    struct pollfd fds[] = { { *filter->interrupt, POLLIN, 0 }, { from, POLLIN, 0 } };
    (void)!poll(fds, array_length(fds), from < 0 ? 0 : -1);
    if (!fds[0].revents)
        return 0;
    return error_set(err, ERROR_CANCELLED, "interrupted while reading the context %.100s", name);
}

/* Copies in the kernel where possible (files), otherwise with read and write. */
static int copy_all(int from, int to, const char *name, const struct context_filter *filter,
    uint64_t most, struct error *err)
{
    char data[65536];
    uint64_t all = 0;
    ssize_t n;
    do {
        if (context_interrupted(from, filter, name, err) < 0)
            return -(int)ERROR_CANCELLED;
        n = sendfile(to, from, NULL, 1 << 26);
        if (n > 0 && (all += (uint64_t)n) > most)
            return context_too_large(name, most, err);
    } while (n > 0);
    if (n == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return cannot_read(name, err);
    for (;;) {
        if (context_interrupted(from, filter, name, err) < 0)
            return -(int)ERROR_CANCELLED;
        n = read(from, data, sizeof data);
        if (n < 0)
            return cannot_read(name, err);
        if (n == 0)
            return 0;
        if ((all += (uint64_t)n) > most)
            return context_too_large(name, most, err);
        if (file_write_all(to, data, (size_t)n) < 0)
            return error_set_errno(err, ERROR_IO, "keeping %.100s in memory", name);
    }
}

int context_from_memory(
    const void *data, size_t len, enum value_kind kind, struct context **out, struct error *err)
{
    struct session_part part = { data, len };
    return context_from_parts(&part, 1, kind, out, err);
}

int context_from_parts(const struct session_part *parts, size_t count, enum value_kind kind,
    struct context **out, struct error *err)
{
    __attribute__((cleanup(cleanup_context))) struct context *c = NULL;
    int rc = context_new("memory", kind, &c, err);
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (file_write_all(c->fd, parts[i].data, parts[i].len) < 0)
            rc = error_set_errno(err, ERROR_IO, "keeping the context in memory");
    if (rc == 0)
        rc = context_seal(c, err);
    if (rc == 0)
        *out = steal(&c);
    return rc;
}

/* ---- directories ---- */

static int context_by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void context_leave_out(struct context *c, const char *path, const char *why)
{
    struct buf text = { 0 };
    if (c->left_out++ > 0)
        return;
    text_append_visible(&text, path, strlen(path));
    buf_printf(&text, " (%s)", why);
    c->first_left_out = buf_steal(&text);
}

/* One file's record: guest/python/core/variables.py, decode_files. */
static int add_file(struct context *c, const char *name, const struct buf *text, struct error *err)
{
    unsigned char lengths[12];
    uint32_t path_len = htole32((uint32_t)strlen(name));
    uint64_t text_len = htole64((uint64_t)text->len);
    memcpy(lengths, &path_len, 4);
    memcpy(lengths + 4, &text_len, 8);
    c->files++;
    if (file_write_all(c->fd, lengths, sizeof lengths) < 0 ||
        file_write_all(c->fd, name, strlen(name)) < 0 ||
        file_write_all(c->fd, buf_text(text), text->len) < 0)
        return error_set_errno(err, ERROR_IO, "keeping %.100s in memory", name);
    return 0;
}

static bool is_included(const struct context_filter *filter, const char *name, const char *path)
{
    bool found = !filter || filter->count == 0;
    for (size_t i = 0; !found && i < filter->count; i++)
        found =
            fnmatch(filter->include[i], name, 0) == 0 || fnmatch(filter->include[i], path, 0) == 0;
    return found;
}

static int take_file(struct context *c, const FTSENT *entry, size_t root_len,
    const struct context_filter *filter, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    struct error why = { 0 };
    const char *name = entry->fts_path + root_len;
    while (*name == '/')
        name++;
    if (!is_included(filter, entry->fts_name, name))
        return 0;
    /* Does not block or follow links: the file may have been replaced since lstat. */
    cleanup_fd int fd =
        open(entry->fts_accpath, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        context_leave_out(c, name, strerror(errno));
        return 0;
    }
    uint64_t most = filter && filter->most ? filter->most : default_most;
    off_t so_far = lseek(c->fd, 0, SEEK_CUR);
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        context_leave_out(c, name, "no longer a file");
        return 0;
    }
    if (so_far < 0 || (uint64_t)so_far + (uint64_t)st.st_size > most)
        return context_too_large(c->source, most, err);
    if (file_read_fd(fd, name, (size_t)(most - (uint64_t)so_far), &text, &why) < 0) {
        context_leave_out(c, name, why.text);
        return 0;
    }
    if (!text_is_utf8(buf_text(&text), text.len, NULL)) {
        context_leave_out(c, name, "not UTF-8 text");
        return 0;
    }
    return add_file(c, name, &text, err);
}

static bool is_version_control(const char *name)
{
    return strcmp(name, ".git") == 0 || strcmp(name, ".hg") == 0 || strcmp(name, ".svn") == 0;
}

static int context_walk(struct context *c, FTS *tree, size_t root_len,
    const struct context_filter *filter, struct error *err)
{
    FTSENT *entry;
    int rc = 0;
    while (rc == 0 && (errno = 0, entry = fts_read(tree))) {
        switch (entry->fts_info) {
        case FTS_D:
            if (entry->fts_level > 0 && is_version_control(entry->fts_name))
                fts_set(tree, entry, FTS_SKIP);
            break;
        case FTS_F:
            rc = context_interrupted(-1, filter, c->source, err);
            if (rc == 0)
                rc = take_file(c, entry, root_len, filter, err);
            break;
        case FTS_DNR:
        case FTS_ERR:
        case FTS_NS:
            context_leave_out(c, entry->fts_path, strerror(entry->fts_errno));
            break;
        default:
            break; /* links, devices, pipes and sockets are not documents */
        }
    }
    if (rc == 0 && errno != 0)
        rc = error_set_errno(err, ERROR_IO, "reading the directory %.100s", c->source);
    return rc;
}

static int load_directory(
    struct context *c, const char *path, const struct context_filter *filter, struct error *err)
{
    char *roots[] = { (char *)(uintptr_t)path, NULL };
    uint32_t count = 0;
    if (file_write_all(c->fd, &count, sizeof count) < 0)
        return error_set_errno(err, ERROR_IO, "keeping the context in memory");
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, context_by_name);
    if (!tree)
        return error_set_errno(err, ERROR_IO, "reading the directory %.100s", path);
    int rc = context_walk(c, tree, strlen(path), filter, err);
    fts_close(tree);
    if (rc == 0 && c->files == 0)
        return error_set(err, ERROR_ARGUMENT,
            "the directory %.80s has no text files%s%.80s; give a directory with text files, or a "
            "single file with --context-type bytes",
            path, c->first_left_out ? ": first left out: " : "",
            c->first_left_out ? c->first_left_out : "");
    count = htole32((uint32_t)c->files);
    if (rc == 0 && pwrite(c->fd, &count, sizeof count, 0) != sizeof count)
        rc = error_set_errno(err, ERROR_IO, "keeping the context in memory");
    return rc;
}

/* Opens a file or directory that may be read. */
static int open_context(const char *path, uint64_t most, struct stat *st, struct error *err)
{
    cleanup_fd int fd =
        file_open(path, O_RDONLY, FILE_OR_DIRECTORY | FILE_OR_INPUT, "the context", err);
    if (fd == -(int)ERROR_NOT_FOUND)
        return error_set(err, ERROR_NOT_FOUND,
            "the context %.100s does not exist; give a file, a directory, or - for standard input",
            path);
    if (fd < 0)
        return fd;
    if (fstat(fd, st) < 0)
        return error_set_errno(err, ERROR_IO, "the context %.100s could not be read", path);
    if (S_ISREG(st->st_mode) && (uint64_t)st->st_size > most)
        return context_too_large(path, most, err);
    return steal_fd(&fd);
}

static uint64_t context_most(const struct context_filter *filter)
{
    return filter && filter->most ? filter->most : default_most;
}

int context_look(const char *path, const struct context_filter *filter, struct error *err)
{
    struct stat st;
    cleanup_fd int fd = open_context(path, context_most(filter), &st, err);
    return fd < 0 ? fd : 0;
}

int context_load(const char *path, enum value_kind kind, const struct context_filter *filter,
    struct context **out, struct error *err)
{
    __attribute__((cleanup(cleanup_context))) struct context *c = NULL;
    bool is_stdin = strcmp(path, "-") == 0;
    uint64_t most = context_most(filter);
    struct stat st;
    cleanup_fd int fd = open_context(path, most, &st, err);
    if (fd < 0)
        return fd;
    bool is_directory = S_ISDIR(st.st_mode);
    if (kind == VALUE_AUTO && !is_stdin)
        kind = kind_by_name(path);
    int rc =
        context_new(is_stdin ? "standard input" : path, is_directory ? VALUE_FILES : kind, &c, err);
    bool has_path = !is_stdin && st.st_nlink > 0; /* memory files have none (cli/pipes.c) */
    if (rc == 0 && has_path && !(c->path = realpath(path, NULL)))
        rc = cannot_read(path, err);
    if (rc == 0)
        rc = is_directory ? load_directory(c, path, filter, err)
                          : copy_all(fd, c->fd, path, filter, most, err);
    if (rc == 0)
        rc = context_seal(c, err);
    if (rc == 0)
        *out = steal(&c);
    return rc;
}

int context_keep(
    const struct context *c, char hash[HASH_TEXT_SIZE], struct buf *kept, struct error *err)
{
    enum { PIECE = 1 << 20 };
    cleanup_hash struct hash sum = { 0 };
    cleanup_free char *data = malloc(PIECE);
    bool keep = !c->path && c->len <= CONTEXT_KEPT_MAX;
    int rc = data ? hash_open(&sum, err) : error_memory(err);
    if (rc < 0)
        return rc;
    for (size_t at = 0; at < c->len;) {
        ssize_t n = pread(c->fd, data, PIECE, (off_t)at);
        if (n <= 0)
            return error_set_errno(err, ERROR_IO, "reading the context");
        hash_add(&sum, data, (size_t)n);
        if (keep)
            buf_append(kept, data, (size_t)n);
        at += (size_t)n;
    }
    if (buf_failed(kept))
        return error_memory(err);
    return hash_take(&sum, hash, err);
}

char *context_notice(const struct context *c)
{
    struct buf text = { 0 };
    if (c->left_out == 0)
        return NULL;
    buf_printf(&text, "%llu of %llu files were left out of the context, the first: %.200s",
        (unsigned long long)c->left_out, (unsigned long long)(c->left_out + c->files),
        c->first_left_out ? c->first_left_out : "?");
    return buf_steal(&text);
}

int context_set(const struct context *c, struct session *s, const char *const *names,
    size_t name_count, session_done_fn *done, void *arg, struct error *err)
{
    int fd = c->len > 0 ? fcntl(c->fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (c->len > 0 && fd < 0)
        return error_set_errno(err, ERROR_IO, "passing the context to the guest");
    return session_set(s, names, name_count, c->kind, "", c->len, fd, done, arg, err);
}

int context_hides_tool(const char *name, struct error *err)
{
    return error_set(err, ERROR_ARGUMENT,
        "the context '%.64s' has the same name as a tool or tool-data: rename one of them", name);
}

int context_refused(
    const struct context *context, const struct cell_result *result, struct error *err)
{
    const struct cell_error *e = &result->error;
    if (e->type)
        return error_set(err, ERROR_ARGUMENT,
            "the context %.100s is not of the requested type; give another --context-type (%s: %s)",
            context ? context->source : "(none)", e->type, e->message);
    if (err)
        *err = result->reason;
    return -(int)result->reason.code;
}
