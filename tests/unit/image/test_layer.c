/* Layers: paths, whiteouts and links stay within the image, and nothing is left in doubt. The
 * archives are libarchive's, written here. */
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
    s->room = (struct layer_room){ 1 << 20, 100 };
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
    s->room = (struct layer_room){ 10, 3 };
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
    assert_ok(layer_extract_files(s->root, fd, &names, err));
    assert_int_equal(names.count, 2);
    assert_string_equal(names.items[1], "d/x");
    assert_has(s, "0", "[]");
    assert_has(s, "1", "2");
    assert_false(there(s, "l"));
    list_clear(&names);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
