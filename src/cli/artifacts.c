/* cli/artifacts.c: see artifacts.h.
 *
 * The names came from a sandbox. The library has checked them, but a record may be changed.
 */
#include "cli/artifacts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/volume_copy.h"

struct artifacts_save {
    droste_record *record;
    const char *path;   /* in the sandbox, without slashes at its ends; "": all */
    const char *target; /* of what has this path */
    size_t found;
    uint64_t bytes;
    size_t missing; /* whose contents the record does not have */
};

static bool artifact_name_ok(const char *name)
{
    for (const char *at = name; at; at = strchr(at, '/')) {
        at += *at == '/';
        size_t len = strcspn(at, "/");
        if (len == 0 || (len == 1 && at[0] == '.') || (len == 2 && at[0] == '.' && at[1] == '.'))
            return false;
    }
    return true;
}

struct recorded_file {
    int fd, failed; /* errno of a write; 0: none */
};

static int recorded_write_piece(void *arg, const char *data, size_t len)
{
    struct recorded_file *file = arg;
    file->failed = file_write_all(file->fd, data, len) < 0 ? errno : 0;
    return file->failed;
}

int cli_write_recorded(
    droste_record *record, const droste_value *value, int fd, const char *path, droste_error *err)
{
    struct recorded_file file = { .fd = fd };
    int rc = droste_record_read(record, value, SIZE_MAX, recorded_write_piece, &file, err);
    errno = file.failed;
    return file.failed ? error_set_errno(err, ERROR_IO, "writing %.200s", path) : rc;
}

static int artifact_open(struct buf *path, struct error *err)
{
    char *last = strrchr(path->data, '/');
    if (last && last != path->data) {
        *last = '\0';
        int rc = file_make_directories(path->data, err);
        *last = '/';
        if (rc < 0)
            return rc;
    }
    return file_open(path->data, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0, "the artifact", err);
}

/* `rest` is the name below the target; "": the target itself. */
static int artifact_save(struct artifacts_save *s, const droste_record_artifact *artifact,
    const char *rest, droste_error *err)
{
    cleanup_buf struct buf path = { 0 };
    if (!artifact_name_ok(artifact->name + (artifact->name[0] == '/')))
        return error_set(err, ERROR_STORE, "the record has a damaged artifact name");
    if (rest[0] && strcmp(s->target, "-") == 0)
        return error_set(err, ERROR_ARGUMENT,
            "only one file can be written to standard output; name a directory");
    buf_printf(&path, "%s%s%s", s->target, rest[0] ? "/" : "", rest);
    if (buf_failed(&path))
        return error_memory(err);
    cleanup_fd int fd =
        strcmp(path.data, "-") == 0 ? dup(STDOUT_FILENO) : artifact_open(&path, err);
    if (fd < 0)
        return fd;
    return cli_write_recorded(s->record, &artifact->value, fd, path.data, err);
}

/* The name below the path that is wanted; NULL: it is not below it. */
static const char *artifact_rest(const struct artifacts_save *s, const char *name)
{
    size_t len = strlen(s->path);
    name += name[0] == '/';
    if (len == 0)
        return name;
    if (strncmp(name, s->path, len) != 0 || (name[len] != '/' && name[len] != '\0'))
        return NULL;
    return name + len + (name[len] == '/');
}

static int artifacts_take(void *arg, const droste_record_run *run, droste_error *err)
{
    struct artifacts_save *s = arg;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < run->artifact_count; i++) {
        const char *rest = artifact_rest(s, run->artifacts[i].name);
        if (!rest)
            continue;
        s->found++;
        s->bytes += (uint64_t)run->artifacts[i].size;
        if (run->artifacts[i].value.hash)
            rc = artifact_save(s, &run->artifacts[i], rest, err);
        else
            s->missing++;
    }
    return rc;
}

static int artifacts_save(struct artifacts_save *s, const char *run, droste_error *err)
{
    static const droste_record_visitor visitor = { .end = artifacts_take, .lazy = true };
    return droste_record_visit(s->record, run, &visitor, s, err);
}

int cli_save_artifacts(droste_record *record, const char *run, const char *dir, droste_error *err)
{
    struct artifacts_save s = { .record = record, .path = "", .target = dir };
    int rc = artifacts_save(&s, run, err);
    if (rc == 0)
        cli_note("saved %zu artifact%s below %s", s.found - s.missing,
            text_plural((int64_t)(s.found - s.missing)), dir);
    if (rc == 0 && s.missing > 0)
        cli_note(
            "%zu artifacts are not in the record: they did not fit (max-record-size)", s.missing);
    return rc;
}

int cli_copy_artifacts(droste_record *record, const char *run, const char *path, const char *target,
    droste_volume_count *count, droste_error *err)
{
    cleanup_buf struct buf to = { 0 };
    cleanup_free char *wanted = strdup(path + strspn(path, "/"));
    if (!wanted)
        return error_memory(err);
    for (size_t len = strlen(wanted); len > 0 && wanted[len - 1] == '/';)
        wanted[--len] = '\0';
    if (!wanted[0])
        buf_puts(&to, target);
    else if (cli_copy_target(wanted, target, &to, err) < 0)
        return -err->code;
    if (buf_failed(&to))
        return error_memory(err);
    struct artifacts_save s = { .record = record, .path = wanted, .target = buf_text(&to) };
    int rc = artifacts_save(&s, run, err);
    if (rc == 0 && s.found == 0)
        return error_set(err, ERROR_NOT_FOUND,
            "run %s has saved no %.160s; `droste runs show %s` lists its artifacts", run,
            wanted[0] ? wanted : "files", run);
    if (rc == 0 && s.missing > 0)
        return error_set(err, ERROR_NOT_FOUND,
            "%zu of %zu artifacts are not in the record: they did not fit (max-record-size)",
            s.missing, s.found);
    *count = (droste_volume_count){ .files = s.found, .bytes = s.bytes };
    return rc;
}
