/* serve/openai/container_files.c: /v1/containers/ID/files: the files of a container's volume. Those
 * that a client has put there have an object among the account's files, which says so. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "serve/openai/container_job.h"
#include "serve/openai/containers.h"
#include "serve/openai/openai.h"

enum { CONTAINER_BODY_MAX = 4096 };

/* ---- a new one ---- */

static void container_refuse_file(struct request *r)
{
    openai_refuse(r, &(struct openai_error){ .status = 404, .code = "not_found", .param = "id" },
        "No such container file: %.80s", r->name);
}

static void container_reply_found(struct request *r, struct container_job *job)
{
    if (job->found)
        request_reply_json(r, 200, steal(&job->found));
    else
        container_refuse_file(r);
}

/* Puts a file of this machine into the request's container. */
static void container_store(struct request *r, const char *path, const char *name, bool is_moved)
{
    struct container_job *job =
        container_job_new(r, r->id, container_put_files, container_reply_found);
    if (!job)
        return;
    job->is_moved = is_moved;
    if (list_add(&job->paths, path, NULL) == 0 && list_add(&job->names, name, NULL) == 0) {
        container_job_start(job);
        return;
    }
    container_job_free(job);
    request_refuse_memory(r);
}

/* It came in among the account's files, within their quota. */
static void container_store_intake(struct intake *in)
{
    struct request *r = in->r;
    cleanup_free char *directory = file_store_directory(r, NULL);
    cleanup_free char *path = directory ? text_printf("%s/.new-%s", directory, in->id) : NULL;
    char name[sizeof in->name];
    if (!path) {
        request_refuse_memory(r);
        return;
    }
    memcpy(name, in->name, sizeof name);
    intake_release(in);
    container_store(r, path, name[0] ? name : "file", true);
}

/* A body of JSON names a stored file. */
static void container_on_piece(struct request *r, const char *data, size_t len)
{
    buf_append(&r->body, data, len);
    if (r->body.len > CONTAINER_BODY_MAX)
        openai_refuse(r, &(struct openai_error){ .status = 413, .code = "too_large" },
            "the body is too large for the id of a file");
}

static void container_on_complete(struct request *r)
{
    cleanup_json struct json_object *o = NULL, *file = NULL;
    json_parse(buf_text(&r->body), r->body.len, &json_limits_small, &o, NULL);
    const char *id = json_get_string(o, "file_id", NULL);
    if (!id) {
        openai_refuse(r, &(struct openai_error){ .status = 400, .code = "form" },
            "send the file as multipart/form-data, or JSON with the file_id of a stored one");
        return;
    }
    cleanup_free char *path = file_store_path(r, id);
    cleanup_fd int directory = path ? file_store_open(r) : -1;
    file = directory < 0 ? NULL : file_store_read(directory, id);
    if (file)
        container_store(r, path, json_get_string(file, "filename", "file"), false);
    else if (!r->reply)
        openai_refuse(r,
            &(struct openai_error){ .status = 404, .code = "file_not_found", .param = "file_id" },
            "this key has no file with that id");
}

void openai_handle_container_file_create(struct request *r)
{
    cleanup_json struct json_object *o = container_use(r);
    const char *type = request_header_of(r, MHD_HTTP_HEADER_CONTENT_TYPE);
    if (!o)
        return;
    if (type && strncasecmp(type, "multipart/form-data", strlen("multipart/form-data")) == 0) {
        intake_begin(r, CONTAINER_FILE_PREFIX, "file", STORE_FILE_MAX, container_store_intake);
        return;
    }
    r->on_piece = container_on_piece;
    r->on_complete = container_on_complete;
}

/* ---- those that are there ---- */

/* Work on the request's file; with "", on all. */
static struct container_job *container_file_job(struct request *r, const char *file,
    int (*act)(struct container_job *job, droste *d, droste_volume *v, droste_error *err),
    void (*reply)(struct request *r, struct container_job *job))
{
    cleanup_json struct json_object *o = container_use(r);
    if (!o)
        return NULL;
    if (file[0] && !file_store_is_id(file, CONTAINER_FILE_PREFIX)) {
        container_refuse_file(r);
        return NULL;
    }
    struct container_job *job = container_job_new(r, r->id, act, reply);
    if (job)
        snprintf(job->file, sizeof job->file, "%.32s", file);
    return job;
}

static void container_reply_page(struct request *r, struct container_job *job)
{
    cleanup_buf struct buf out = { 0 };
    file_page_put(&out, job->found, &job->page);
    request_reply_written(r, 200, &out);
}

void openai_handle_container_file_list(struct request *r)
{
    struct file_page page;
    struct container_job *job =
        file_page_read(r, &page) ? container_file_job(r, "", container_find, container_reply_page)
                                 : NULL;
    if (job)
        job->page = page;
    container_job_start(job);
}

void openai_handle_container_file_get(struct request *r)
{
    container_job_start(container_file_job(r, r->name, container_find, container_reply_found));
}

static int container_read_file(
    struct container_job *job, droste *d, droste_volume *v, droste_error *err)
{
    struct stat st;
    int rc = container_find(job, d, v, err);
    if (rc < 0 || !job->found)
        return rc;
    job->fd = work_file(job->root);
    rc = droste_volume_read(v, job->names.items[0], job->fd, err);
    if (rc == 0 && (fstat(job->fd, &st) < 0 || lseek(job->fd, 0, SEEK_SET) < 0)) {
        *err = (droste_error){ .code = DROSTE_ERROR_IO, .sys = errno };
        snprintf(err->text, sizeof err->text, "reading the file: %s", strerror(errno));
        rc = -1;
    }
    job->bytes = rc == 0 ? (uint64_t)st.st_size : 0;
    return rc;
}

static void container_reply_content(struct request *r, struct container_job *job)
{
    if (job->found)
        request_reply_fd(r, "application/octet-stream", steal_fd(&job->fd), job->bytes);
    else
        container_refuse_file(r);
}

void openai_handle_container_file_content(struct request *r)
{
    container_job_start(
        container_file_job(r, r->name, container_read_file, container_reply_content));
}

static int container_delete_file(
    struct container_job *job, droste *d, droste_volume *v, droste_error *err)
{
    int rc = container_find(job, d, v, err);
    if (rc < 0 || !job->found)
        return rc;
    rc = droste_volume_delete(v, job->names.items[0], err);
    if (rc == 0)
        file_store_remove(job->directory, job->file);
    return rc;
}

static void container_reply_file_deleted(struct request *r, struct container_job *job)
{
    cleanup_buf struct buf out = { 0 };
    if (!job->found) {
        container_refuse_file(r);
        return;
    }
    field_open(&out, NULL, '{');
    field_string(&out, "id", job->file);
    field_string(&out, "object", "container.file.deleted");
    field_bool(&out, "deleted", true);
    field_close(&out, '}');
    request_reply_written(r, 200, &out);
}

void openai_handle_container_file_delete(struct request *r)
{
    container_job_start(
        container_file_job(r, r->name, container_delete_file, container_reply_file_deleted));
}
