/* packages/contents.c: see contents.h.
 *
 * Directories are listed in no order, so the digest is one of the sorted digests of all files.
 */
#include "packages/contents.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/beneath.h"
#include "base/os/tree.h"
#include "base/text.h"

enum { FILES_MOST = 1000000, NAMES_MOST = 10000, PIECE = 128 << 10 };

struct look {
    struct package_contents *out;
    bool takes;
    struct buf digests; /* of files, each HASH_TEXT_SIZE bytes */
};

void package_contents_free(struct package_contents *contents)
{
    list_clear(&contents->names);
}

/* FNV-1a */
static uint64_t stamp_add(uint64_t stamp, const void *data, size_t len)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < len; i++)
        stamp = (stamp ^ p[i]) * 0x100000001b3u;
    return stamp;
}

static uint64_t stamp_of(const struct tree_place *place)
{
    const struct stat *st = place->st;
    uint64_t stamp = stamp_add(0xcbf29ce484222325u, place->path, strlen(place->path));
    stamp = stamp_add(stamp, place->name, strlen(place->name));
    if (!S_ISREG(st->st_mode))
        return stamp;
    stamp = stamp_add(stamp, &st->st_size, sizeof st->st_size);
    return stamp_add(stamp, &st->st_mtim.tv_sec, sizeof st->st_mtim.tv_sec);
}

/* "numpy-2.1.0.dist-info" */
static int take_name(struct look *l, const char *directory, struct error *err)
{
    static const char end[] = ".dist-info";
    size_t len = strlen(directory), tail = sizeof end - 1;
    const char *dash = strrchr(directory, '-');
    if (len <= tail || strcmp(directory + len - tail, end) != 0)
        return 0;
    cleanup_free char *name = text_copy(directory, len - tail);
    if (!name)
        return error_memory(err);
    dash = strrchr(name, '-');
    if (!dash || !text_is_utf8(name, strlen(name), NULL) || l->out->names.count >= NAMES_MOST)
        return 0;
    return list_take(
        &l->out->names, text_printf("%.*s==%s", (int)(dash - name), name, dash + 1), err);
}

static int hash_data(struct hash *hash, int fd, struct error *err)
{
    cleanup_free char *piece = malloc(PIECE);
    ssize_t n;
    if (!piece)
        return error_memory(err);
    while ((n = read(fd, piece, PIECE)) > 0)
        hash_add(hash, piece, (size_t)n);
    return n < 0 ? error_set_errno(err, ERROR_IO, "reading a package's file") : 0;
}

static int take_file(struct look *l, const struct tree_place *place, struct error *err)
{
    cleanup_hash struct hash hash = { 0 };
    char digest[HASH_TEXT_SIZE];
    bool runs = place->st->st_mode & S_IXUSR;
    cleanup_fd int fd = open_anyway(place->at, place->name, O_RDONLY);
    if (fd < 0 || fchmod(fd, runs ? 0755 : 0644) < 0)
        return error_set_errno(err, ERROR_IO, "opening the package's file '%.100s'", place->name);
    int rc = hash_open(&hash, err);
    if (rc < 0)
        return rc;
    hash_add(&hash, place->path, strlen(place->path));
    hash_add(&hash, place->name, strlen(place->name) + 1);
    hash_add(&hash, runs ? "x" : "-", 1);
    rc = hash_data(&hash, fd, err);
    if (rc == 0)
        rc = hash_take(&hash, digest, err);
    if (rc == 0)
        buf_append(&l->digests, digest, sizeof digest);
    return rc;
}

static int contents_entry(struct look *l, const struct tree_place *place, struct error *err)
{
    const struct stat *st = place->st;
    if (++l->out->files > FILES_MOST)
        return error_set(err, ERROR_ARGUMENT, "the packages have more than %d files", FILES_MOST);
    l->out->stamp += stamp_of(place);
    if (S_ISREG(st->st_mode)) {
        l->out->bytes += (uint64_t)st->st_size;
        return l->takes ? take_file(l, place, err) : 0;
    }
    if (!S_ISDIR(st->st_mode))
        return error_set(err, ERROR_ARGUMENT,
            "the packages have an entry that is neither file nor directory: '%.100s'", place->name);
    return l->takes && place->depth == 0 ? take_name(l, place->name, err) : 0;
}

static int contents_visit(
    void *arg, enum tree_visit visit, const struct tree_place *place, struct error *err)
{
    struct look *l = arg;
    if (visit == TREE_ENTRY)
        return contents_entry(l, place, err);
    if (visit == TREE_LEAVE && l->takes && fchmod(place->at, 0755) < 0)
        return error_set_errno(err, ERROR_IO, "opening a package's directory");
    return 0;
}

static int compare_digests(const void *a, const void *b)
{
    return memcmp(a, b, HASH_TEXT_SIZE);
}

static int contents_walk(int top, bool takes, struct package_contents *out, struct error *err)
{
    struct look l = { .out = out, .takes = takes };
    *out = (struct package_contents){ 0 };
    int rc = tree_walk(top, contents_visit, &l, err);
    if (rc == 0 && buf_failed(&l.digests))
        rc = error_memory(err);
    if (rc == 0 && takes) {
        if (l.digests.len > 0)
            qsort(l.digests.data, l.digests.len / HASH_TEXT_SIZE, HASH_TEXT_SIZE, compare_digests);
        list_sort(&out->names);
        rc = hash_sha256(buf_text(&l.digests), l.digests.len, out->digest, err);
    }
    buf_free(&l.digests);
    return rc;
}

int package_contents_look(int top, struct package_contents *out, struct error *err)
{
    return contents_walk(top, false, out, err);
}

int package_contents_take(int top, struct package_contents *out, struct error *err)
{
    return contents_walk(top, true, out, err);
}
