/* serve/native/volumes.h: volumes of clients: see sandbox/volume.h for whose they are. */
#pragma once

#include "serve/http/request.h"

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
