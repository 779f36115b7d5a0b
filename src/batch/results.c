/* batch/results.c: reads, repairs and appends to the file of results. */
#include "batch/results.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/line_reader.h"
#include "base/os/file.h"
#include "batch/tasks.h"

int results_open(const char *path, struct results **out, struct error *err)
{
    struct results *r = calloc(1, sizeof *r);
    if (!r)
        return error_memory(err);
    int rc = 0;
    r->fd = file_open(path, O_RDWR | O_CREAT | O_APPEND, 0, "the results file", err);
    if (r->fd < 0)
        rc = r->fd;
    else if (flock(r->fd, LOCK_EX | LOCK_NB) < 0)
        rc = errno == EWOULDBLOCK
                 ? error_set(err, ERROR_ARGUMENT, "another batch is writing to %.120s", path)
                 : error_set_errno(err, ERROR_IO, "locking the results %.120s", path);
    else if (!(r->path = realpath(path, NULL)))
        rc = error_set_errno(err, ERROR_IO, "finding the results %.120s", path);
    if (rc < 0) {
        results_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

void results_close(struct results *r)
{
    if (!r)
        return;
    close_fd(&r->fd);
    free(r->path);
    free(r);
}

/* ---- what is in it ---- */

struct reading {
    struct results *results;
    result_fn *fn;
    void *arg;
    struct buf *notice;
};

static int results_repair(struct reading *r, const struct line *line, bool whole, struct error *err)
{
    struct results *results = r->results;
    if (whole)
        return results_append(results, "", 0, err);
    if (ftruncate(results->fd, line->at) < 0)
        return error_set_errno(
            err, ERROR_IO, "removing the incomplete last line of %.100s", results->path);
    buf_printf(
        r->notice, "removed the incomplete last line of %s: %zu bytes", results->path, line->len);
    return 0;
}

/* What a batch leaves when it is killed begins like every result (slot.c), or is zeros after a loss
 * of power, and is never whole JSON. Anything else is not ours to remove. */
static bool results_is_torn(const struct line *line, bool is_json)
{
    static const char begin[] = "{\"id\":";
    size_t n = line->len < sizeof begin - 1 ? line->len : sizeof begin - 1;
    bool zeros = line->text[0] == '\0' && memcmp(line->text, line->text + 1, line->len - 1) == 0;
    return !is_json && (zeros || memcmp(line->text, begin, n) == 0);
}

static int results_take_line(void *arg, const struct line *line, struct error *err)
{
    struct reading *r = arg;
    cleanup_json struct json_object *o = NULL;
    struct json_object *value = NULL;
    char id[TASK_ID_MAX + 1];
    bool number;
    if (line_is_blank(line))
        return 0;
    bool is_json = json_parse(line->text, line->len, &json_limits_large, &o, NULL) == 0;
    bool good = is_json && json_object_is_type(o, json_type_object) &&
                json_object_object_get_ex(o, "id", &value) && task_id(value, id, &number) &&
                json_get_string(o, "status", NULL);
    if (!line->whole && (good || results_is_torn(line, is_json))) {
        int rc = results_repair(r, line, good, err);
        if (rc < 0 || !good)
            return rc;
    }
    if (!good)
        return error_set(err, ERROR_ARGUMENT,
            "%.120s, line %zu: this is not a result of a batch; give --out another file",
            r->results->path, line->number);
    return r->fn(r->arg, id, o, err);
}

int results_read(
    struct results *results, result_fn *fn, void *arg, struct buf *notice, struct error *err)
{
    struct reading r = { results, fn, arg, notice };
    return line_reader_read(results->fd, results->path, results_take_line, &r, err);
}

/* ---- what comes to it ---- */

int results_append(struct results *r, const char *line, size_t len, struct error *err)
{
    cleanup_buf struct buf whole = { 0 };
    struct stat before;
    buf_append(&whole, line, len);
    buf_putc(&whole, '\n');
    if (buf_failed(&whole))
        return error_memory(err);
    if (fstat(r->fd, &before) < 0)
        return error_set_errno(err, ERROR_IO, "writing %.120s", r->path);
    ssize_t n;
    do
        n = write(r->fd, whole.data, whole.len);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)whole.len) {
        r->dirty = true;
        return 0;
    }
    int rc = n < 0 ? error_set_errno(err, ERROR_IO, "writing %.120s", r->path)
                   : error_set(err, ERROR_IO, "writing %.120s: no space left", r->path);
    if (n > 0)
        (void)!ftruncate(r->fd, before.st_size); /* otherwise the next process repairs it */
    return rc;
}

int results_sync(struct results *r, struct error *err)
{
    if (!r->dirty)
        return 0;
    r->dirty = false;
    if (fdatasync(r->fd) < 0)
        return error_set_errno(err, ERROR_IO, "writing %.120s", r->path);
    return 0;
}
