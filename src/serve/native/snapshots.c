/* serve/native/snapshots.c: snapshots of volumes. In a cluster a snapshot is a commit, too: the
 * volume goes on from the last one if its node is lost.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json/fields.h"
#include "base/text.h"
#include "serve/native/volume_job.h"
#include "serve/native/volumes.h"
#include "serve/queue/queue.h"
#include "serve/sandbox/owners.h"

enum { SNAPSHOTS_MOST = 16 };

struct snapshot_list {
    struct volume_job *job;
    droste_volume *v;
    droste_error *err;
    int rc;
};

static int snapshot_put(void *arg, const char *name)
{
    struct snapshot_list *list = arg;
    droste_volume_usage used;
    struct buf *out = &list->job->out;
    list->rc = droste_volume_snapshot_measure(list->v, name, &used, list->err);
    if (list->rc < 0)
        return -1;
    field_open(out, NULL, '{');
    field_string(out, "name", name);
    field_int(out, "size", (int64_t)used.size);
    field_int(out, "files", (int64_t)used.files);
    field_close(out, '}');
    return 0;
}

static int snapshot_list(struct volume_job *job, droste *d, droste_volume *v, droste_error *err)
{
    struct snapshot_list list = { .job = job, .v = v, .err = err };
    field_open(&job->out, NULL, '{');
    field_open(&job->out, "snapshots", '[');
    int rc = droste_volume_snapshots(v, snapshot_put, &list, err);
    field_close(&job->out, ']');
    field_close(&job->out, '}');
    return list.rc < 0 ? list.rc : rc;
}

void handle_snapshot_list(struct request *r)
{
    volume_job_start(volume_job_of(r, false, snapshot_list));
}

static int snapshot_reply(struct volume_job *job, int rc, const droste_volume_count *count)
{
    field_open(&job->out, NULL, '{');
    field_int(&job->out, "bytes", (int64_t)count->bytes);
    field_close(&job->out, '}');
    return rc;
}

static int snapshot_make(struct volume_job *job, droste *d, droste_volume *v, droste_error *err)
{
    droste_volume_count copied = { 0 };
    size_t count = 0;
    int rc = droste_volume_snapshots(v, volume_count_name, &count, err);
    if (rc == 0 && count >= SNAPSHOTS_MOST) {
        *err = (droste_error){ .code = DROSTE_ERROR_ARGUMENT };
        snprintf(err->text, sizeof err->text,
            "the volume has %d snapshots, which is the most; remove some", SNAPSHOTS_MOST);
        rc = -1;
    }
    if (rc == 0)
        rc = droste_volume_snapshot(v, job->path, &copied, err);
    if (rc == 0 && job->share &&
        (rc = droste_volume_commit(v, job->share, job->commit, NULL, err)) < 0)
        droste_volume_snapshot_remove(v, job->path, NULL);
    return snapshot_reply(job, rc, &copied);
}

static void snapshot_on_committed(void *arg, const struct bus_answer *a)
{
    struct volume_job *job = arg;
    struct request *r = job->w.r;
    if (r) {
        r->on_gone = NULL;
        r->state = NULL;
    }
    if (r && a->result != BUS_OK)
        request_refuse(r, a->result == BUS_CONFLICT ? 409 : 503, "not_committed",
            "the snapshot '%s' was made on this node, but not committed: %s", job->path, a->why);
    else if (r)
        volume_reply(r, job);
    volume_job_free(job);
}

/* The commit is the volume's once it is in its key. */
static void snapshot_made(struct work *w)
{
    struct volume_job *job = (struct volume_job *)w;
    if (job->rc < 0 || !w->r || !job->share) {
        volume_job_end(w);
        return;
    }
    w->r->state = job;
    w->r->on_gone = volume_job_on_gone;
    owners_commit(w->server, queue_key_of(w->r), job->name, job->commit, job->began_ns,
        snapshot_on_committed, job);
}

static int snapshot_restore(struct volume_job *job, droste *d, droste_volume *v, droste_error *err)
{
    droste_volume_count copied = { 0 };
    return snapshot_reply(job, droste_volume_restore(v, job->path, &copied, err), &copied);
}

static int snapshot_end(struct volume_job *job, droste *d, droste_volume *v, droste_error *err)
{
    return droste_volume_snapshot_remove(v, job->path, err);
}

/* Of a snapshot, for which the volume must not be in use. */
static void snapshot_start(struct request *r, bool in_query,
    int (*act)(struct volume_job *job, droste *d, droste_volume *v, droste_error *err))
{
    struct volume_job *job = volume_job_of(r, false, act);
    if (!job)
        return;
    const char *snapshot =
        in_query ? request_query(r, "snapshot", NULL) : json_get_string(r->json, "snapshot", "");
    free(steal(&job->path));
    job->path = snapshot && text_is_name(snapshot) ? strdup(snapshot) : NULL;
    job->flags = DROSTE_VOLUME_ALONE;
    job->argument_status = 409;
    job->began_ns = clock_ns();
    bool has_key = r->server->owners && owners_find(r->server, queue_key_of(r), job->name);
    bool is_needed = r->server->options->share && r->server->owners && act == snapshot_make;
    job->share = act == snapshot_make && has_key ? owners_store(r->server) : NULL;
    job->w.end = job->share ? snapshot_made : job->w.end;
    if (is_needed && !has_key)
        request_refuse(r, 409, "not_committed",
            "the volume '%s' is in no key of the cluster: it was made before this node joined, "
            "which may be only just now",
            job->name);
    else if (job->path) {
        volume_job_start(job);
        return;
    }
    volume_job_free(job);
    if (!r->reply)
        request_refuse(r, 400, "argument", "that is not a name of a snapshot");
}

void handle_snapshot_create(struct request *r)
{
    snapshot_start(r, false, snapshot_make);
}

void handle_snapshot_restore(struct request *r)
{
    snapshot_start(r, false, snapshot_restore);
}

void handle_snapshot_remove(struct request *r)
{
    snapshot_start(r, true, snapshot_end);
}
