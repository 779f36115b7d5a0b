/* serve/jupyter/contents_files.c: reads, writes, makes, renames and removes files for clients. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/json/fields.h"
#include "base/os/beneath.h"
#include "base/os/file.h"
#include "base/text.h"
#include "serve/jupyter/contents.h"
#include "serve/jupyter/notebook.h"

static const char contents_new_notebook[] =
    "{\n \"cells\": [],\n \"metadata\": {},\n \"nbformat\": "
    "4,\n \"nbformat_minor\": 5\n}\n";

/* Of a file, as it is now. False: the request was refused. */
static bool contents_hash(
    struct contents_job *job, const struct contents_place *p, char out[HASH_TEXT_SIZE])
{
    cleanup_hash struct hash hash = { 0 };
    cleanup_fd int fd = contents_open_file(p->directory, p->name);
    char data[65536];
    ssize_t n = fd < 0 || hash_open(&hash, NULL) < 0 ? -1 : 1;
    for (uint64_t all = 0; n > 0; all += (uint64_t)n) {
        n = all > CONTENTS_FILE_MAX ? -1 : read(fd, data, sizeof data);
        if (n < 0 && all > CONTENTS_FILE_MAX)
            errno = EFBIG;
        if (n > 0)
            hash_add(&hash, data, (size_t)n);
    }
    if (n == 0 && hash_take(&hash, out, NULL) == 0)
        return true;
    contents_fail(job, p->path);
    return false;
}

/* Answers with what is there now. */
static void contents_answer(struct contents_job *job, struct contents_place *p, unsigned status)
{
    if (contents_look(p) < 0) {
        contents_fail(job, p->path);
        return;
    }
    contents_put_model(&job->out, p, contents_type(p));
    job->status = status;
    job->location = status == 201 ? strdup(p->path) : NULL;
}

/* ---- reading ---- */

static void contents_put_listing(struct contents_job *job, const struct contents_place *p)
{
    const char *name;
    size_t count = 0;
    struct contents_place entry = { .directory = open_beneath(
                                        p->directory, p->name, O_RDONLY | O_DIRECTORY, 0) };
    int fd = entry.directory < 0 ? -1 : fcntl(entry.directory, F_DUPFD_CLOEXEC, 3);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (!listing) {
        contents_fail(job, p->path);
        close_fd(&fd);
        close_fd(&entry.directory);
        return;
    }
    field_open(&job->out, "content", '[');
    while ((name = next_listed(listing)) && count <= CONTENTS_ENTRIES) {
        cleanup_free char *path = text_printf("%s%s%s", p->path, p->path[0] ? "/" : "", name);
        snprintf(entry.name, sizeof entry.name, "%s", name);
        /* What no path can name is not listed. */
        if (!path || !contents_may_name(name) || contents_look(&entry) < 0)
            continue;
        entry.path = path;
        contents_put_model(&job->out, &entry, contents_type(&entry));
        entry.path = NULL;
        count++;
    }
    field_close(&job->out, ']');
    closedir(listing);
    close_fd(&entry.directory);
    if (count > CONTENTS_ENTRIES)
        contents_refuse(job, 413, "too_large", "%s: a directory of more than %d entries", p->path,
            CONTENTS_ENTRIES);
}

static void contents_put_text(
    struct contents_job *job, const struct contents_place *p, const struct buf *bytes)
{
    bool is_text = strcmp(job->format, "base64") != 0 &&
                   text_is_utf8(buf_text(bytes), bytes->len, NULL) &&
                   (job->format[0] || !memchr(buf_text(bytes), '\0', bytes->len));
    const char *media = contents_media_type(p->name);
    if (!is_text && strcmp(job->format, "text") == 0) {
        contents_refuse(job, 400, "format", "%s is not UTF-8 text", p->path);
        return;
    }
    field_key(&job->out, "content");
    if (is_text) {
        json_append_string(&job->out, buf_text(bytes), bytes->len);
    } else {
        buf_putc(&job->out, '"');
        json_append_base64(&job->out, buf_text(bytes), bytes->len);
        buf_putc(&job->out, '"');
    }
    field_string(&job->out, "format", is_text ? "text" : "base64");
    field_string(&job->out, "mimetype",
        media     ? media
        : is_text ? "text/plain"
                  : "application/octet-stream");
}

