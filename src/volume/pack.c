/* volume/pack.c: serialises a volume. A file may change while it is read: exactly as many bytes are
 * written as its header says, with zeros for missing ones.
 */
#include "volume/pack.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os/beneath.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/tree.h"
#include "volume/internal.h"

enum { PIECE = 256 << 10 };

struct packing {
    const struct volume *v;
    int out;
    struct list *paths; /* NULL: not needed */
    char piece[PIECE];
};

static int write_out(struct packing *p, const void *data, size_t len, struct error *err)
{
    return file_write_all(p->out, data, len) < 0
               ? volume_failed(p->v, "writing", "a copy of it for the sandbox", err)
               : 0;
}

static int pack_write_header(struct packing *p, enum pack_kind kind, const struct stat *st,
    const struct tree_place *place, uint64_t len, struct error *err)
{
    unsigned char header[PACK_HEADER_SIZE] = { (unsigned char)kind };
    uint16_t mode = htole16(st->st_mode & 0777);
    uint32_t path = htole32((uint32_t)(strlen(place->path) + strlen(place->name)));
    uint64_t size = htole64(len), time = htole64((uint64_t)st->st_mtime);
    memcpy(header + 2, &mode, sizeof mode);
    memcpy(header + 4, &path, sizeof path);
    memcpy(header + 8, &size, sizeof size);
    memcpy(header + 16, &time, sizeof time);
    cleanup_buf struct buf whole = { 0 };
    buf_append(&whole, header, sizeof header);
    buf_puts(&whole, place->path);
    buf_puts(&whole, place->name);
    if (buf_failed(&whole))
        return error_memory(err);
    int rc = p->paths ? list_add(p->paths, buf_text(&whole) + sizeof header, err) : 0;
    return rc < 0 ? rc : write_out(p, whole.data, whole.len, err);
}

static int write_link(struct packing *p, const struct tree_place *place, struct error *err)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(place->at, place->name, target, sizeof target);
    if (n < 0)
        return 0; /* removed meanwhile */
    int rc = pack_write_header(p, PACK_LINK, place->st, place, (uint64_t)n, err);
    return rc < 0 ? rc : write_out(p, target, (size_t)n, err);
}

static int pack_write_file(struct packing *p, const struct tree_place *place, struct error *err)
{
    struct stat st;
    cleanup_fd int fd = open_anyway(place->at, place->name, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return 0;
    uint64_t left = (uint64_t)st.st_size;
    int rc = pack_write_header(p, PACK_FILE, &st, place, left, err);
    while (rc == 0 && left > 0) {
        size_t want = left < PIECE ? (size_t)left : PIECE;
        ssize_t n = read(fd, p->piece, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return volume_failed(p->v, "reading", place->name, err);
        if (n == 0) {
            memset(p->piece, 0, want);
            n = (ssize_t)want;
        }
        rc = write_out(p, p->piece, (size_t)n, err);
        left -= (uint64_t)n;
    }
    return rc;
}

static int pack_visit(
    void *arg, enum tree_visit what, const struct tree_place *place, struct error *err)
{
    struct packing *p = arg;
    if (what != TREE_ENTRY)
        return 0;
    if (S_ISDIR(place->st->st_mode))
        return pack_write_header(p, PACK_DIRECTORY, place->st, place, 0, err);
    if (S_ISLNK(place->st->st_mode))
        return write_link(p, place, err);
    return S_ISREG(place->st->st_mode) ? pack_write_file(p, place, err) : 0;
}

int volume_pack_file(const struct volume *v, int *out, struct error *err)
{
    *out = openat(v->directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return *out < 0 ? volume_failed(v, "making", "a copy of it for the sandbox", err) : 0;
}

int volume_pack(const struct volume *v, int *out, struct list *paths, struct error *err)
{
    static const unsigned char end[PACK_HEADER_SIZE] = { PACK_END };
    cleanup_fd int fd = -1;
    cleanup_free struct packing *p = calloc(1, sizeof *p);
    if (!p)
        return error_memory(err);
    int rc = volume_pack_file(v, &fd, err);
    *p = (struct packing){ .v = v, .out = fd, .paths = paths };
    if (rc == 0)
        rc = tree_walk(v->data, pack_visit, p, err);
    if (rc == 0)
        rc = write_out(p, end, sizeof end, err);
    if (rc == 0 && lseek(fd, 0, SEEK_SET) < 0)
        rc = volume_failed(v, "reading", "a copy of it for the sandbox", err);
    if (rc == 0)
        *out = steal_fd(&fd);
    return rc;
}
