/* image/unpacked.c: the directory of unpacked images; see image.h.
 *
 *   ID/root, ID/config.json   an unpacked image, and its configuration
 *   .new-ID                   one that is being unpacked: locked
 *   .fetch-PID                what skopeo writes, or the files of a docker archive: locked
 *   .name-HASH                the id of what a name means, a line feed, and the name
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/beneath.h"
#include "base/os/file.h"
#include "base/os/tree.h"
#include "base/text.h"
#include "image/internal.h"

struct image {
    char id[HASH_TEXT_SIZE];
    int lock; /* its directory, locked */
    char *root;
    struct image_config config;
};

enum { ATTEMPTS = 100, LOCK_WAIT_MS = 20 };

int images_failed(const char *what, struct error *err)
{
    return error_set_errno(err, ERROR_IO, "%s the directory of images", what);
}

int images_open(char **path, struct error *err)
{
    cleanup_free char *home = NULL;
    int rc = file_data_home(&home, err);
    if (rc < 0)
        return rc;
    *path = text_printf("%s/images", home);
    if (!*path)
        return error_memory(err);
    rc = file_make_directories(*path, err);
    if (rc < 0)
        return rc;
    int fd = open(*path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? images_failed("opening", err) : fd;
}

/* Removes what killed programs have left. */
static void images_sweep(int images)
{
    cleanup_listing DIR *listing = open_listing(images, ".");
    for (const char *name; (name = next_listed(listing));) {
        if (strncmp(name, ".new-", 5) != 0 && strncmp(name, ".fetch-", 7) != 0)
            continue;
        cleanup_fd int fd = open_beneath(images, name, O_RDONLY | O_DIRECTORY, 0);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
            tree_remove(images, name);
    }
}

bool image_is_same(int images, const char *name, int fd)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstatat(images, name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
           a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

static int image_lock(int fd, int interrupt)
{
    struct pollfd p = { .fd = interrupt, .events = POLLIN };
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -1;
        if (poll(&p, 1, LOCK_WAIT_MS) > 0)
            return -1;
    }
    return 0;
}

/* Makes and locks a directory; waits for another program, or thread, that has it. */
static int images_stage(int images, const char *name, int interrupt, struct error *err)
{
    for (int i = 0; i < ATTEMPTS; i++) {
        if (mkdirat(images, name, 0700) < 0 && errno != EEXIST)
            return images_failed("writing to", err);
        cleanup_fd int fd = open_beneath(images, name, O_RDONLY | O_DIRECTORY, 0);
        if (fd >= 0 && image_lock(fd, interrupt) == 0 && image_is_same(images, name, fd))
            return steal_fd(&fd);
        if (image_is_interrupted(interrupt))
            return image_interrupted(err);
    }
    return error_set(err, ERROR_IO, "locking '%.100s' in the directory of images", name);
}

int image_read_config(int directory, const char *id, struct buf *out, struct error *err)
{
    char found[HASH_TEXT_SIZE];
    struct stat root;
    cleanup_fd int file = open_beneath(directory, "config.json", O_RDONLY, 0);
    if (file < 0 && errno != ENOENT && errno != ELOOP)
        return images_failed("reading", err);
    bool damaged = file < 0 || fstatat(directory, "root", &root, AT_SYMLINK_NOFOLLOW) < 0 ||
                   !S_ISDIR(root.st_mode);
    int rc = damaged ? 0 : file_read_fd(file, "config.json", IMAGE_JSON_MAX, out, err);
    if (rc == 0 && !damaged)
        rc = hash_sha256(buf_text(out), out->len, found, err);
    if (rc == 0 && (damaged || strcmp(found, id) != 0))
        rc = error_set(err, ERROR_IO,
            "the unpacked image %.12s is damaged: `droste image rm %.12s` removes it", id, id);
    return rc;
}

/* Opens an unpacked image. ENOENT: it is not there. */
static int image_open_unpacked(
    int images, const char *path, const char *id, struct image **out, struct error *err)
{
    cleanup_buf struct buf config = { 0 };
    cleanup_fd int fd = open_beneath(images, id, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0 || flock(fd, LOCK_SH) < 0 || !image_is_same(images, id, fd))
        return -ENOENT;
    struct image *i = calloc(1, sizeof *i);
    if (!i)
        return error_memory(err);
    i->lock = steal_fd(&fd);
    i->root = text_printf("%s/%s/root", path, id);
    snprintf(i->id, sizeof i->id, "%s", id);
    int rc = i->root ? image_read_config(i->lock, id, &config, err) : error_memory(err);
    if (rc == 0)
        rc = image_parse_config(&config, &i->config, err);
    if (rc < 0) {
        image_close(i);
        return rc;
    }
    *out = i;
    return 0;
}

static int image_fill(int staging, const struct image_source *s, struct error *err)
{
    cleanup_listing DIR *listing = open_listing(staging, ".");
    for (const char *name; (name = next_listed(listing));)
        tree_remove(staging, name);
    if (mkdirat(staging, "root", 0755) < 0 || fchmodat(staging, "root", 0755, 0) < 0)
        return images_failed("writing to", err);
    cleanup_fd int root = open_beneath(staging, "root", O_RDONLY | O_DIRECTORY, 0);
    int rc = root < 0 ? images_failed("writing to", err) : image_source_unpack(s, root, err);
    cleanup_fd int file =
        rc < 0 ? -1 : openat(staging, "config.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (rc == 0 && (file < 0 || file_write_all(file, buf_text(&s->config), s->config.len) < 0 ||
                       syncfs(staging) < 0))
        rc = images_failed("writing to", err);
    return rc;
}

