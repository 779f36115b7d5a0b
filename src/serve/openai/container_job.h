/* serve/openai/container_job.h: work on the volume of a container (containers.h), in a thread. */
#pragma once

#include "base/list.h"
#include "serve/http/work.h"
#include "serve/openai/file_store.h"

/* The ids of a container's files begin with it. */
#define CONTAINER_FILE_PREFIX "cfile_"

struct container_job {
    struct work w;
    /* Negative: *err says why. */
    int (*act)(struct container_job *job, droste *d, droste_volume *v, droste_error *err);
    /* In the loop, after it went well: answers the request. */
    void (*reply)(struct request *r, struct container_job *job);
    void (*next)(struct request *r); /* of container_prepare */
    bool is_closed;                  /* the volume is not opened */
    char id[STORE_ID_SIZE], file[STORE_ID_SIZE];
    char *root;                /* of the volumes */
    int directory;             /* of the account's files */
    struct list paths, names;  /* of files that become the container's */
    bool is_moved;             /* the first one came in for this: it is removed afterwards */
    struct json_object *found; /* one file, or a list of them; NULL: there is no such file */
    struct file_page page;
    int fd;
    uint64_t bytes;
    char quota[24];
    int rc;
    droste_error err;
};

/* NULL: the request was refused. */
struct container_job *container_job_new(struct request *r, const char *id,
    int (*act)(struct container_job *job, droste *d, droste_volume *v, droste_error *err),
    void (*reply)(struct request *r, struct container_job *job));
void container_job_start(struct container_job *job);
void container_job_free(struct container_job *job);
/* Copies job->paths into the volume, as job->names; job->found is the last one. */
int container_put_files(struct container_job *job, droste *d, droste_volume *v, droste_error *err);
/* The id of the file with this path below the container's directory. */
bool container_file_id(char out[STORE_ID_SIZE], const char *container, const char *path);
/* Finds all files, or the one whose id the job has; its path is then the first name. */
int container_find(struct container_job *job, droste *d, droste_volume *v, droste_error *err);
/* In the thread, of a job that was not made for a request. */
void container_job_run(struct work *w);
void container_job_end(struct work *w);
