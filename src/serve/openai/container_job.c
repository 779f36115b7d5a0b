/* serve/openai/container_job.c: work on the volume of a container, in a thread. */
#include "serve/openai/container_job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/text.h"
#include "serve/openai/openai.h"
#include "serve/sandbox/volume.h"

enum { CONTAINER_ENTRIES = 10000, CONTAINER_DEPTH = 10, CONTAINER_ID_DIGITS = 24 };
enum { CONTAINER_NAME_MAX = 200 };

void container_job_free(struct container_job *job)
{
    if (job->is_moved && job->paths.count > 0)
        unlink(job->paths.items[0]);
    list_clear(&job->paths);
    list_clear(&job->names);
    json_object_put(job->found);
    close_fd(&job->directory);
    close_fd(&job->fd);
    free(job->root);
    free(job);
}

/* Its first file, or the first run, makes the volume. */
static int container_open(
    struct container_job *job, droste *d, droste_volume **v, droste_error *err)
{
    int rc = droste_volume_open(d, job->id, 0, v, err);
    if (rc == 0 || err->code != DROSTE_ERROR_NOT_FOUND)
        return rc;
    if (droste_volume_create(d, job->id, err) < 0 && err->code != DROSTE_ERROR_ARGUMENT)
        return -1;
    return droste_volume_open(d, job->id, 0, v, err);
}

void container_job_run(struct work *w)
{
    struct container_job *job = (struct container_job *)w;
    droste *d = NULL;
    droste_volume *v = NULL;
    job->rc = sandbox_volume_droste(job->root, &d, &job->err);
    if (job->rc == 0)
        job->rc = droste_set(d, "volume-size", job->quota, &job->err);
    if (job->rc == 0 && !job->is_closed)
        job->rc = container_open(job, d, &v, &job->err);
    if (job->rc == 0)
        job->rc = job->act(job, d, v, &job->err);
    droste_volume_close(v);
    droste_free(d);
}

void container_job_end(struct work *w)
{
    struct container_job *job = (struct container_job *)w;
    struct request *r = w->r;
    void (*next)(struct request * r) = job->next;
    bool is_full = job->err.sys == ENOSPC || job->err.sys == EDQUOT;
    if (r && job->rc < 0 && is_full)
        openai_refuse(
            r, &(struct openai_error){ .status = 507, .code = "storage" }, "%s", job->err.text);
    else if (r && job->rc < 0 && job->err.code == DROSTE_ERROR_ARGUMENT)
        openai_refuse(
            r, &(struct openai_error){ .status = 409, .code = "conflict" }, "%s", job->err.text);
    else if (r && job->rc < 0)
        request_fail(r, &job->err);
    else if (r && job->reply)
        job->reply(r, job);
    container_job_free(job);
    if (r && next && !r->reply)
        next(r);
}

struct container_job *container_job_new(struct request *r, const char *id,
    int (*act)(struct container_job *job, droste *d, droste_volume *v, droste_error *err),
    void (*reply)(struct request *r, struct container_job *job))
{
    cleanup_free char *root = sandbox_volume_root(r);
    cleanup_fd int directory = root ? file_store_open(r) : -1;
    struct container_job *job = directory < 0 ? NULL : calloc(1, sizeof *job);
    if (!job) {
        if (!r->reply)
            request_refuse_memory(r);
        return NULL;
    }
    *job = (struct container_job){
        .w = { .server = r->server, .r = r, .run = container_job_run, .end = container_job_end },
        .act = act,
        .reply = reply,
        .root = steal(&root),
        .directory = steal_fd(&directory),
        .fd = -1
    };
    snprintf(job->id, sizeof job->id, "%s", id);
    snprintf(job->quota, sizeof job->quota, "%zuM", r->server->options->files_quota_mib);
    return job;
}

void container_job_start(struct container_job *job)
{
    if (job)
        work_start(&job->w);
}

/* ---- files ---- */

