/* serve/native/volumes.c: see volumes.h.
 *
 * What reaches the disk waits in a thread, with a `droste` of its own. A file that comes in is
 * written beside the volumes first, as fast as its client sends it, and copied into its volume when
 * it is whole: a slow client holds neither a thread nor a volume.
 */
#include "serve/native/volumes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/fields.h"
#include "base/os/beneath.h"
#include "base/os/file.h"
#include "base/text.h"
#include "serve/http/nodes.h"
#include "serve/http/relay.h"
#include "serve/native/volume_job.h"
#include "serve/queue/queue.h"
#include "serve/sandbox/owners.h"
#include "serve/sandbox/volume.h"

enum { VOLUMES_MOST = 1000, ENTRIES_MOST = 100000, DEPTH_MOST = 10 };
enum { VOLUME_SIZE_LEAST = 4096, VOLUME_FILES_LEAST = 32 };
static const int64_t volume_size_most = (int64_t)10 << 30, volume_files_most = 100000;

/* ---- jobs ---- */

void volume_job_free(struct volume_job *job)
{
    close_fd(&job->fd);
    buf_free(&job->out);
    free(job->root);
    free(job->path);
    free(job);
}

static int volume_job_open(struct volume_job *job, droste *d, droste_error *err)
{
    droste_volume *v = NULL;
    int rc = 0;
    if (job->size[0])
        rc = droste_set(d, "volume-size", job->size, err);
    if (rc == 0 && job->files[0])
        rc = droste_set(d, "volume-files", job->files, err);
    if (rc == 0 && !job->is_closed)
        rc = droste_volume_open(d, job->name, job->flags, &v, err);
    if (rc == 0)
        rc = job->act(job, d, v, err);
    droste_volume_close(v);
    return rc;
}

static void volume_job_run(struct work *w)
{
    struct volume_job *job = (struct volume_job *)w;
    droste *d = NULL;
    job->rc = sandbox_volume_droste(job->root, &d, &job->err);
    if (job->rc == 0)
        job->rc = volume_job_open(job, d, &job->err);
    droste_free(d);
}

static void volume_fail(struct request *r, const struct volume_job *job)
{
    if (job->err.code == DROSTE_ERROR_NOT_FOUND && !sandbox_volume_exists(job->root, job->name))
        nodes_refuse_absent(r, "volume", job->name, "makes");
    else if (job->err.code == DROSTE_ERROR_ARGUMENT && job->argument_status)
        request_refuse(r, job->argument_status, "conflict", "%s", job->err.text);
    else if (job->err.sys == ENOSPC || job->err.sys == EDQUOT)
        request_refuse(r, 507, "full", "%s", job->err.text);
    else
        request_fail(r, &job->err);
}

void volume_reply(struct request *r, struct volume_job *job)
{
    if (job->rc < 0)
        volume_fail(r, job);
    else if (job->fd >= 0)
        request_reply_fd(r, "application/octet-stream", steal_fd(&job->fd), job->bytes);
    else if (buf_failed(&job->out))
        request_refuse_memory(r);
    else
        request_reply(r, (unsigned)r->route->status, job->out.len ? "application/json" : NULL,
            buf_text(&job->out), job->out.len);
    if (job->rc == 0 && r->route->status == 201)
        request_locate(r, "/v1/volumes/%s", job->name);
}

void volume_job_end(struct work *w)
{
    struct volume_job *job = (struct volume_job *)w;
    if (w->r)
        volume_reply(w->r, job);
    volume_job_free(job);
}

void volume_job_on_gone(struct request *r)
{
    struct volume_job *job = r->state;
    job->w.r = NULL;
    r->state = NULL;
}

/* NULL: the request was refused. */
static struct volume_job *volume_job_new(struct request *r, const char *name,
    int (*act)(struct volume_job *job, droste *d, droste_volume *v, droste_error *err))
{
    cleanup_free char *root = sandbox_volume_root(r);
    struct volume_job *job = root ? calloc(1, sizeof *job) : NULL;
    if (!job) {
        if (root)
            request_refuse_memory(r);
        return NULL;
    }
    *job = (struct volume_job){
        .w = { .server = r->server, .r = r, .run = volume_job_run, .end = volume_job_end },
        .act = act,
        .root = steal(&root),
        .fd = -1
    };
    snprintf(job->name, sizeof job->name, "%s", name);
    return job;
}

