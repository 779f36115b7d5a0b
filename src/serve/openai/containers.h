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

/* The request's container, which is used now; NULL: the request was refused. */
struct json_object *container_use(struct request *r);

#endif
