/* image/source.c: where the parts of an image that is not unpacked are: blobs in an OCI layout, or
 * files of a docker archive, which are first written to the staging directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/os/beneath.h"
#include "base/os/file.h"
#include "image/internal.h"

enum { INDEXES_MAX = 4 }; /* nested */

static int source_read_json(int fd, const char *what, struct buf *out, struct error *err)
{
    struct stat st;
    if (fd < 0)
        return error_set_errno(
            err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "opening %.100s of the image", what);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > IMAGE_JSON_MAX)
        return error_set(err, ERROR_PROTOCOL,
            "the image is invalid: %.100s is not a file of at most "
            "4 MiB",
            what);
    buf_clear(out);
    return file_read_fd(fd, what, IMAGE_JSON_MAX, out, err);
}

static int source_open_blob(const struct image_source *s, const char *digest)
{
    char path[16 + HASH_TEXT_SIZE];
    snprintf(path, sizeof path, "blobs/sha256/%s", digest);
    return open_beneath(s->blobs, path, O_RDONLY, 0);
}

static int source_read_blob(
    const struct image_source *s, const char *digest, struct buf *out, struct error *err)
{
    char found[HASH_TEXT_SIZE];
    cleanup_fd int fd = source_open_blob(s, digest);
    int rc = source_read_json(fd, digest, out, err);
    if (rc == 0)
        rc = hash_sha256(buf_text(out), out->len, found, err);
    if (rc == 0 && strcmp(found, digest) != 0)
        rc = error_set(err, ERROR_PROTOCOL,
            "the image is invalid: a blob does not have the digest "
            "%s",
            digest);
    return rc;
}

/* oci:DIR[:TAG]; the directory may have colons. */
static int source_open_layout(struct image_source *s, const char *name, struct error *err)
{
    cleanup_buf struct buf json = { 0 };
    cleanup_free char *path = strdup(name + strlen(IMAGE_OCI));
    struct blob_name blob;
    bool is_index = true;
    if (!path)
        return error_memory(err);
    char *colon = strrchr(path, ':');
    const char *tag = NULL;
    s->blobs = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->blobs < 0 && colon && !strchr(colon, '/')) {
        *colon = '\0';
        tag = colon + 1;
        s->blobs = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (s->blobs < 0)
        return error_set_errno(
            err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "opening the image '%.200s'", name);
    cleanup_fd int fd = open_beneath(s->blobs, "index.json", O_RDONLY, 0);
    int rc = source_read_json(fd, "index.json", &json, err);
    for (unsigned depth = 0; rc == 0 && is_index; depth++) {
        rc = depth > INDEXES_MAX
                 ? error_set(err, ERROR_PROTOCOL, "the image is invalid: its indexes are nested")
                 : image_parse_index(&json, tag, depth, &blob, &is_index, err);
        if (rc == 0)
            rc = source_read_blob(s, blob.digest, &json, err);
    }
    if (rc == 0)
        rc = image_parse_manifest(&json, &s->manifest, err);
    return rc < 0 ? rc : source_read_blob(s, s->manifest.config, &s->config, err);
}

static int source_open_file(const struct image_source *s, const char *path)
{
    char number[24];
    for (size_t i = s->names.count; i-- > 0;) {
        if (strcmp(s->names.items[i], path) != 0)
            continue;
        snprintf(number, sizeof number, "%zu", i);
        return open_beneath(s->blobs, number, O_RDONLY, 0);
    }
    errno = ENOENT;
    return -1;
}

static int source_open_archive(
    struct image_source *s, const char *name, int staging, struct error *err)
{
    cleanup_buf struct buf json = { 0 };
    cleanup_fd int file =
        file_open(name + strlen(IMAGE_ARCHIVE), O_RDONLY, 0, "the docker archive", err);
    if (file < 0)
        return file;
    s->blobs = openat(staging, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = layer_extract_files(s->blobs, file, &s->interrupt, &s->names, err);
    cleanup_fd int manifest = rc < 0 ? -1 : source_open_file(s, "manifest.json");
    if (rc == 0)
        rc = source_read_json(manifest, "manifest.json", &json, err);
    if (rc == 0)
        rc = image_parse_archive(&json, &s->manifest, err);
    cleanup_fd int config = rc < 0 ? -1 : source_open_file(s, s->manifest.config_path);
    return rc < 0 ? rc : source_read_json(config, "its configuration", &s->config, err);
}

int image_source_open(
    struct image_source *s, const char *name, int staging, int interrupt, struct error *err)
{
    *s = (struct image_source){ .blobs = -1, .interrupt = interrupt };
    int rc = strncmp(name, IMAGE_OCI, strlen(IMAGE_OCI)) == 0
                 ? source_open_layout(s, name, err)
                 : source_open_archive(s, name, staging, err);
    if (rc == 0)
        rc = image_parse_config(&s->config, &s->parsed, err);
    if (rc == 0)
        rc = hash_sha256(buf_text(&s->config), s->config.len, s->id, err);
    if (rc == 0 && s->parsed.diff_ids.count != s->manifest.layers.count)
        rc = error_set(err, ERROR_PROTOCOL,
            "the image is invalid: it has %zu layers, and digests of %zu", s->manifest.layers.count,
            s->parsed.diff_ids.count);
    return rc;
}

void image_source_close(struct image_source *s)
{
    close_fd(&s->blobs);
    image_manifest_free(&s->manifest);
    image_config_free(&s->parsed);
    buf_free(&s->config);
    list_clear(&s->names);
}

int image_source_unpack(const struct image_source *s, int root, struct error *err)
{
    struct layer_room room = { IMAGE_BYTES_MAX, IMAGE_ENTRIES_MAX, &s->interrupt };
    bool archive = s->manifest.config_path;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->manifest.layers.count; i++) {
        const char *layer = s->manifest.layers.items[i];
        cleanup_fd int fd = archive ? source_open_file(s, layer) : source_open_blob(s, layer);
        if (fd < 0)
            return error_set_errno(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO,
                "opening layer %zu of the image, %.100s", i + 1, layer);
        rc = layer_apply(root, fd, archive ? NULL : layer, s->parsed.diff_ids.items[i], &room, err);
    }
    return rc;
}