struct volume_job *volume_job_of(struct request *r, bool has_path,
    int (*act)(struct volume_job *job, droste *d, droste_volume *v, droste_error *err))
{
    const char *path = has_path ? request_query(r, "path", NULL) : "";
    if (path && has_path && !path[0]) {
        request_refuse(r, 400, "argument", "the path is empty; \".\" is the volume itself");
        return NULL;
    }
    struct volume_job *job = path ? volume_job_new(r, r->name, act) : NULL;
    if (!job)
        return NULL;
    job->path = strdup(path);
    if (!job->path)
        request_refuse_memory(r);
    else if (sandbox_volume_find(r, job->root, job->name))
        return job;
    volume_job_free(job);
    return NULL;
}

void volume_job_start(struct volume_job *job)
{
    if (job)
        work_start(&job->w);
}

/* ---- all of them ---- */

static int volume_describe(struct volume_job *job, droste *d, droste_volume *v, droste_error *err)
{
    droste_volume_usage used;
    int rc = droste_volume_measure(v, &used, err);
    if (rc < 0)
        return rc;
    field_open(&job->out, NULL, '{');
    field_string(&job->out, "name", job->name);
    field_int(&job->out, "size", (int64_t)used.size);
    field_int(&job->out, "files", (int64_t)used.files);
    field_int(&job->out, "size_limit", (int64_t)used.size_limit);
    field_int(&job->out, "files_limit", (int64_t)used.files_limit);
    field_close(&job->out, '}');
    return 0;
}

int volume_count_name(void *arg, const char *name)
{
    size_t *count = arg;
    ++*count;
    return 0;
}

static int volume_make(struct volume_job *job, droste *d, droste_volume *none, droste_error *err)
{
    droste_volume *v = NULL;
    size_t count = 0;
    int rc = droste_volume_names(d, volume_count_name, &count, err);
    if (rc == 0 && count >= VOLUMES_MOST) {
        *err = (droste_error){ .code = DROSTE_ERROR_ARGUMENT };
        snprintf(err->text, sizeof err->text,
            "there are %d volumes, which is the most; remove some", VOLUMES_MOST);
        rc = -1;
    }
    if (rc == 0)
        rc = droste_volume_create(d, job->name, err);
    if (rc == 0)
        rc = droste_volume_open(d, job->name, 0, &v, err);
    if (rc == 0)
        rc = volume_describe(job, d, v, err);
    droste_volume_close(v);
    return rc;
}

/* A limit that the client may set, up to the server's. False: the request was refused. */
static bool volume_take_limit(struct request *r, const char *member, const char *setting,
    int64_t least, int64_t most, char out[VOLUME_NUMBER])
{
    double set = 0;
    if (droste_get_number(r->server->d, setting, &set))
        most = (int64_t)set;
    int64_t asked = json_get_int(r->json, member, most);
    snprintf(out, VOLUME_NUMBER, "%lld", (long long)asked);
    if (asked >= least && asked <= most)
        return true;
    request_refuse(r, 400, "limit", "%s is at most %lld on this server", member, (long long)most);
    return false;
}

/* ---- names, each of which is one node's ---- */

/* See sandbox/owners.h: two nodes cannot make one name. */
static const char volume_names_bucket[] = "droste-volumes";

static void volume_release_claim(const struct volume_job *job)
{
    if (job->claim[0])
        owners_release(job->w.server, job->claim, NULL, NULL);
}

/* The work begins, unless the client has gone or the name is another node's. */
static void volume_claim_end(struct volume_job *job, const struct bus_answer *a)
{
    struct request *r = job->w.r;
    char node[NODE_NAME_SIZE];
    owners_read_node(a->data ? a->data : job->w.server->options->node, node);
    bool is_own = a->result == BUS_OK && strcmp(node, job->w.server->options->node) == 0;
    if (is_own)
        owners_note(job->w.server, job->claim, a->data ? a->data : node, a->sequence);
    if (r) {
        r->on_gone = NULL;
        r->state = NULL;
    }
    if (r && is_own) {
        work_start(&job->w);
        return;
    }
    if (r && a->result == BUS_OK)
        request_refuse(
            r, 409, "conflict", "there is a volume '%s', on the node '%s'", job->name, node);
    else if (r)
        queue_refuse_bus(r, a);
    else if (is_own)
        volume_release_claim(job);
    volume_job_free(job);
}