bool container_file_id(char out[STORE_ID_SIZE], const char *container, const char *path)
{
    cleanup_hash struct hash hash = { 0 };
    char text[HASH_TEXT_SIZE];
    if (hash_open(&hash, NULL) < 0)
        return false;
    hash_add(&hash, container, strlen(container) + 1);
    hash_add(&hash, path, strlen(path));
    if (hash_take(&hash, text, NULL) < 0)
        return false;
    snprintf(out, STORE_ID_SIZE, "%s%.*s", CONTAINER_FILE_PREFIX, CONTAINER_ID_DIGITS, text);
    return true;
}

static struct json_object *container_file_object(
    const struct container_job *job, const char *id, const droste_volume_entry *entry)
{
    char mark[STORE_NAME_SIZE];
    cleanup_buf struct buf path = { 0 };
    struct json_object *o = json_object_new_object();
    snprintf(mark, sizeof mark, "%s.json", id);
    buf_puts(&path, "/data/");
    text_append_utf8(&path, entry->path, strlen(entry->path));
    bool is_users = faccessat(job->directory, mark, F_OK, 0) == 0;
    if (o && !buf_failed(&path) && json_put_text(o, "id", id) &&
        json_put_text(o, "object", "container.file") &&
        json_put(o, "created_at", json_object_new_int64(entry->mtime)) &&
        json_put(o, "bytes", json_object_new_int64((int64_t)entry->size)) &&
        json_put_text(o, "container_id", job->id) && json_put_text(o, "path", buf_text(&path)) &&
        json_put_text(o, "source", is_users ? "user" : "assistant"))
        return o;
    json_object_put(o);
    return NULL;
}

/* The last part of a name, without what a name of a file cannot have. */
static void container_file_name(char out[CONTAINER_NAME_MAX + 1], const char *asked)
{
    const char *slash = strrchr(asked, '/'), *name = slash ? slash + 1 : asked;
    size_t len = text_utf8_floor(name, strlen(name), CONTAINER_NAME_MAX);
    memcpy(out, name, len);
    out[len] = '\0';
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)out[i] < 0x20 || out[i] == 0x7f)
            out[i] = '_';
    if (strcmp(out, "") == 0 || strcmp(out, ".") == 0 || strcmp(out, "..") == 0)
        snprintf(out, CONTAINER_NAME_MAX + 1, "file");
}

static int container_take_entry(void *arg, const droste_volume_entry *entry)
{
    struct container_job *job = arg;
    char id[STORE_ID_SIZE];
    if (!S_ISREG(entry->mode) || !container_file_id(id, job->id, entry->path) ||
        (job->file[0] && strcmp(job->file, id) != 0))
        return 0;
    struct json_object *o = container_file_object(job, id, entry);
    if (!o)
        return 1;
    if (!job->file[0])
        return json_object_array_add(job->found, o) < 0;
    json_object_put(job->found);
    job->found = o;
    list_clear(&job->names);
    return list_add(&job->names, entry->path, NULL) < 0;
}

int container_find(struct container_job *job, droste *d, droste_volume *v, droste_error *err)
{
    (void)d;
    if (!job->file[0])
        job->found = json_object_new_array();
    int rc = droste_volume_list(
        v, ".", CONTAINER_DEPTH, CONTAINER_ENTRIES, container_take_entry, job, err);
    return rc < 0 ? rc : 0;
}

static int container_put_file(
    struct container_job *job, droste_volume *v, size_t index, droste_error *err)
{
    char name[CONTAINER_NAME_MAX + 1];
    container_file_name(name, job->names.items[index]);
    cleanup_fd int fd = open(job->paths.items[index], O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        *err = (droste_error){ .code = DROSTE_ERROR_IO, .sys = errno };
        snprintf(err->text, sizeof err->text, "reading a file: %s", strerror(errno));
        return -1;
    }
    int rc = droste_volume_put(v, fd, name, NULL, err);
    if (rc < 0 || !container_file_id(job->file, job->id, name))
        return -1;
    cleanup_json struct json_object *mark = json_object_new_object();
    if (mark && json_put_text(mark, "id", job->file) &&
        json_put_text(mark, "container_id", job->id))
        file_store_write(job->directory, job->file, mark);
    return 0;
}

int container_put_files(struct container_job *job, droste *d, droste_volume *v, droste_error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < job->paths.count; i++)
        rc = container_put_file(job, v, i, err);
    return rc == 0 && job->file[0] ? container_find(job, d, v, err) : rc;
}
