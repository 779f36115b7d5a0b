/* serve/native/volumes.h: volumes of clients.
 *
 * Without keys they are those of this machine's user. Each key has a directory of its own beside
 * theirs, so that names are its own, and another key's volumes cannot be named at all.
 */
#ifndef DROSTE_SERVE_VOLUMES_H
#define DROSTE_SERVE_VOLUMES_H

#include "serve/http/request.h"

/* Appends the settings of a sandbox that mounts the volume. False: there is none, and the request
 * was refused. */
bool volumes_put(struct request *r, const char *name, struct buf *words);

void handle_volume_create(struct request *r);
void handle_volume_list(struct request *r);
void handle_volume_get(struct request *r);
void handle_volume_limit(struct request *r);
void handle_snapshot_list(struct request *r);
void handle_snapshot_create(struct request *r);
void handle_snapshot_restore(struct request *r);
void handle_snapshot_remove(struct request *r);
void handle_volume_delete(struct request *r);
void handle_volume_read(struct request *r);
void handle_volume_write(struct request *r);
void handle_volume_remove(struct request *r);
void handle_volume_directory(struct request *r);

#endif