static void volume_on_claimant(void *arg, const struct bus_answer *a)
{
    volume_claim_end(arg, a);
}

static void volume_on_claimed(void *arg, const struct bus_answer *a)
{
    struct volume_job *job = arg;
    if (a->result == BUS_CONFLICT)
        bus_get(registry_bus(job->w.server->nodes), volume_names_bucket, job->claim,
            volume_on_claimant, job);
    else
        volume_claim_end(job, a);
}

static void volume_claim(struct request *r, struct volume_job *job)
{
    const char *node = r->server->options->node;
    owners_key(queue_key_of(r), job->name, job->claim);
    r->state = job;
    r->on_gone = volume_job_on_gone;
    bus_create(registry_bus(r->server->nodes), volume_names_bucket, job->claim, node, strlen(node),
        volume_on_claimed, job);
}

static void volume_made(struct work *w)
{
    struct volume_job *job = (struct volume_job *)w;
    if (job->rc < 0 && !sandbox_volume_exists(job->root, job->name))
        volume_release_claim(job);
    volume_job_end(w);
}

void handle_volume_create(struct request *r)
{
    const char *name = json_get_string(r->json, "name", "");
    struct volume_job *job = volume_job_new(r, name, volume_make);
    if (!job)
        return;
    job->is_closed = true;
    job->argument_status = 409;
    if (volume_take_limit(
            r, "size_limit", "volume-size", VOLUME_SIZE_LEAST, volume_size_most, job->size) &&
        volume_take_limit(
            r, "files_limit", "volume-files", VOLUME_FILES_LEAST, volume_files_most, job->files)) {
        job->w.end = volume_made;
        if (r->server->nodes)
            volume_claim(r, job);
        else
            volume_job_start(job);
    } else {
        volume_job_free(job);
    }
}

static int volume_put_name(void *arg, const char *name)
{
    struct buf *out = arg;
    field_open(out, NULL, '{');
    field_string(out, "name", name);
    field_close(out, '}');
    return 0;
}

static int volume_list(struct volume_job *job, droste *d, droste_volume *none, droste_error *err)
{
    field_open(&job->out, NULL, '[');
    int rc = droste_volume_names(d, volume_put_name, &job->out, err);
    field_close(&job->out, ']');
    return rc;
}

static void volume_listed(struct work *w)
{
    struct volume_job *job = (struct volume_job *)w;
    struct json_object *list = NULL;
    if (w->r && job->rc == 0)
        (void)json_parse_written(&job->out, &list, NULL);
    if (w->r && job->rc < 0)
        volume_fail(w->r, job);
    else if (w->r)
        relay_gather_shared(w->r, "volumes", list, NULL);
    volume_job_free(job);
}

void handle_volume_list(struct request *r)
{
    struct volume_job *job = volume_job_new(r, "", volume_list);
    if (job) {
        job->is_closed = true;
        job->w.end = volume_listed;
    }
    volume_job_start(job);
}

void handle_volume_get(struct request *r)
{
    volume_job_start(volume_job_of(r, false, volume_describe));
}

/* ---- its limits ---- */

static int volume_limit(struct volume_job *job, droste *d, droste_volume *v, droste_error *err)
{
    int rc = droste_volume_limit(
        v, job->size[0] ? job->size : NULL, job->files[0] ? job->files : NULL, err);
    return rc < 0 ? rc : volume_describe(job, d, v, err);
}

void handle_volume_limit(struct request *r)
{
    struct volume_job *job = volume_job_of(r, false, volume_limit);
    bool has_size = json_object_object_get_ex(r->json, "size_limit", NULL);
    bool has_files = json_object_object_get_ex(r->json, "files_limit", NULL);
    if (!job)
        return;
    if ((!has_size || volume_take_limit(r, "size_limit", "volume-size", VOLUME_SIZE_LEAST,
                          volume_size_most, job->size)) &&
        (!has_files || volume_take_limit(r, "files_limit", "volume-files", VOLUME_FILES_LEAST,
                           volume_files_most, job->files)))
        volume_job_start(job);
    else
        volume_job_free(job);
}

