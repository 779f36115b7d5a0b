/* serve/sandbox/volume.h: which volumes an account's sandboxes may mount.
 *
 * Without keys they are those of this machine's user. Each key has a directory of its own beside
 * theirs, so that names are its own, and another key's volumes cannot be named at all.
 */
#pragma once

#include "serve/http/request.h"

/* The directory of the account's volumes, which need not exist; free it. NULL: the request was
 * refused. */
char *sandbox_volume_root(struct request *r);
/* The same of the key with this id, without a request. NULL: there is none. */
char *sandbox_volume_root_of(struct server *s, const char *key);
/* In a thread: a `droste` for the volumes of this directory. Free it after a failure, too. */
int sandbox_volume_droste(const char *root, droste **out, droste_error *err);
bool sandbox_volume_exists(const char *root, const char *name);
/* True: it is there. False: another node, which may have it, answers the request, or it was
 * refused. */
bool sandbox_volume_find(struct request *r, const char *root, const char *name);
/* Appends the settings of a sandbox that mounts the volume. False: it is not here, as above. */
bool sandbox_put_volume(struct request *r, const char *name, struct buf *words);