/* Opens the image of a source, once it is unpacked, here or by another program. */
static int image_open_source(int images, const char *path, const struct image_source *s,
    struct image **out, struct error *err)
{
    char name[8 + HASH_TEXT_SIZE];
    int rc = image_open_unpacked(images, path, s->id, out, err);
    if (rc != -ENOENT)
        return rc;
    snprintf(name, sizeof name, ".new-%s", s->id);
    cleanup_fd int staging = images_stage(images, name, s->interrupt, err);
    if (staging < 0)
        return staging;
    rc = image_open_unpacked(images, path, s->id, out, err);
    if (rc == -ENOENT) {
        rc = image_fill(staging, s, err);
        if (rc == 0 && renameat(images, name, images, s->id) < 0)
            rc = images_failed("writing to", err);
        close_fd(&staging); /* its lock would keep out the one that is taken now */
        if (rc == 0)
            rc = image_open_unpacked(images, path, s->id, out, err);
        if (rc == -ENOENT)
            rc = error_set(err, ERROR_IO, "the image was removed while it was opened");
    }
    if (rc < 0)
        tree_remove(images, name);
    else
        unlinkat(images, name, AT_REMOVEDIR); /* empty, if another program was first */
    return rc;
}

/* ---- names of registries ---- */

static int name_file(const char *name, char out[IMAGE_NAME_FILE_SIZE], struct error *err)
{
    char hash[HASH_TEXT_SIZE];
    int rc = hash_sha256(name, strlen(name), hash, err);
    if (rc == 0)
        snprintf(out, IMAGE_NAME_FILE_SIZE, IMAGE_NAME_FILE "%s", hash);
    return rc;
}

static bool name_read(int images, const char *file, char id[HASH_TEXT_SIZE])
{
    cleanup_fd int fd = open_beneath(images, file, O_RDONLY, 0);
    ssize_t n = fd < 0 ? -1 : read(fd, id, HASH_TEXT_SIZE - 1);
    id[n > 0 ? n : 0] = '\0';
    return n == HASH_TEXT_SIZE - 1 && strspn(id, "0123456789abcdef") == HASH_TEXT_SIZE - 1;
}

/* Notes what a name means. Programs that start at once write the same file: one at a time. */
static int name_write(int images, const char *path, const char *file, const char *id,
    const char *name, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    cleanup_free char *place = text_printf("%s/%s", path, file);
    buf_printf(&text, "%s\n%s", id, name);
    if (!place || buf_failed(&text))
        return error_memory(err);
    if (flock(images, LOCK_EX) < 0)
        return images_failed("locking", err);
    int rc = file_replace(place, buf_text(&text), text.len, err);
    flock(images, LOCK_UN);
    return rc;
}

