/* image/image.h: container images, unpacked into directories that sandboxes share.
 *
 * An image is named oci:DIR[:TAG] (an OCI image layout), docker-archive:FILE (what `docker save`
 * writes), or as registries name it, for skopeo to fetch. It is unpacked once, into a directory
 * named by its id, the SHA-256 of its configuration, below `images` in the data directory.
 *
 * Everything is verified against its digest, and nothing in an archive is trusted (layer.h). A
 * directory appears under its name when it is complete: staged, synced, renamed. The staging
 * directory is locked while it is filled, so of two programs one unpacks and the other waits, and
 * what a killed one left is removed by the next. A shared lock on an unpacked image keeps it from
 * being removed while it is in use.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"

struct image;

enum image_fetch { IMAGE_FETCH_MISSING, IMAGE_FETCH_NEVER, IMAGE_FETCH_ALWAYS };

struct image_request {
    const char *name;
    enum image_fetch fetch;
    int interrupt; /* a descriptor: once it is readable, the request ends soon; -1: none */
};

/* Opens an image, and unpacks it first if it is not there yet, which blocks. ERROR_NOT_FOUND,
 * ERROR_PROTOCOL (the image is invalid), ERROR_UNSUPPORTED (another machine's; no skopeo), ERROR_IO
 * (a full disk), ERROR_CANCELLED. */
int image_open(const struct image_request *q, struct image **out, struct error *err);
/* Ends the use; the directory stays. NULL is fine. */
void image_close(struct image *i);
/* Its directory, as an absolute path. */
const char *image_root(const struct image *i);
/* Its environment variables, NAME=VALUE. */
const struct list *image_variables(const struct image *i);
const char *image_id(const struct image *i);

/* ---- stored.c: the unpacked images ---- */

struct image_facts {
    const char *id, *root;
    const struct list *names; /* by which it was opened, in no order */
    const char *config;       /* its configuration, JSON; NULL if it is damaged */
    uint64_t bytes, files;    /* of its root directory; a file with several names counts once */
    int64_t made;             /* seconds since 1970 */
    bool in_use, damaged;
};
/* A result other than 0 ends the visit and is its result. */
typedef int image_fn(void *arg, const struct image_facts *facts, struct error *err);

/* Shows all images, or one (NULL: all) by its id, the beginning of that, or a name by which it was
 * opened. ERROR_NOT_FOUND. */
int image_visit(const char *which, image_fn *fn, void *arg, struct error *err);
/* ERROR_ARGUMENT while it is in use. */
int image_remove(const char *which, struct error *err);