static void contents_put_content(
    struct contents_job *job, const struct contents_place *p, bool is_notebook)
{
    struct error err = { 0 };
    cleanup_buf struct buf bytes = { 0 };
    cleanup_fd int fd = contents_open_file(p->directory, p->name);
    if (fd < 0) {
        contents_fail(job, p->path);
    } else if (p->st.st_size > CONTENTS_MAX) {
        contents_refuse(job, 413, "too_large", "%s is larger than %d MiB; 'content=0' describes it",
            p->path, CONTENTS_MAX >> 20);
    } else if (file_read_fd(fd, p->path, CONTENTS_MAX, &bytes, &err) < 0) {
        contents_refuse(job, 500, "io", "%s", err.text);
    } else if (!is_notebook) {
        contents_put_text(job, p, &bytes);
    } else {
        field_key(&job->out, "content");
        if (!notebook_read(buf_text(&bytes), bytes.len, &job->out, &err))
            contents_refuse(job, 400, "notebook", "%s: %s", p->path, err.text);
        field_string(&job->out, "format", "json");
        field_null(&job->out, "mimetype");
    }
}

void contents_get(struct contents_job *job)
{
    cleanup_place struct contents_place p = { .directory = -1 };
    if (!contents_find(job, job->path, &p))
        return;
    const char *type = contents_type(&p);
    char text[HASH_TEXT_SIZE];
    const char *hash = NULL;
    bool is_directory = S_ISDIR(p.st.st_mode);
    if (job->type[0] && is_directory != (strcmp(job->type, "directory") == 0)) {
        contents_refuse(job, 400, "type", "%s is a %s", p.path, type);
        return;
    }
    if (job->type[0])
        type = job->type;
    job->status = 200;
    if (job->has_hash && !is_directory) {
        if (!contents_hash(job, &p, text))
            return;
        hash = text;
    }
    if (!job->has_content) {
        contents_put_empty(&job->out, &p, type, hash);
        return;
    }
    contents_put_head(&job->out, &p, type, hash);
    if (is_directory) {
        contents_put_listing(job, &p);
        field_string(&job->out, "format", "json");
        field_null(&job->out, "mimetype");
    } else {
        contents_put_content(job, &p, strcmp(type, "notebook") == 0);
    }
    field_close(&job->out, '}');
}

void contents_download(struct contents_job *job)
{
    cleanup_place struct contents_place p = { .directory = -1 };
    struct stat st;
    if (!contents_find(job, job->path, &p))
        return;
    job->file = contents_open_file(p.directory, p.name);
    if (job->file < 0 || fstat(job->file, &st) < 0) {
        contents_fail(job, p.path);
        return;
    }
    const char *media = contents_media_type(p.name);
    job->status = 200;
    job->size = (uint64_t)st.st_size;
    job->media = media ? media : "application/octet-stream";
}

/* ---- writing ---- */

/* Decodes base64 that may be in lines, as Python's encodebytes writes it. */
static bool contents_decode(const char *text, size_t len, struct buf *out)
{
    cleanup_buf struct buf whole = { 0 };
    size_t n = 0;
    for (const char *end = text + len, *at = text; at < end; at += n + 1) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        n = (size_t)((newline ? newline : end) - at);
        buf_append(&whole, at, n);
    }
    cleanup_free char *bytes = json_base64_bytes(buf_text(&whole), whole.len, &n);
    if (bytes)
        buf_append(out, bytes, n);
    out->failed |= whole.failed;
    return bytes || whole.failed;
}

static bool contents_take_text(
    struct contents_job *job, struct json_object *content, struct buf *out)
{
    const char *format = json_get_string(job->body, "format", "");
    if (!json_object_is_type(content, json_type_string)) {
        contents_refuse(job, 400, "argument", "the content of a file is a string");
        return false;
    }
    const char *text = json_object_get_string(content);
    size_t len = (size_t)json_object_get_string_len(content);
    if (strcmp(format, "text") == 0)
        buf_append(out, text, len);
    else if (strcmp(format, "base64") != 0)
        contents_refuse(job, 400, "format", "the format of a file is 'text' or 'base64'");
    else if (!contents_decode(text, len, out))
        contents_refuse(job, 400, "format", "the content is not base64");
    return !job->code;
}