/* Opens what skopeo or a docker archive has put into a directory for the moment. */
static int image_open_fetched(int images, const char *path, const struct image_request *q,
    bool is_archive, struct image **out, char id[HASH_TEXT_SIZE], struct error *err)
{
    char staged[32];
    struct image_source s = { .blobs = -1 };
    snprintf(staged, sizeof staged, ".fetch-%d", (int)getpid());
    cleanup_fd int staging = images_stage(images, staged, q->interrupt, err);
    if (staging < 0)
        return staging;
    cleanup_free char *layout = text_printf("%s/%s/layout", path, staged);
    cleanup_free char *local = text_printf("oci:%s:image", layout ? layout : "");
    int rc = layout && local ? 0 : error_memory(err);
    if (rc == 0 && !is_archive)
        rc = image_pull(q, layout, err);
    if (rc == 0)
        rc = image_source_open(&s, is_archive ? q->name : local, staging, q->interrupt, err);
    if (rc == 0)
        rc = image_open_source(images, path, &s, out, err);
    memcpy(id, s.id, sizeof s.id);
    image_source_close(&s);
    tree_remove(images, staged);
    return rc;
}

static int image_open_named(int images, const char *path, const struct image_request *q,
    struct image **out, struct error *err)
{
    char file[IMAGE_NAME_FILE_SIZE], id[HASH_TEXT_SIZE];
    int rc = name_file(q->name, file, err);
    if (rc < 0)
        return rc;
    if (q->fetch != IMAGE_FETCH_ALWAYS && name_read(images, file, id)) {
        rc = image_open_unpacked(images, path, id, out, err);
        if (rc != -ENOENT)
            return rc;
    }
    if (q->fetch == IMAGE_FETCH_NEVER)
        return error_set(err, ERROR_NOT_FOUND,
            "the image '%.200s' is not unpacked here, and --pull never forbids fetching it",
            q->name);
    rc = image_open_fetched(images, path, q, false, out, id, err);
    return rc < 0 ? rc : name_write(images, path, file, id, q->name, err);
}

/* A docker archive is read anew only when the file has changed. */
static int image_open_archive(int images, const char *path, const struct image_request *q,
    struct image **out, struct error *err)
{
    const char *name = q->name;
    char file[IMAGE_NAME_FILE_SIZE], id[HASH_TEXT_SIZE];
    struct stat st = { 0 };
    cleanup_free char *key = NULL;
    if (stat(name + strlen(IMAGE_ARCHIVE), &st) == 0)
        key = text_printf("%s\n%llu %llu %lld %ld", name, (unsigned long long)st.st_ino,
            (unsigned long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    int rc = key ? name_file(key, file, err) : 0;
    if (rc < 0)
        return rc;
    if (key && name_read(images, file, id)) {
        rc = image_open_unpacked(images, path, id, out, err);
        if (rc != -ENOENT)
            return rc;
    }
    rc = image_open_fetched(images, path, q, true, out, id, err);
    return rc < 0 || !key ? rc : name_write(images, path, file, id, name, err);
}

static int image_open_layout(int images, const char *path, const struct image_request *q,
    struct image **out, struct error *err)
{
    char file[IMAGE_NAME_FILE_SIZE], known[HASH_TEXT_SIZE];
    struct image_source s;
    int rc = image_source_open(&s, q->name, -1, q->interrupt, err);
    if (rc == 0)
        rc = image_open_source(images, path, &s, out, err);
    if (rc == 0)
        rc = name_file(q->name, file, err);
    if (rc == 0 && (!name_read(images, file, known) || strcmp(known, s.id) != 0))
        rc = name_write(images, path, file, s.id, q->name, err);
    image_source_close(&s);
    return rc;
}

int image_open(const struct image_request *q, struct image **out, struct error *err)
{
    cleanup_free char *path = NULL;
    cleanup_fd int images = images_open(&path, err);
    *out = NULL;
    if (images < 0)
        return images;
    images_sweep(images);
    if (strncmp(q->name, IMAGE_ARCHIVE, strlen(IMAGE_ARCHIVE)) == 0)
        return image_open_archive(images, path, q, out, err);
    if (strncmp(q->name, IMAGE_OCI, strlen(IMAGE_OCI)) != 0)
        return image_open_named(images, path, q, out, err);
    return image_open_layout(images, path, q, out, err);
}

void image_close(struct image *i)
{
    if (!i)
        return;
    close_fd(&i->lock);
    free(i->root);
    image_config_free(&i->config);
    free(i);
}

const char *image_root(const struct image *i)
{
    return i->root;
}

const char *image_id(const struct image *i)
{
    return i->id;
}

const struct list *image_variables(const struct image *i)
{
    return &i->config.variables;
}
