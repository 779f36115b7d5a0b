/* serve/native/export.c: a run as other programs read it, written beside the loop. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "serve/native/runs.h"
#include "serve/http/request.h"
#include "serve/http/work.h"

struct export_job {
    struct work w;
    char id[SERVE_ID_SIZE];
    char *database;
    const struct export_kind *kind;
    int fd, rc;
    uint64_t size;
    droste_error err;
};

static const struct export_kind {
    const char *name;
    enum droste_export_format format;
    const char *type;
} export_kinds[] = {
    { "jsonl", DROSTE_EXPORT_JSONL, "application/jsonl" },
    { "html", DROSTE_EXPORT_HTML, "text/html; charset=utf-8" },
    { "otlp", DROSTE_EXPORT_OTLP, "application/jsonl" },
};

static int export_write(struct export_job *job, droste *d, droste_error *err)
{
    const char *runs = job->id;
    const droste_export what = { .runs = &runs, .count = 1, .format = job->kind->format };
    droste_record *record = NULL;
    int rc = droste_set(d, "database", job->database, err);
    if (rc == 0)
        rc = droste_record_open(d, &record, err);
    if (rc == 0 && !record) {
        *err = (droste_error){ .code = DROSTE_ERROR_NOT_FOUND, .text = "there are no runs" };
        rc = -1;
    }
    if (rc == 0)
        rc = droste_record_export_fd(record, &what, job->fd, err);
    droste_record_close(record);
    return rc;
}

static void export_run(struct work *w)
{
    struct export_job *job = (struct export_job *)w;
    struct stat st;
    droste *d = NULL;
    job->rc = droste_new(&d, &job->err);
    if (job->rc == 0)
        job->rc = export_write(job, d, &job->err);
    droste_free(d);
    if (job->rc == 0 && fstat(job->fd, &st) == 0)
        job->size = (uint64_t)st.st_size;
    lseek(job->fd, 0, SEEK_SET);
}

static void export_free(struct export_job *job)
{
    close_fd(&job->fd);
    free(job->database);
    free(job);
}

/* A page shows what models and guests wrote: a browser is to keep it, not to show it as one of this
 * server's. */
static void export_reply(struct request *r, struct export_job *job)
{
    cleanup_free char *name =
        text_printf("attachment; filename=\"run-%s.%s\"", job->id, job->kind->name);
    request_reply_fd(r, job->kind->type, steal_fd(&job->fd), job->size);
    if (name)
        request_header(r, MHD_HTTP_HEADER_CONTENT_DISPOSITION, name);
}

static void export_end(struct work *w)
{
    struct export_job *job = (struct export_job *)w;
    if (w->r && job->rc < 0)
        request_fail(w->r, &job->err);
    else if (w->r)
        export_reply(w->r, job);
    export_free(job);
}

static const struct export_kind *export_kind_named(const char *name)
{
    for (size_t i = 0; name && i < array_length(export_kinds); i++)
        if (strcmp(export_kinds[i].name, name) == 0)
            return &export_kinds[i];
    return NULL;
}

void handle_run_export(struct request *r)
{
    const char *format = request_query(r, "format", export_kinds[0].name);
    const struct export_kind *kind = export_kind_named(format);
    droste_error err;
    if (!format || !runs_find(r))
        return;
    if (!kind) {
        request_refuse(r, 400, "argument", "format is jsonl, html or otlp");
        return;
    }
    struct export_job *job = calloc(1, sizeof *job);
    const char *path = droste_record_path(r->server->d, &err);
    cleanup_free char *directory =
        path ? text_copy(path, (size_t)(strrchr(path, '/') ? strrchr(path, '/') - path : 0)) : NULL;
    if (!job || !directory) {
        free(job);
        request_refuse_memory(r);
        return;
    }
    *job = (struct export_job){
        .w = { .server = r->server, .r = r, .run = export_run, .end = export_end },
        .database = strdup(path),
        .kind = kind,
        .fd = work_file(directory[0] ? directory : ".")
    };
    memcpy(job->id, r->id, sizeof job->id);
    if (job->database && job->fd >= 0) {
        work_start(&job->w);
        return;
    }
    request_refuse(r, 503, "storage", "a file for the export cannot be made: %s", strerror(errno));
    export_free(job);
}
