/* image/internal.h: shared by the files of this layer. */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/list.h"
#include "image/image.h"

enum {
    IMAGE_LAYERS_MAX = 512,
    IMAGE_ENTRIES_MAX = 4000000,
    IMAGE_JSON_MAX = 4 << 20,
    IMAGE_VARIABLES_MAX = 128,
};
#define IMAGE_BYTES_MAX (64ull << 30) /* of all its files */

#define IMAGE_OCI     "oci:"
#define IMAGE_ARCHIVE "docker-archive:"

/* ---- interrupts of a request ---- */

static inline bool image_is_interrupted(int interrupt)
{
    struct pollfd p = { .fd = interrupt, .events = POLLIN };
    return interrupt >= 0 && poll(&p, 1, 0) > 0;
}

static inline int image_interrupted(struct error *err)
{
    return error_set(err, ERROR_CANCELLED, "interrupted while an image was unpacked");
}

/* ---- manifest.c ---- */

/* A blob by its SHA-256, in hexadecimal. */
struct blob_name {
    char digest[HASH_TEXT_SIZE];
};

/* What a manifest names. In a docker archive, blobs have paths instead of digests. */
struct image_manifest {
    char config[HASH_TEXT_SIZE], *config_path;
    struct list layers; /* digests, or paths */
};

struct image_config {
    struct list diff_ids;  /* digests of the layers, uncompressed */
    struct list variables; /* NAME=VALUE */
};

void image_manifest_free(struct image_manifest *m);
void image_config_free(struct image_config *c);
/* Chooses the manifest of a tag (NULL: the only one) or, at `depth` > 0, of this machine's
 * platform. *is_index: it is another index. */
int image_parse_index(const struct buf *json, const char *tag, unsigned depth,
    struct blob_name *out, bool *is_index, struct error *err);
int image_parse_manifest(const struct buf *json, struct image_manifest *out, struct error *err);
int image_parse_archive(const struct buf *json, struct image_manifest *out, struct error *err);
/* ERROR_UNSUPPORTED if it is for another kind of machine. */
int image_parse_config(const struct buf *json, struct image_config *out, struct error *err);

/* ---- source.c ---- */

/* An image that is not unpacked. */
struct image_source {
    int blobs; /* the directory of its blobs, or of a docker archive's files */
    struct image_manifest manifest;
    struct buf config;
    struct image_config parsed;
    char id[HASH_TEXT_SIZE];
    struct list names; /* of a docker archive: of its files, which are called 0, 1, … */
    int interrupt;     /* of the request */
};

/* `staging`: an empty directory for the files of a docker archive. */
int image_source_open(
    struct image_source *s, const char *name, int staging, int interrupt, struct error *err);
void image_source_close(struct image_source *s);
/* Unpacks all layers. */
int image_source_unpack(const struct image_source *s, int root, struct error *err);

/* ---- layer.c ---- */

/* How much all layers may still add. */
struct layer_room {
    uint64_t bytes, entries;
    const int *interrupt; /* of the request; NULL: none */
};

/* Applies a layer to a directory of this process alone: `file` is a tar archive, or one in gzip
 * or zstd. `digest` is of the file (NULL: not known), `diff_id` of the archive. Nothing outside
 * `root` is read or written, whatever the archive has: no path may be absolute or contain "..", and
 * links are resolved within it. ERROR_PROTOCOL for anything that no image has. */
int layer_apply(int root, int file, const char *digest, const char *diff_id,
    struct layer_room *room, struct error *err);
/* Writes the regular files of a tar archive, `docker save`'s, to the empty directory `to` as 0, 1,
 * …; `names` receives their names. Links among them are left out. */
int layer_extract_files(
    int to, int file, const int *interrupt, struct list *names, struct error *err);

/* ---- unpacked.c ---- */

enum { IMAGE_NAME_FILE_SIZE = 8 + HASH_TEXT_SIZE };
#define IMAGE_NAME_FILE ".name-"

/* The directory of images, a descriptor; *path is its path. */
int images_open(char **path, struct error *err);
int images_failed(const char *what, struct error *err);
/* Whether the directory that is open still has this name. */
bool image_is_same(int images, const char *name, int fd);
/* Reads the configuration of an unpacked image, which is open. */
int image_read_config(int directory, const char *id, struct buf *out, struct error *err);

/* ---- pull.c ---- */

/* Has skopeo copy an image into an OCI layout at this path. */
int image_pull(const struct image_request *q, const char *layout, struct error *err);