/* The bytes of the file. False: the body has none, and the request was refused. */
static bool contents_take_bytes(struct contents_job *job, bool is_notebook, struct buf *out)
{
    struct error err = { 0 };
    struct json_object *content = NULL;
    json_object_object_get_ex(job->body, "content", &content);
    if (is_notebook && !notebook_write(content, out, &err))
        contents_refuse(job, 400, "notebook", "the content: %s", err.text);
    if (!job->code && !is_notebook && !contents_take_text(job, content, out))
        return false;
    if (buf_failed(out))
        contents_refuse(job, 503, "memory", "out of memory");
    else if (out->len > CONTENTS_MAX)
        contents_refuse(job, 413, "too_large",
            "the file is larger than %d MiB; upload it in chunks", CONTENTS_MAX >> 20);
    return !job->code;
}

static int contents_write(int directory, const char *name, const struct buf *bytes)
{
    cleanup_draft struct contents_draft d = { .fd = -1 };
    if (contents_draft_open(&d, directory) < 0 ||
        file_write_all(d.fd, buf_text(bytes), bytes->len) < 0)
        return -1;
    return contents_draft_place(&d, directory, name, 0);
}

static void contents_put_directory(struct contents_job *job, struct contents_place *p)
{
    bool is_new = mkdirat(p->directory, p->name, 0777) == 0;
    if (!is_new && (errno != EEXIST || contents_look(p) < 0))
        contents_fail(job, p->path);
    else if (!is_new && !S_ISDIR(p->st.st_mode))
        contents_refuse(job, 400, "type", "%s is a file", p->path);
    else
        contents_answer(job, p, is_new ? 201 : 200);
}

void contents_put(struct contents_job *job)
{
    cleanup_place struct contents_place p = { .directory = -1 };
    cleanup_buf struct buf bytes = { 0 };
    if (!contents_enter(job, job->path, &p))
        return;
    const char *type = json_get_string(job->body, "type", "");
    int64_t chunk = json_get_int(job->body, "chunk", 0);
    bool is_notebook = type[0] ? strcmp(type, "notebook") == 0 : contents_ends(p.name, ".ipynb");
    bool is_new = contents_look(&p) < 0;
    if (is_new && errno != ENOENT) {
        contents_fail(job, p.path);
    } else if (strcmp(type, "directory") == 0) {
        contents_put_directory(job, &p);
    } else if (chunk != 0 && is_notebook) {
        contents_refuse(job, 400, "type", "only files are uploaded in chunks");
    } else if (contents_take_bytes(job, is_notebook, &bytes)) {
        if (chunk != 0 && !contents_take_chunk(job, &p, chunk, &bytes))
            return;
        if (chunk == 0 && contents_write(p.directory, p.name, &bytes) < 0)
            contents_fail(job, p.path);
        else
            contents_answer(job, &p, is_new ? 201 : 200);
    }
}

/* ---- making ---- */

/* Copies the file, or writes the text; under a name that must be free. */
static int contents_make(struct contents_place *p, const char *type, const char *text, int from)
{
    if (strcmp(type, "directory") == 0)
        return mkdirat(p->directory, p->name, 0777);
    cleanup_draft struct contents_draft d = { .fd = -1 };
    if (contents_draft_open(&d, p->directory) < 0)
        return -1;
    if (from >= 0 ? lseek(from, 0, SEEK_SET) < 0 || contents_draft_copy(&d, from) < 0
                  : file_write_all(d.fd, text, strlen(text)) < 0)
        return -1;
    return contents_draft_place(&d, p->directory, p->name, RENAME_NOREPLACE);
}

