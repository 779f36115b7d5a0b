/* volume/share.c: see share.h. */
#include "volume/share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/beneath.h"
#include "base/os/file.h"
#include "volume/internal.h"
#include "volume/pack.h"

static const char commit_format[] = "droste volume 1\nsize %llu\nfiles %llu\n";

/* ---- where chunks end ---- */

/* The hash of Xia et al., FastCDC (2016): the last 64 bytes decide. The table's numbers are those
 * of Vigna's splitmix64; all machines need the same ones for their chunks to be the same. */
static void chunk_make_table(uint64_t table[256])
{
    for (uint64_t i = 0; i < 256; i++) {
        uint64_t n = (i + 1) * 0x9e3779b97f4a7c15u;
        n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9u;
        n = (n ^ (n >> 27)) * 0x94d049bb133111ebu;
        table[i] = n ^ (n >> 31);
    }
}

static size_t chunk_end(const uint64_t table[256], const unsigned char *data, size_t len)
{
    uint64_t hash = 0;
    if (len <= CHUNK_LEAST)
        return len;
    for (size_t i = CHUNK_LEAST - 64; i < len; i++) {
        hash = (hash << 1) + table[data[i]];
        if (i >= CHUNK_LEAST && hash >> (64 - CHUNK_BITS) == 0)
            return i + 1;
    }
    return len;
}

/* ---- commits ---- */

struct committing {
    struct chunk_store share;
    uint64_t table[256];
    struct buf names;
    unsigned char data[CHUNK_MOST];
};

/* The whole file, as chunks whose names are appended to those of the commit. */
static int commit_put_all(struct committing *c, int file, struct error *err)
{
    size_t have = 0;
    for (;;) {
        char name[HASH_TEXT_SIZE];
        ssize_t n = read(file, c->data + have, sizeof c->data - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return error_set_errno(err, ERROR_IO, "reading a copy of the volume");
        have += (size_t)n;
        if (n > 0 && have < sizeof c->data)
            continue;
        if (have == 0)
            return buf_failed(&c->names) ? error_memory(err) : 0;
        size_t len = chunk_end(c->table, c->data, have);
        int rc = chunk_put(&c->share, c->data, len, name, err);
        if (rc < 0)
            return rc;
        buf_printf(&c->names, "%s\n", name);
        memmove(c->data, c->data + len, have - len);
        have -= len;
    }
}

int volume_commit(const struct volume *v, const char *share, char commit[HASH_TEXT_SIZE],
    droste_volume_count *count, struct error *err)
{
    cleanup_free struct committing *c = calloc(1, sizeof *c);
    cleanup_fd int file = -1;
    struct list paths = { 0 };
    struct stat st = { 0 };
    if (!c)
        return error_memory(err);
    chunk_make_table(c->table);
    int rc = chunk_store_open(share, &c->share, err);
    if (rc == 0)
        rc = volume_pack(v, &file, &paths, err);
    buf_printf(&c->names, commit_format, (unsigned long long)v->limits.size,
        (unsigned long long)v->limits.files);
    if (rc == 0)
        rc = commit_put_all(c, file, err);
    if (rc == 0 && c->names.len > CHUNK_MOST)
        rc = error_set(err, ERROR_ARGUMENT, "volume '%s' is too large to be shared", v->name);
    if (rc == 0)
        rc = chunk_put(&c->share, buf_text(&c->names), c->names.len, commit, err);
    if (rc == 0 && fstat(file, &st) == 0)
        *count = (droste_volume_count){ .files = paths.count, .bytes = (uint64_t)st.st_size };
    buf_free(&c->names);
    list_clear(&paths);
    chunk_store_close(&c->share);
    return rc < 0 ? error_wrap(err, "committing volume '%s'", v->name) : 0;
}

/* Writes the data of a commit to a file, and gives its limits. */
static int commit_get(const struct chunk_store *s, const char *commit, int file,
    struct volume_limits *limits, struct error *err)
{
    cleanup_buf struct buf names = { 0 }, chunk = { 0 };
    unsigned long long size = 0, files = 0;
    int at = 0;
    if (!chunk_name_is_ok(commit))
        return error_set(err, ERROR_PROTOCOL, "that is not the name of a commit");
    int rc = chunk_get(s, commit, &names, err);
    if (rc < 0)
        return rc;
    if (sscanf(buf_text(&names), "droste volume 1\nsize %llu\nfiles %llu\n%n", &size, &files,
            &at) != 2 ||
        at == 0)
        return error_set(err, ERROR_PROTOCOL, "the commit %.16s… is damaged", commit);
    *limits = (struct volume_limits){ size, files };
    char *rest = names.data + at;
    for (const char *name; rc == 0 && (name = strsep(&rest, "\n")) && *name;) {
        buf_clear(&chunk);
        rc = chunk_name_is_ok(name) ? chunk_get(s, name, &chunk, err)
                                    : error_set(err, ERROR_PROTOCOL, "a commit is damaged");
        if (rc == 0 && file_write_all(file, buf_text(&chunk), chunk.len) < 0)
            rc = error_set_errno(err, ERROR_IO, "writing a copy of a volume");
    }
    return rc;
}

static int commit_unpack(const struct volume *v, int file, struct error *err)
{
    struct pack_state state = { 0 };
    bool is_over = false;
    int rc = volume_unpack(v, file, &state, &is_over, err);
    list_clear(&state.paths);
    return rc == 0 && is_over
               ? error_set(err, ERROR_ARGUMENT, "it holds more than its limits allow")
               : rc;
}

int volume_create_from(
    const char *root, const char *name, const char *share, const char *commit, struct error *err)
{
    struct volume_limits limits = { 0 };
    struct volume *v = NULL;
    cleanup_chunk_store struct chunk_store s = { .directory = -1 };
    int rc = chunk_store_open(share, &s, err);
    if (rc == 0)
        rc = root_make(root, err);
    cleanup_fd int file = rc < 0 ? -1 : open(root, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (rc == 0 && file < 0)
        rc = root_failed(root, "writing to", err);
    if (rc == 0)
        rc = commit_get(&s, commit, file, &limits, err);
    if (rc == 0)
        rc = volume_create(root, name, &limits, err);
    if (rc < 0)
        return error_wrap(err, "opening the commit %.16s… of volume '%.64s'", commit, name);
    rc = volume_open(root, name, VOLUME_ALONE, &v, err);
    if (rc == 0)
        rc = commit_unpack(v, file, err);
    volume_release(v);
    if (rc < 0)
        volume_remove(root, name, NULL);
    return rc < 0 ? error_wrap(err, "opening the commit %.16s… of volume '%.64s'", commit, name)
                  : 0;
}