/* ---- removal ---- */

static int volume_end(struct volume_job *job, droste *d, droste_volume *none, droste_error *err)
{
    return droste_volume_remove(d, job->name, err);
}

static void volume_released(void *arg)
{
    struct volume_job *job = arg;
    if (job->w.r) {
        job->w.r->on_gone = NULL;
        job->w.r->state = NULL;
    }
    volume_job_end(&job->w);
}

/* The answer comes when another node can make a volume of that name. */
static void volume_ended(struct work *w)
{
    struct volume_job *job = (struct volume_job *)w;
    if (job->rc < 0 || !job->claim[0]) {
        if (job->claim[0])
            owners_set_gone(w->server, job->claim, false);
        volume_job_end(w);
        return;
    }
    if (w->r) {
        w->r->state = job;
        w->r->on_gone = volume_job_on_gone;
    }
    owners_release(w->server, job->claim, volume_released, job);
}

void handle_volume_delete(struct request *r)
{
    struct volume_job *job = volume_job_of(r, false, volume_end);
    if (job) {
        job->is_closed = true;
        job->argument_status = 409; /* it is in use */
        job->w.end = volume_ended;
        if (r->server->nodes) {
            owners_key(queue_key_of(r), job->name, job->claim);
            owners_set_gone(r->server, job->claim, true);
        }
    }
    volume_job_start(job);
}

/* ---- a file ---- */

