/* Layers: paths, whiteouts and links stay within the image, and nothing is left in doubt. The
 * archives are libarchive's, or hostile ones, written here. */
#include "../test.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/tree.h"
#include "image/internal.h"

/* An entry; `to`: of links. A name that ends in a slash is a directory. */
struct entry {
    const char *path, *data, *to;
    bool hard;
};

struct scene {
    char dir[64];
    int root; /* the image's, in which it has a neighbour: ../outside */
    struct layer_room room;
};

static int scene_open(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    char path[96];
    assert_non_null(s);
    snprintf(s->dir, sizeof s->dir, "/tmp/droste-layer-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(path, sizeof path, "%s/outside", s->dir);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof path, "%s/root", s->dir);
    assert_int_equal(mkdir(path, 0755), 0);
    s->root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(s->root >= 0);
    s->room = (struct layer_room){ 1 << 20, 100, NULL };
    *state = s;
    return 0;
}

static int scene_close(void **state)
{
    struct scene *s = *state;
    close(s->root);
    assert_true(tree_remove(AT_FDCWD, s->dir));
    free(s);
    return 0;
}

static void write_entry(struct archive *a, const struct entry *from)
{
    struct archive_entry *e = archive_entry_new();
    size_t len = from->data ? strlen(from->data) : 0;
    bool directory = from->path[strlen(from->path) - 1] == '/';
    archive_entry_set_pathname(e, from->path);
    archive_entry_set_mode(e, directory                 ? S_IFDIR | 0755
                              : from->to && !from->hard ? S_IFLNK | 0777
                                                        : S_IFREG | 04644);
    archive_entry_set_uid(e, geteuid());
    archive_entry_set_gid(e, getegid());
    if (from->to && from->hard)
        archive_entry_set_hardlink(e, from->to);
    else if (from->to)
        archive_entry_set_symlink(e, from->to);
    archive_entry_set_size(e, (la_int64_t)len);
    assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
    if (len)
        assert_int_equal(archive_write_data(a, from->data, len), len);
    archive_entry_free(e);
}

/* A layer with these entries, which end with one without a path. */
static int layer_with(const struct entry *entries)
{
    int fd = file_memfd("layer", NULL);
    struct archive *a = archive_write_new();
    assert_true(fd >= 0);
    archive_write_set_format_pax_restricted(a);
    archive_write_add_filter_gzip(a);
    assert_int_equal(archive_write_open_fd(a, fd), ARCHIVE_OK);
    for (; entries->path; entries++)
        write_entry(a, entries);
    assert_int_equal(archive_write_free(a), ARCHIVE_OK);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static int apply(struct scene *s, const struct entry *entries, struct error *err)
{
    cleanup_fd int fd = layer_with(entries);
    return layer_apply(s->root, fd, NULL, NULL, &s->room, err);
}

/* ---- archives that libarchive does not write ---- */

static void put_block(int fd, const void *data, size_t len)
{
    static const char zeros[512];
    assert_int_equal(write(fd, data, len), len);
    if (len % 512)
        assert_int_equal(write(fd, zeros, 512 - len % 512), 512 - len % 512);
}

/* An entry of a tar archive as it is on disk. */
static void put_raw(
    int fd, char type, const char *path, const char *to, const char *data, size_t len)
{
    char head[512] = "";
    unsigned sum = 0;
    snprintf(head, 100, "%s", path);
    snprintf(head + 100, 8, "%07o", 0644);
    snprintf(head + 108, 8, "%07o", geteuid());
    snprintf(head + 116, 8, "%07o", getegid());
    snprintf(head + 124, 12, "%011zo", len);
    snprintf(head + 136, 12, "%011o", 0);
    memset(head + 148, ' ', 8);
    head[156] = type;
    snprintf(head + 157, 100, "%s", to ? to : "");
    memcpy(head + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof head; i++)
        sum += (unsigned char)head[i];
    snprintf(head + 148, 8, "%06o", sum);
    put_block(fd, head, sizeof head);
    if (len)
        put_block(fd, data, len);
}

/* The extended header of the entry that follows: its records end with NULL. */
static void put_pax(int fd, const char *const *records)
{
    cleanup_buf struct buf text = { 0 };
    for (; *records; records++) {
        size_t len = strlen(*records) + 2; /* a space and a line feed; then its own digits */
        len += len + 1 < 10 ? 1 : len + 2 < 100 ? 2 : len + 3 < 1000 ? 3 : 4;
        buf_printf(&text, "%zu %s\n", len, *records);
    }
    assert_false(buf_failed(&text));
    put_raw(fd, 'x', "pax", NULL, buf_text(&text), text.len);
}

/* A file that has `data` at `offset`, and of which the rest, to `size`, is a hole. */
static void put_sparse(int fd, const char *name, const char *size, const char *offset)
{
    char path[80], real[80], map[512 + 4] = "";
    snprintf(path, sizeof path, "GNU.sparse.name=%s", name);
    snprintf(real, sizeof real, "GNU.sparse.realsize=%s", size);
    snprintf(map, 512, "1\n%s\n4\n", offset);
    memcpy(map + 512, "data", 4);
    put_pax(
        fd, (const char *const[]){ "GNU.sparse.major=1", "GNU.sparse.minor=0", path, real, NULL });
    put_raw(fd, '0', "sparse", NULL, map, sizeof map);
}

static int apply_raw(struct scene *s, int fd, struct error *err)
{
    static const char end[1024];
    put_block(fd, end, sizeof end);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return layer_apply(s->root, fd, NULL, NULL, &s->room, err);
}

#define ENTRIES(...) ((const struct entry[]){ __VA_ARGS__, { 0 } })

static bool there(const struct scene *s, const char *path)
{
    struct stat st;
    return fstatat(s->root, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void assert_has(const struct scene *s, const char *path, const char *text)
{
    char found[64] = "";
    cleanup_fd int fd = openat(s->root, path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(read(fd, found, sizeof found - 1) >= 0);
    assert_string_equal(found, text);
}

static void files_keep_modes_without_set_user_id(void **state)
{
    struct scene *s = *state;
    struct stat st;
    assert_ok(apply(s, ENTRIES({ "./a//b/c", "text" }, { "d/" }), err));
    assert_has(s, "a/b/c", "text");
    assert_int_equal(fstatat(s->root, "a/b/c", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
    assert_int_equal(fstatat(s->root, "d", &st, 0), 0);
    assert_true(S_ISDIR(st.st_mode));
}

static void whiteouts_remove_what_earlier_layers_made(void **state)
{
    struct scene *s = *state;
    assert_ok(apply(s, ENTRIES({ "a/one", "1" }, { "a/two", "2" }, { "b/c/d", "3" }), err));
    assert_ok(apply(s, ENTRIES({ "a/.wh.one", "" }, { ".wh.b", "" }, { ".wh.none", "" }), err));
    assert_false(there(s, "a/one"));
    assert_has(s, "a/two", "2");
    assert_false(there(s, "b"));
}

/* In whatever order the layer has them, its own files stay. */
static void an_opaque_directory_keeps_what_its_layer_made(void **state)
{
    struct scene *s = *state;
    assert_ok(apply(s, ENTRIES({ "a/old", "1" }, { "a/sub/old", "1" }), err));
    assert_ok(
        apply(s, ENTRIES({ "a/new", "2" }, { "a/sub/new", "2" }, { "a/.wh..wh..opq", "" }), err));
    assert_false(there(s, "a/old"));
    assert_false(there(s, "a/sub/old"));
    assert_has(s, "a/new", "2");
    assert_has(s, "a/sub/new", "2");
}

static void a_whiteout_keeps_what_its_layer_made_below(void **state)
{
    struct scene *s = *state;
    assert_ok(apply(s, ENTRIES({ "a/sub/old", "1" }, { "a/other", "1" }), err));
    assert_ok(apply(s, ENTRIES({ "a/sub/new", "2" }, { "a/.wh.sub", "" }), err));
    assert_false(there(s, "a/sub/old"));
    assert_has(s, "a/sub/new", "2");
    assert_has(s, "a/other", "1");
}

static void whiteouts_without_a_name_are_refused(void **state)
{
    struct scene *s = *state;
    assert_fails_saying(
        ERROR_PROTOCOL, "removes nothing", apply(s, ENTRIES({ "a/.wh.", "" }), err));
    assert_fails_saying(
        ERROR_PROTOCOL, "removes nothing", apply(s, ENTRIES({ "a/.wh...", "" }), err));
    assert_true(there(s, "../outside"));
}

static void paths_that_lead_out_are_refused(void **state)
{
    static const char *const paths[] = { "../outside/x", "/outside/x", "a/../../outside/x", "..",
        "a/..", "a/../b" };
    struct scene *s = *state;
    for (size_t i = 0; i < array_length(paths); i++)
        assert_fails_saying(ERROR_PROTOCOL, "leads out", apply(s, ENTRIES({ paths[i], "x" }), err));
    assert_false(there(s, "../outside/x"));
    assert_ok(apply(s, ENTRIES({ "a/..b/...", "x" }), err));
    assert_has(s, "a/..b/...", "x");
}

/* "/" of a link is the image's. */
static void links_are_followed_within_the_image(void **state)
{
    struct scene *s = *state;
    assert_ok(apply(s,
        ENTRIES({ "real/" }, { "outside/" }, { "absolute", NULL, "/real" },
            { "up", NULL, "../outside" }, { "absolute/x", "1" }, { "up/y", "2" }),
        err));
    assert_has(s, "real/x", "1");
    assert_has(s, "outside/y", "2");
    assert_false(there(s, "../outside/y"));
    assert_fails_saying(ERROR_PROTOCOL, "not a directory",
        apply(s, ENTRIES({ "loop", NULL, "loop" }, { "loop/x", "1" }), err));
}

/* The link itself is replaced, not the file that it names. */
static void a_file_replaces_a_link_of_an_earlier_layer(void **state)
{
    struct scene *s = *state;
    assert_ok(apply(s, ENTRIES({ "target", "kept" }, { "a", NULL, "target" }), err));
    assert_ok(apply(s, ENTRIES({ "a", "new" }), err));
    assert_has(s, "target", "kept");
    assert_has(s, "a", "new");
}

static void hard_links_are_within_the_image(void **state)
{
    struct scene *s = *state;
    struct stat a, b;
    assert_ok(apply(s, ENTRIES({ "d/a", "1" }, { "b", NULL, "d/a", true }), err));
    assert_int_equal(fstatat(s->root, "d/a", &a, 0), 0);
    assert_int_equal(fstatat(s->root, "b", &b, 0), 0);
    assert_int_equal(a.st_ino, b.st_ino);
    assert_int_equal(b.st_mode & 07777, 0644); /* the archive has set-user-id bits */
    assert_fails_saying(
        ERROR_PROTOCOL, "leads out", apply(s, ENTRIES({ "c", NULL, "../outside", true }), err));
    assert_fails_saying(
        ERROR_PROTOCOL, "not there", apply(s, ENTRIES({ "c", NULL, "none", true }), err));
    assert_fails_saying(
        ERROR_PROTOCOL, "not there", apply(s, ENTRIES({ "c", NULL, "d", true }), err));
}

static void a_path_is_in_a_layer_once(void **state)
{
    struct scene *s = *state;
    assert_fails_saying(
        ERROR_PROTOCOL, "twice", apply(s, ENTRIES({ "a", "1" }, { "./a", "2" }), err));
    assert_ok(apply(s, ENTRIES({ "d/" }, { "d/" }, { "d/b", "1" }), err));
}

/* Bytes and entries count over all layers. */
static void what_does_not_fit_is_refused(void **state)
{
    struct scene *s = *state;
    s->room = (struct layer_room){ 10, 3, NULL };
    assert_ok(apply(s, ENTRIES({ "a", "123456" }), err));
    assert_fails_saying(ERROR_PROTOCOL, "too large", apply(s, ENTRIES({ "b", "123456" }), err));
    assert_ok(apply(s, ENTRIES({ "c", "1234" }), err));
    assert_fails_saying(ERROR_PROTOCOL, "too many", apply(s, ENTRIES({ "d", "" }), err));
}

static void devices_directory_is_left_out(void **state)
{
    struct scene *s = *state;
    assert_ok(apply(s, ENTRIES({ "dev/null", "x" }, { "device", "y" }), err));
    assert_false(there(s, "dev/null"));
    assert_has(s, "device", "y");
}

static void another_digest_is_refused(void **state)
{
    struct scene *s = *state;
    char zeros[HASH_TEXT_SIZE];
    memset(zeros, '0', sizeof zeros);
    zeros[HASH_TEXT_SIZE - 1] = '\0';
    cleanup_fd int fd = layer_with(ENTRIES({ "a", "1" }));
    assert_fails_saying(
        ERROR_PROTOCOL, "digest", layer_apply(s->root, fd, zeros, NULL, &s->room, err));
}

/* At each length: the archive ends too soon, or its digest is another one. */
static void a_cut_layer_is_refused(void **state)
{
    struct scene *s = *state;
    struct stat st;
    char digest[HASH_TEXT_SIZE], path[64];
    cleanup_fd int fd = layer_with(ENTRIES({ "a", "some text" }, { "b", "more" }));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert_ok(hash_file(path, digest, err));
    assert_int_equal(fstat(fd, &st), 0);
    for (off_t len = st.st_size - 1; len >= 0; len--) {
        struct error err = { 0 };
        assert_int_equal(ftruncate(fd, len), 0);
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        tree_remove(s->root, "a");
        tree_remove(s->root, "b");
        s->room.entries = 10;
        assert_int_equal(layer_apply(s->root, fd, digest, NULL, &s->room, &err), -ERROR_PROTOCOL);
    }
}

static void files_of_an_archive_get_numbers(void **state)
{
    struct scene *s = *state;
    struct list names = { 0 };
    cleanup_fd int fd = layer_with(
        ENTRIES({ "manifest.json", "[]" }, { "l", NULL, "/etc/passwd" }, { "d/" }, { "d/x", "2" }));
    assert_ok(layer_extract_files(s->root, fd, NULL, &names, err));
    assert_int_equal(names.count, 2);
    assert_string_equal(names.items[1], "d/x");
    assert_has(s, "0", "[]");
    assert_has(s, "1", "2");
    assert_false(there(s, "l"));
    list_clear(&names);
}

/* Without setlocale, no name outside of ASCII can be converted. */
static void links_to_names_of_another_locale_are_links(void **state)
{
    struct scene *s = *state;
    struct stat st;
    char to[8] = "";
    cleanup_fd int fd = file_memfd("layer", NULL);
    put_pax(fd, (const char *const[]){ "path=\xc3\xbc", NULL });
    put_raw(fd, '0', "u", NULL, "text", 4);
    put_pax(fd, (const char *const[]){ "linkpath=\xc3\xbc", NULL });
    put_raw(fd, '1', "hard", "u", NULL, 0);
    put_pax(fd, (const char *const[]){ "linkpath=\xc3\xbc", NULL });
    put_raw(fd, '2', "soft", "u", NULL, 0);
    assert_ok(apply_raw(s, fd, err));
    assert_has(s, "hard", "text");
    assert_int_equal(fstatat(s->root, "\xc3\xbc", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(st.st_nlink, 2);
    assert_int_equal(readlinkat(s->root, "soft", to, sizeof to), 2);
    assert_string_equal(to, "\xc3\xbc");
}

static void a_link_to_nothing_is_refused(void **state)
{
    struct scene *s = *state;
    cleanup_fd int fd = file_memfd("layer", NULL);
    put_raw(fd, '2', "soft", "", NULL, 0);
    assert_fails_saying(ERROR_PROTOCOL, "link to nothing", apply_raw(s, fd, err));
}

static void sparse_files_have_holes_and_no_data_behind_their_end(void **state)
{
    static const char *const offsets[] = { "8190", "8193", "4611686018427387904" };
    struct scene *s = *state;
    struct stat st;
    char found[4];
    cleanup_fd int fd = file_memfd("layer", NULL);
    put_sparse(fd, "a", "8192", "8188");
    assert_ok(apply_raw(s, fd, err));
    assert_int_equal(fstatat(s->root, "a", &st, 0), 0);
    assert_int_equal(st.st_size, 8192);
    cleanup_fd int file = openat(s->root, "a", O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(file, found, 4, 8188), 4);
    assert_memory_equal(found, "data", 4);
    for (size_t i = 0; i < array_length(offsets); i++) {
        cleanup_fd int bad = file_memfd("layer", NULL);
        put_sparse(bad, "b", "8192", offsets[i]);
        assert_fails(ERROR_PROTOCOL, apply_raw(s, bad, err));
    }
}

/* They have no data in the archive, and would be copied as zeros. */
static void holes_count_as_bytes(void **state)
{
    struct scene *s = *state;
    cleanup_fd int one = file_memfd("layer", NULL), two = file_memfd("layer", NULL);
    put_sparse(one, "a", "600000", "0");
    assert_ok(apply_raw(s, one, err));
    put_sparse(two, "b", "600000", "0");
    assert_fails_saying(ERROR_PROTOCOL, "too large", apply_raw(s, two, err));
}

static void sizes_that_no_file_has_are_refused(void **state)
{
    static const char *const sizes[] = { "size=4611686018427387904", "size=9223372036854775807",
        "size=99999999999999999999999", "size=-1" };
    struct scene *s = *state;
    for (size_t i = 0; i < array_length(sizes); i++) {
        cleanup_fd int fd = file_memfd("layer", NULL);
        put_pax(fd, (const char *const[]){ sizes[i], NULL });
        put_raw(fd, '0', "a", NULL, NULL, 0);
        assert_fails(ERROR_PROTOCOL, apply_raw(s, fd, err));
    }
    cleanup_fd int fd = file_memfd("layer", NULL);
    put_pax(fd, (const char *const[]){ "size=4", NULL });
    put_raw(fd, '0', "b", NULL, "text", 4);
    assert_ok(apply_raw(s, fd, err));
    assert_has(s, "b", "text");
}

/* Writes what the first file has to the other, compressed. */
static void compress_into(int from, int to, int (*filter)(struct archive *a))
{
    char block[4096];
    struct archive *a = archive_write_new();
    struct archive_entry *e = archive_entry_new();
    assert_int_equal(archive_write_set_format_raw(a), ARCHIVE_OK);
    assert_int_equal(filter(a), ARCHIVE_OK);
    archive_write_set_bytes_in_last_block(a, 1);
    assert_int_equal(archive_write_open_fd(a, to), ARCHIVE_OK);
    archive_entry_set_filetype(e, AE_IFREG);
    assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
    assert_int_equal(lseek(from, 0, SEEK_SET), 0);
    for (ssize_t n; (n = read(from, block, sizeof block)) > 0;)
        assert_int_equal(archive_write_data(a, block, (size_t)n), n);
    archive_entry_free(e);
    assert_int_equal(archive_write_free(a), ARCHIVE_OK);
    assert_int_equal(lseek(to, 0, SEEK_SET), 0);
}

static void a_layer_in_zstd_is_read_also_behind_a_skipped_frame(void **state)
{
    static const char skipped[] = "\x50\x2a\x4d\x18\x04\0\0\0skip";
    struct scene *s = *state;
    cleanup_fd int plain = file_memfd("layer", NULL), fd = file_memfd("layer", NULL);
    put_raw(plain, '0', "a", NULL, "text", 4);
    compress_into(plain, fd, archive_write_add_filter_zstd);
    assert_ok(layer_apply(s->root, fd, NULL, NULL, &s->room, err));
    assert_has(s, "a", "text");
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    assert_int_equal(write(fd, skipped, sizeof skipped - 1), sizeof skipped - 1);
    put_raw(plain, '0', "b", NULL, "more", 4);
    assert_true(tree_remove(s->root, "a"));
    compress_into(plain, fd, archive_write_add_filter_zstd);
    assert_ok(layer_apply(s->root, fd, NULL, NULL, &s->room, err));
    assert_has(s, "b", "more");
}

static void a_layer_is_compressed_once(void **state)
{
    struct scene *s = *state;
    cleanup_fd int once = layer_with(ENTRIES({ "a", "text" })), twice = file_memfd("layer", NULL);
    compress_into(once, twice, archive_write_add_filter_gzip);
    assert_fails(ERROR_PROTOCOL, layer_apply(s->root, twice, NULL, NULL, &s->room, err));
    assert_false(there(s, "a"));
    assert_int_equal(lseek(once, 0, SEEK_SET), 0);
    assert_ok(layer_apply(s->root, once, NULL, NULL, &s->room, err));
    assert_has(s, "a", "text");
}

/* Also of what no file gets: data of a whiteout, and what follows the end of the archive. */
static void decompression_is_bounded(void **state)
{
    enum { LARGE = 8 << 20 };
    struct scene *s = *state;
    cleanup_free char *zeros = calloc(1, LARGE);
    cleanup_fd int plain = file_memfd("layer", NULL), fd = file_memfd("layer", NULL);
    put_raw(plain, '0', ".wh.a", NULL, zeros, 1 << 20);
    compress_into(plain, fd, archive_write_add_filter_gzip);
    assert_ok(layer_apply(s->root, fd, NULL, NULL, &s->room, err));
    for (int i = 0; i < 2; i++) {
        cleanup_fd int large = file_memfd("layer", NULL), packed = file_memfd("layer", NULL);
        put_raw(large, '0', i ? "a" : ".wh.a", NULL, zeros, i ? 0 : LARGE);
        assert_int_equal(write(large, zeros, i ? LARGE : 1024), i ? LARGE : 1024);
        compress_into(large, packed, archive_write_add_filter_gzip);
        assert_fails_saying(ERROR_PROTOCOL, "larger than its files",
            layer_apply(s->root, packed, NULL, NULL, &s->room, err));
    }
}

static void an_interrupt_ends_it(void **state)
{
    struct scene *s = *state;
    int ends[2];
    cleanup_fd int fd = layer_with(ENTRIES({ "a", "1" }));
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    s->room.interrupt = &ends[0];
    assert_ok(layer_apply(s->root, fd, NULL, NULL, &s->room, err));
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    assert_fails(ERROR_CANCELLED, layer_apply(s->root, fd, NULL, NULL, &s->room, err));
    close(ends[0]);
    close(ends[1]);
}

static void directories_that_the_archive_left_out_count(void **state)
{
    struct scene *s = *state;
    s->room.entries = 7;
    assert_ok(apply(s, ENTRIES({ "a/b/c/d/e/f/g", "1" }), err));
    s->room.entries = 6;
    assert_fails_saying(
        ERROR_PROTOCOL, "too many files", apply(s, ENTRIES({ "1/b/c/d/e/f/g", "1" }), err));
}

/* Files with paths of 16 directories, each of which is remembered with its whole path. */
static int deep_paths(int count)
{
    int fd = file_memfd("layer", NULL);
    for (int i = 0; i < count; i++) {
        cleanup_buf struct buf record = { 0 };
        for (int k = 0; k < 16; k++)
            buf_printf(&record, "%s%0240d", k ? "/" : "path=", i);
        put_pax(fd, (const char *const[]){ buf_text(&record), NULL });
        put_raw(fd, '0', "a", NULL, NULL, 0);
    }
    return fd;
}

static void what_is_remembered_of_paths_is_bounded(void **state)
{
    struct scene *s = *state;
    cleanup_fd int one = deep_paths(1), many = deep_paths(6);
    s->room.entries = 200;
    assert_ok(apply_raw(s, one, err));
    assert_fails_saying(ERROR_PROTOCOL, "too many names", apply_raw(s, many, err));
}

static void a_whiteout_again_does_nothing(void **state)
{
    struct scene *s = *state;
    assert_ok(apply(s, ENTRIES({ "a/old", "1" }), err));
    assert_ok(apply(s,
        ENTRIES({ "a/.wh..wh..opq", "" }, { "a/new", "2" }, { "a/.wh..wh..opq", "" },
            { "a/.wh.old", "" }, { "a/.wh.old", "" }),
        err));
    assert_false(there(s, "a/old"));
    assert_has(s, "a/new", "2");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_open, scene_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_keep_modes_without_set_user_id),
        TEST(whiteouts_remove_what_earlier_layers_made),
        TEST(an_opaque_directory_keeps_what_its_layer_made),
        TEST(a_whiteout_keeps_what_its_layer_made_below),
        TEST(whiteouts_without_a_name_are_refused),
        TEST(paths_that_lead_out_are_refused),
        TEST(links_are_followed_within_the_image),
        TEST(a_file_replaces_a_link_of_an_earlier_layer),
        TEST(hard_links_are_within_the_image),
        TEST(a_path_is_in_a_layer_once),
        TEST(what_does_not_fit_is_refused),
        TEST(devices_directory_is_left_out),
        TEST(another_digest_is_refused),
        TEST(a_cut_layer_is_refused),
        TEST(files_of_an_archive_get_numbers),
        TEST(links_to_names_of_another_locale_are_links),
        TEST(a_link_to_nothing_is_refused),
        TEST(sparse_files_have_holes_and_no_data_behind_their_end),
        TEST(holes_count_as_bytes),
        TEST(sizes_that_no_file_has_are_refused),
        TEST(a_layer_in_zstd_is_read_also_behind_a_skipped_frame),
        TEST(a_layer_is_compressed_once),
        TEST(decompression_is_bounded),
        TEST(an_interrupt_ends_it),
        TEST(directories_that_the_archive_left_out_count),
        TEST(what_is_remembered_of_paths_is_bounded),
        TEST(a_whiteout_again_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
