/* serve/native/volume_job.h: work on a volume, for a request. See volumes.h. */
#pragma once

#include "cluster/bus.h"
#include "serve/http/work.h"

enum { VOLUME_NUMBER = 24 };

struct volume_job {
    struct work w;
    /* Negative: *err says why. `v` is NULL where the volume is not opened before. */
    int (*act)(struct volume_job *job, droste *d, droste_volume *v, droste_error *err);
    bool is_closed;           /* it is not opened */
    int flags;                /* with which it is opened */
    unsigned argument_status; /* of a request that does not fit the volume's state; 0: 400 */
    char *root, *path;
    char name[SERVE_NAME_SIZE], size[VOLUME_NUMBER], files[VOLUME_NUMBER];
    char claim[BUS_SUBJECT_MAX + 1]; /* of a name in a cluster */
    const char *share;               /* where the snapshot is committed, too; NULL: nowhere */
    char commit[DROSTE_COMMIT_SIZE];
    uint64_t began_ns; /* the same */
    unsigned depth;
    size_t most;
    int fd; /* of a file's content */
    uint64_t bytes;
    struct buf out; /* the answer; empty: there is none */
    int rc;
    droste_error err;
    /* Of a file that comes in: */
    uint64_t room; /* bytes that the volume may have */
    bool is_open;
};

/* Of a volume that exists, and with its path in the query. NULL: the request was refused. */
struct volume_job *volume_job_of(struct request *r, bool has_path,
    int (*act)(struct volume_job *job, droste *d, droste_volume *v, droste_error *err));
/* NULL is fine. */
void volume_job_start(struct volume_job *job);
void volume_job_free(struct volume_job *job);
/* Answers the request. */
void volume_reply(struct request *r, struct volume_job *job);
/* The end of the work: the same, and frees the job. */
void volume_job_end(struct work *w);
/* For r->on_gone while the job, which is the request's state, waits for the bus. */
void volume_job_on_gone(struct request *r);
/* Counts names. */
int volume_count_name(void *arg, const char *name);