/* A regular file that may be opened as it is; what cannot, the library copies, or says why not. */
static int volume_open_file(const droste_volume *v, const char *path)
{
    const char *below = text_below(path, "/data");
    cleanup_fd int directory =
        open(droste_volume_path(v), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    cleanup_fd int fd =
        directory < 0 ? -1 : open_beneath(directory, below ? below : path, O_RDONLY, 0);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return -1;
    return steal_fd(&fd);
}

static int volume_read(struct volume_job *job, droste *d, droste_volume *v, droste_error *err)
{
    struct stat st;
    int rc = 0;
    job->fd = volume_open_file(v, job->path);
    if (job->fd < 0) {
        job->fd = work_file(job->root);
        rc = droste_volume_read(v, job->path, job->fd, err);
    }
    if (rc == 0 && (fstat(job->fd, &st) < 0 || lseek(job->fd, 0, SEEK_SET) < 0)) {
        *err = (droste_error){ .code = DROSTE_ERROR_IO, .sys = errno };
        snprintf(err->text, sizeof err->text, "reading the file: %s", strerror(errno));
        rc = -1;
    }
    job->bytes = rc == 0 ? (uint64_t)st.st_size : 0;
    return rc;
}

void handle_volume_read(struct request *r)
{
    volume_job_start(volume_job_of(r, true, volume_read));
}

static int volume_unlink(struct volume_job *job, droste *d, droste_volume *v, droste_error *err)
{
    return droste_volume_delete(v, job->path, err);
}

void handle_volume_remove(struct request *r)
{
    volume_job_start(volume_job_of(r, true, volume_unlink));
}

/* ---- a file that comes in ---- */

static int volume_prepare(struct volume_job *job, droste *d, droste_volume *v, droste_error *err)
{
    droste_volume_usage used;
    int rc = droste_volume_measure(v, &used, err);
    job->room = rc == 0 ? used.size_limit : 0;
    job->fd = rc == 0 ? work_file(job->root) : -1;
    if (rc < 0 || job->fd >= 0)
        return rc;
    *err = (droste_error){ .code = DROSTE_ERROR_IO, .sys = errno };
    snprintf(err->text, sizeof err->text, "a file cannot be made: %s", strerror(errno));
    return -1;
}

static int volume_store(struct volume_job *job, droste *d, droste_volume *v, droste_error *err)
{
    if (lseek(job->fd, 0, SEEK_SET) == 0)
        return droste_volume_put(v, job->fd, job->path, NULL, err);
    *err = (droste_error){ .code = DROSTE_ERROR_IO, .sys = errno, .text = "reading the file" };
    return -1;
}

static void volume_stored(struct work *w)
{
    struct volume_job *job = (struct volume_job *)w;
    close_fd(&job->fd);
    volume_job_end(w);
}

static void volume_on_free(struct request *r)
{
    if (r->state)
        volume_job_free(r->state);
}

/* Writes what came meanwhile. False: the request was refused. */
static bool volume_flush(struct request *r, struct volume_job *job)
{
    job->bytes += job->out.len;
    if (job->bytes > job->room)
        request_refuse(r, 413, "too_large", "the file is larger than the volume may be: %llu bytes",
            (unsigned long long)job->room);
    else if (file_write_all(job->fd, buf_text(&job->out), job->out.len) < 0)
        request_refuse(r, 507, "full", "the disk of the server is full, or cannot be written to");
    buf_clear(&job->out);
    return !r->reply;
}

static void volume_finish(struct request *r, struct volume_job *job)
{
    job->act = volume_store;
    job->w.r = r;
    job->w.end = volume_stored;
    work_start(&job->w);
}

/* The place for the file is there: the body goes on. */
static void volume_prepared(struct work *w)
{
    struct volume_job *job = (struct volume_job *)w;
    struct request *r = w->r;
    if (!r) {
        volume_job_free(job);
        return;
    }
    r->state = job;
    job->is_open = true;
    if (job->rc < 0)
        volume_fail(r, job);
    else if (volume_flush(r, job) && r->complete)
        volume_finish(r, job);
    else if (!r->reply)
        request_resume(r);
}

static void volume_take_piece(struct request *r, const char *data, size_t len)
{
    struct volume_job *job = r->state;
    if (!job || r->reply)
        return;
    buf_append(&job->out, data, len);
    if (buf_failed(&job->out)) {
        r->gone = true;
    } else if (job->is_open) {
        (void)volume_flush(r, job);
    } else {
        work_start(&job->w);
        request_suspend(r);
    }
}

static void volume_take_end(struct request *r)
{
    struct volume_job *job = r->state;
    if (!job || r->reply)
        return;
    if (job->is_open)
        volume_finish(r, job);
    else
        work_start(&job->w); /* of an empty file */
}

void handle_volume_write(struct request *r)
{
    struct volume_job *job = volume_job_of(r, true, volume_prepare);
    if (!job)
        return;
    job->w.end = volume_prepared;
    r->state = job;
    r->on_free = volume_on_free;
    r->on_piece = volume_take_piece;
    r->on_complete = volume_take_end;
}

/* ---- a directory ---- */

static const char *volume_kind(uint32_t mode)
{
    return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "directory" : S_ISLNK(mode) ? "link" : "other";
}

static int volume_put_entry(void *arg, const droste_volume_entry *entry)
{
    struct volume_job *job = arg;
    field_open(&job->out, NULL, '{');
    field_text(&job->out, "name", entry->path, strlen(entry->path));
    field_string(&job->out, "kind", volume_kind(entry->mode));
    field_int(&job->out, "size", (int64_t)entry->size);
    field_int(&job->out, "mode", entry->mode & 07777);
    field_int(&job->out, "st_mode", entry->mode);
    field_int(&job->out, "modified_ms", entry->mtime * 1000);
    field_close(&job->out, '}');
    return buf_failed(&job->out);
}

static int volume_walk(struct volume_job *job, droste *d, droste_volume *v, droste_error *err)
{
    field_open(&job->out, NULL, '{');
    field_open(&job->out, "entries", '[');
    int rc = droste_volume_list(v, job->path, job->depth, job->most, volume_put_entry, job, err);
    field_close(&job->out, ']');
    field_bool(&job->out, "more", rc > 0);
    field_close(&job->out, '}');
    return rc < 0 ? rc : 0;
}

void handle_volume_directory(struct request *r)
{
    unsigned depth = request_query_number(r, "depth", "1", DEPTH_MOST);
    unsigned most = depth > 0 ? request_query_number(r, "limit", "10000", ENTRIES_MOST) : 0;
    struct volume_job *job = most > 0 ? volume_job_of(r, true, volume_walk) : NULL;
    if (!job)
        return;
    job->depth = depth;
    job->most = most;
    volume_job_start(job);
}
