/* export/export.c: runs in a file, in one of the formats. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "droste.h"
#include "export/lines.h"
#include "export/otlp.h"
#include "export/page.h"
#include "base/error.h"

static int export_write(
    droste_record *record, const droste_export *runs, FILE *file, droste_error *err)
{
    static int (*const formats[])(
        droste_record *, const droste_export *, FILE *, droste_error *) = {
        [DROSTE_EXPORT_JSONL] = lines_write,
        [DROSTE_EXPORT_HTML] = page_write,
        [DROSTE_EXPORT_OTLP] = otlp_write,
    };
    int rc = formats[runs->format](record, runs, file, err);
    bool failed = fclose(file) != 0;
    return failed && rc == 0 ? error_set_errno(err, ERROR_IO, "writing") : rc;
}

int droste_record_export_fd(
    droste_record *record, const droste_export *runs, int fd, droste_error *err)
{
    cleanup_fd int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0)
        return error_set_errno(err, ERROR_IO, "exporting");
    FILE *file = fdopen(copy, "w");
    if (!file)
        return error_memory(err);
    steal_fd(&copy);
    return export_write(record, runs, file, err);
}

/* A draft in the same directory, readable by its owner only, which is renamed at the end. */
static int export_replace(
    droste_record *record, const droste_export *runs, const char *path, droste_error *err)
{
    struct buf name = { 0 };
    buf_printf(&name, "%s.XXXXXX", path);
    cleanup_free char *draft = buf_steal(&name);
    if (!draft)
        return error_memory(err);
    cleanup_fd int fd = mkostemp(draft, O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(err, ERROR_IO, "creating %.160s", path);
    int rc = droste_record_export_fd(record, runs, fd, err);
    if (rc == 0 && rename(draft, path) < 0)
        rc = error_set_errno(err, ERROR_IO, "renaming %.80s", draft);
    if (rc < 0)
        unlink(draft);
    return rc;
}

/* A device or a pipe stays what it is. */
static int export_append(
    droste_record *record, const droste_export *runs, const char *path, droste_error *err)
{
    cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return error_set_errno(err, ERROR_IO, "opening %.160s", path);
    return droste_record_export_fd(record, runs, fd, err);
}

int droste_record_export(
    droste_record *record, const droste_export *runs, const char *path, droste_error *err)
{
    struct stat st;
    bool replaces = stat(path, &st) < 0 || S_ISREG(st.st_mode);
    droste_error why = { 0 };
    int rc = replaces ? export_replace(record, runs, path, &why)
                      : export_append(record, runs, path, &why);
    return rc < 0
               ? error_set(err, (enum error_code)why.code, "exporting to %.80s: %s", path, why.text)
               : 0;
}