/* Tries BEGIN + END, BEGIN + insert + 1 + END, … A failure is refused. */
static void contents_make_free(
    struct contents_job *job, const char *type, const char *name, const char *insert, int from)
{
    enum { TRIES = 1000 };
    const char *text = strcmp(type, "notebook") == 0 ? contents_new_notebook : "";
    const char *dot = contents_ends(name, ".ipynb") ? strrchr(name, '.') : strchr(name, '.');
    int stem = (int)(dot ? (size_t)(dot - name) : strlen(name));
    for (int i = 0; i < TRIES; i++) {
        cleanup_place struct contents_place p = { .directory = -1 };
        char number[16] = "";
        if (i > 0)
            snprintf(number, sizeof number, "%d", i);
        cleanup_free char *path = text_printf("%s%s%.*s%s%s%s", job->path, job->path[0] ? "/" : "",
            stem, name, i > 0 ? insert : "", number, name + stem);
        if (!path)
            contents_refuse(job, 503, "memory", "out of memory");
        if (!path || !contents_enter(job, path, &p))
            return;
        if (contents_look(&p) == 0)
            continue;
        int rc = errno == ENOENT ? contents_make(&p, type, text, from) : -1;
        if (rc == 0) {
            contents_answer(job, &p, 201);
            return;
        }
        if (errno == EEXIST || errno == ELOOP || errno == EBADF) /* whatever has the name */
            continue;
        contents_fail(job, path);
        return;
    }
    contents_refuse(job, 409, "exists", "there are %d files of this name", TRIES);
}

static void contents_copy(struct contents_job *job, const char *from)
{
    cleanup_place struct contents_place p = { .directory = -1 };
    cleanup_free char *path = NULL;
    if (!contents_take_path(job, from, &path) || !contents_find(job, path, &p))
        return;
    cleanup_fd int fd = contents_open_file(p.directory, p.name);
    if (fd < 0)
        contents_fail(job, path);
    else
        contents_make_free(job, contents_type(&p), p.name, "-Copy", fd);
}

void contents_post(struct contents_job *job)
{
    cleanup_place struct contents_place p = { .directory = -1 };
    if (!contents_find(job, job->path, &p))
        return;
    if (!S_ISDIR(p.st.st_mode)) {
        contents_refuse(job, 400, "type", "%s is a file; use PUT", job->path);
        return;
    }
    const char *from = json_get_string(job->body, "copy_from", "");
    const char *type = json_get_string(job->body, "type", "");
    const char *ext = json_get_string(job->body, "ext", "");
    if (from[0]) {
        contents_copy(job, from);
        return;
    }
    if (strcmp(type, "directory") == 0) {
        contents_make_free(job, type, "Untitled Folder", " ", -1);
    } else if (strcmp(type, "notebook") == 0 || strcmp(ext, ".ipynb") == 0) {
        contents_make_free(job, "notebook", "Untitled.ipynb", "", -1);
    } else {
        cleanup_free char *name = text_printf("untitled%s", ext);
        if (name && contents_may_name(name))
            contents_make_free(job, "file", name, "", -1);
        else
            contents_refuse(job, 400, "argument", "this is no ending of a name");
    }
}

/* ---- renaming and removing ---- */

void contents_rename(struct contents_job *job)
{
    cleanup_place struct contents_place old = { .directory = -1 }, p = { .directory = -1 };
    cleanup_free char *path = NULL;
    if (!contents_take_path(job, json_get_string(job->body, "path", ""), &path) ||
        !contents_find(job, job->path, &old) || !contents_enter(job, path, &p))
        return;
    if (!job->path[0] || !path[0]) {
        contents_refuse(job, 400, "argument", "the directory itself has no other name");
        return;
    }
    if (strcmp(path, job->path) != 0) {
        if (renameat2(old.directory, old.name, p.directory, p.name, RENAME_NOREPLACE) < 0) {
            contents_fail(job, path);
            return;
        }
        contents_move_checkpoint(&old, &p);
    }
    contents_answer(job, &p, 200);
}

void contents_delete(struct contents_job *job)
{
    cleanup_place struct contents_place p = { .directory = -1 };
    if (!contents_find(job, job->path, &p))
        return;
    bool is_directory = S_ISDIR(p.st.st_mode);
    if (!job->path[0]) {
        contents_refuse(job, 400, "argument", "the directory itself stays");
        return;
    }
    if (is_directory)
        contents_clear_checkpoints(&p);
    if (unlinkat(p.directory, p.name, is_directory ? AT_REMOVEDIR : 0) < 0) {
        contents_fail(job, p.path);
        return;
    }
    if (!is_directory)
        contents_forget_checkpoint(&p);
    job->status = 204;
}
