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
#ifndef DROSTE_IMAGE_IMAGE_H
#define DROSTE_IMAGE_IMAGE_H

#include "base/error.h"
#include "base/list.h"

struct image;

enum image_fetch { IMAGE_FETCH_MISSING, IMAGE_FETCH_NEVER, IMAGE_FETCH_ALWAYS };

/* Opens an image, and unpacks it first if it is not there yet, which blocks. ERROR_NOT_FOUND,
 * ERROR_PROTOCOL (the image is invalid), ERROR_UNSUPPORTED (another machine's; no skopeo), ERROR_IO
 * (a full disk). */
int image_open(const char *name, enum image_fetch fetch, struct image **out, struct error *err);
/* Ends the use; the directory stays. NULL is fine. */
void image_close(struct image *i);
/* Its directory, as an absolute path. */
const char *image_root(const struct image *i);
/* Its environment variables, NAME=VALUE. */
const struct list *image_variables(const struct image *i);

#endif
