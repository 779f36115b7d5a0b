/* serve/openai/containers.h: /v1/containers: files that the runs of several responses share.
 *
 * A container is an object among the account's files (file_store.h), and a volume of the account
 * (sandbox/volume.h) that has its id as the name, which the sandboxes of its runs see at /data.
 * Clients and code see the same files; the id of a file is a hash of its path. A container ends
 * when it has not been used for as long as its client has said: then its volume is removed.
 */
#ifndef DROSTE_SERVE_OPENAI_CONTAINERS_H
#define DROSTE_SERVE_OPENAI_CONTAINERS_H

#include "base/list.h"
#include "serve/openai/file_store.h"

enum { CONTAINERS_MOST = 100 };

/* Removes those of all accounts that have expired, once a minute, in the first worker. */
void containers_sweep(struct server *s, uint64_t now_ns);

/* The tool code_interpreter of a request for a response; NULL: it has none. */
struct json_object *container_tool(struct json_object *asked);
/* Whether the container that the request names is there, if it names one. False: it was refused. */
bool container_check(struct request *r);
/* Makes the container of a request that wants files in it, which become its contents, and calls
 * `next`. False: it wants none. */
bool container_prepare(struct request *r, void (*next)(struct request *r));
/* Appends the settings of the run, which mount the request's container, and keeps in the request
 * which one that is. False: the request was refused. */
bool container_put_settings(struct request *r, const char *run, struct buf *words);
/* The container of a run, by what was asked. */
void container_of(
    char out[STORE_ID_SIZE], struct request *r, struct json_object *asked, const char *run);
/* Appends annotations, with commas, for the files of a container that a text names. */
void container_cite(
    struct buf *out, struct request *r, const char *container, const char *text, size_t len);

void openai_handle_container_create(struct request *r);
void openai_handle_container_list(struct request *r);
void openai_handle_container_get(struct request *r);
void openai_handle_container_delete(struct request *r);
void openai_handle_container_file_create(struct request *r);
void openai_handle_container_file_list(struct request *r);
void openai_handle_container_file_get(struct request *r);
void openai_handle_container_file_content(struct request *r);
void openai_handle_container_file_delete(struct request *r);

/* ---- between its files ---- */

/* Work on a container's volume, in a thread. */
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
/* The request's container, which is used now; NULL: the request was refused. */
struct json_object *container_use(struct request *r);

#endif
