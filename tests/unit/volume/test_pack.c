/* Sending a volume as a stream and receiving one from a sandbox: the stream is complete, paths in a
 * received stream cannot leave the volume, and nothing changes before the whole stream is
 * checked. */
#include "../test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/tree.h"
#include "volume/pack.h"

struct scene {
    char dir[64];
    struct volume *v;
    struct buf stream;
    struct pack_state state;
    bool over;
};

static int scene_open(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    struct volume_limits limits = { .size = 1 << 20, .files = 60 };
    assert_non_null(s);
    snprintf(s->dir, sizeof s->dir, "/tmp/droste-pack-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    assert_ok(volume_open_or_create(s->dir, "v", &limits, &s->v, err));
    *state = s;
    return 0;
}

static int scene_close(void **state)
{
    struct scene *s = *state;
    volume_release(s->v);
    list_clear(&s->state.paths);
    buf_free(&s->stream);
    tree_remove(AT_FDCWD, s->dir);
    free(s);
    return 0;
}

static void add(struct scene *s, enum pack_kind kind, const char *path, size_t path_len,
    const char *data, uint64_t len)
{
    unsigned char header[PACK_HEADER_SIZE] = { (unsigned char)kind, 0, 0xa4, 0x01 };
    uint32_t n = (uint32_t)path_len;
    memcpy(header + 4, &n, sizeof n);
    memcpy(header + 8, &len, sizeof len);
    buf_append(&s->stream, header, sizeof header);
    buf_append(&s->stream, path, path_len);
    buf_append(&s->stream, data, data ? (size_t)len : 0);
}

static void add_text(struct scene *s, enum pack_kind kind, const char *path, const char *data)
{
    add(s, kind, path, strlen(path), data, data ? strlen(data) : 0);
}

static int unpack(struct scene *s, struct error *why)
{
    cleanup_fd int file = -1;
    assert_ok(volume_pack_file(s->v, &file, err));
    assert_int_equal(write(file, buf_text(&s->stream), s->stream.len), (ssize_t)s->stream.len);
    int rc = volume_unpack(s->v, file, &s->state, &s->over, why);
    buf_clear(&s->stream);
    return rc;
}

/* A file's text; "" where there is none. */
static const char *text_of(struct scene *s, const char *path)
{
    static char text[256];
    cleanup_fd int fd = openat(volume_data(s->v), path, O_RDONLY | O_NOFOLLOW);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static bool is_there(struct scene *s, const char *path)
{
    struct stat st;
    return fstatat(volume_data(s->v), path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void what_comes_is_there(void **state)
{
    struct scene *s = *state;
    add_text(s, PACK_DIRECTORY, "a", NULL);
    add_text(s, PACK_DIRECTORY, "a/b", NULL);
    add_text(s, PACK_FILE, "a/b/c", "text");
    add_text(s, PACK_LINK, "l", "a/b/c");
    add_text(s, PACK_END, "sum", NULL);
    assert_ok(unpack(s, err));
    assert_string_equal(text_of(s, "a/b/c"), "text");
    assert_true(is_there(s, "l"));
    assert_string_equal(s->state.sum, "sum");
    assert_int_equal(s->state.paths.count, 4);
    assert_false(s->over);
}

/* Of what the sandbox had; what somebody else has put there stays. */
static void what_is_gone_there_is_removed(void **state)
{
    struct scene *s = *state;
    add_text(s, PACK_DIRECTORY, "a", NULL);
    add_text(s, PACK_FILE, "a/x", "1");
    add_text(s, PACK_FILE, "y", "2");
    add_text(s, PACK_END, "", NULL);
    assert_ok(unpack(s, err));
    close(openat(volume_data(s->v), "other", O_WRONLY | O_CREAT, 0600));
    add_text(s, PACK_KEEP, "y", NULL);
    add_text(s, PACK_END, "", NULL);
    assert_ok(unpack(s, err));
    assert_false(is_there(s, "a"));
    assert_string_equal(text_of(s, "y"), "2");
    assert_true(is_there(s, "other"));
}

static void nothing_changes_where_nothing_has(void **state)
{
    struct scene *s = *state;
    add_text(s, PACK_FILE, "y", "2");
    add_text(s, PACK_END, "", NULL);
    assert_ok(unpack(s, err));
    add_text(s, PACK_END, "same", NULL);
    s->stream.data[2] = 1;
    s->stream.data[3] = 0;
    assert_ok(unpack(s, err));
    assert_string_equal(text_of(s, "y"), "2");
    assert_string_equal(s->state.sum, "same");
    assert_int_equal(s->state.paths.count, 1);
}

/* Each is refused, and what stood before it in the stream was not done either. */
static void what_is_broken_changes_nothing(void **state)
{
    static const struct {
        const char *path;
        size_t len;
    } paths[] = { { "", 0 }, { "/etc/x", 6 }, { "..", 2 }, { "a/../../x", 9 }, { ".", 1 },
        { "a//b", 4 }, { "a/", 2 }, { "a\0b", 3 }, { "./a", 3 } };
    struct scene *s = *state;
    for (size_t i = 0; i < array_length(paths); i++) {
        add_text(s, PACK_FILE, "before", "x");
        add(s, PACK_FILE, paths[i].path, paths[i].len, "x", 1);
        add_text(s, PACK_END, "", NULL);
        assert_fails(ERROR_PROTOCOL, unpack(s, err));
    }
    add_text(s, PACK_FILE, "before", "x");
    add_text(s, 77, "kind", NULL);
    assert_fails(ERROR_PROTOCOL, unpack(s, err));
    add(s, PACK_DIRECTORY, "d", 1, "x", 1);
    add_text(s, PACK_END, "", NULL);
    assert_fails(ERROR_PROTOCOL, unpack(s, err));
    add(s, PACK_FILE, "f", 1, NULL, UINT64_MAX);
    assert_fails(ERROR_PROTOCOL, unpack(s, err));
    assert_false(is_there(s, "before"));
}

/* Cut anywhere, it is broken; whole, it is not. */
static void every_cut_is_noticed(void **state)
{
    struct scene *s = *state;
    cleanup_buf struct buf whole = { 0 };
    add_text(s, PACK_DIRECTORY, "a", NULL);
    add_text(s, PACK_FILE, "a/f", "some text");
    add_text(s, PACK_END, "0123", NULL);
    buf_append(&whole, s->stream.data, s->stream.len);
    for (size_t n = 0; n < whole.len; n++) {
        buf_clear(&s->stream);
        buf_append(&s->stream, whole.data, n);
        assert_fails(ERROR_PROTOCOL, unpack(s, err));
        assert_false(is_there(s, "a"));
    }
    buf_append(&s->stream, whole.data, whole.len);
    assert_ok(unpack(s, err));
    assert_true(is_there(s, "a"));
}

/* A link that came, or stands there, leads nowhere: what is below it is refused, what has its name
 * takes its place. */
static void links_are_not_followed(void **state)
{
    struct scene *s = *state;
    char outside[96];
    snprintf(outside, sizeof outside, "%s/outside", s->dir);
    assert_int_equal(mkdir(outside, 0755), 0);
    add_text(s, PACK_LINK, "l", outside);
    add_text(s, PACK_FILE, "l/f", "escaped");
    add_text(s, PACK_END, "", NULL);
    assert_fails(ERROR_PERMISSION, unpack(s, err));
    add_text(s, PACK_FILE, "l", "a file");
    add_text(s, PACK_END, "", NULL);
    assert_ok(unpack(s, err));
    assert_string_equal(text_of(s, "l"), "a file");
    assert_int_equal(rmdir(outside), 0); /* it is as empty as it was */
}

static void more_than_the_limits_is_not_taken(void **state)
{
    struct scene *s = *state;
    cleanup_free char *large = calloc(1, (1 << 20) + 1);
    add(s, PACK_FILE, "large", 5, large, (1 << 20) + 1);
    add_text(s, PACK_END, "", NULL);
    assert_ok(unpack(s, err));
    assert_true(s->over);
    assert_false(is_there(s, "large"));
    for (int i = 0; i <= 60; i++) {
        char name[8];
        snprintf(name, sizeof name, "f%d", i);
        add_text(s, PACK_FILE, name, "");
    }
    add_text(s, PACK_END, "", NULL);
    assert_ok(unpack(s, err));
    assert_true(s->over);
    assert_false(is_there(s, "f0"));
}

/* ---- packing ---- */

static int make_file(int at, const char *name, const char *text, mode_t mode)
{
    cleanup_fd int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return fd < 0 ? -1 : file_write_all(fd, text, strlen(text)) + fchmod(fd, mode);
}

/* Packs the scene's volume and keeps the stream. */
static void pack(struct scene *s, struct list *paths)
{
    cleanup_fd int file = -1;
    assert_ok(volume_pack(s->v, &file, paths, err));
    buf_clear(&s->stream);
    assert_ok(file_read_fd(file, "the stream", 1 << 20, &s->stream, err));
}

/* What is packed and taken by another volume is the same tree: texts, modes, times, links. */
static void what_is_packed_is_what_was_there(void **state)
{
    struct scene *s = *state;
    struct list paths = { 0 };
    const struct timespec old[2] = { { 1000000000, 0 }, { 1000000000, 0 } };
    struct stat st;
    int data = volume_data(s->v);
    assert_int_equal(mkdirat(data, "d", 0755), 0);
    assert_int_equal(mkdirat(data, "d/empty", 0755), 0);
    assert_int_equal(make_file(data, "d/script", "#!/bin/sh\n", 0755), 0);
    assert_int_equal(make_file(data, "none", "", 0600), 0);
    assert_int_equal(symlinkat("/nowhere/else", data, "link"), 0);
    assert_int_equal(utimensat(data, "none", old, 0), 0);
    pack(s, &paths);
    assert_int_equal(paths.count, 5);
    list_clear(&paths);

    struct volume *first = s->v;
    struct volume_limits limits = { .size = 1 << 20, .files = 60 };
    assert_ok(volume_open_or_create(s->dir, "w", &limits, &s->v, err));
    assert_ok(unpack(s, err));
    volume_release(first);
    assert_string_equal(text_of(s, "d/script"), "#!/bin/sh\n");
    assert_true(is_there(s, "d/empty"));
    assert_int_equal(fstatat(volume_data(s->v), "d/script", &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0755);
    assert_int_equal(fstatat(volume_data(s->v), "none", &st, 0), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_mtime, 1000000000);
    assert_int_equal(st.st_size, 0);
    char target[32];
    ssize_t n = readlinkat(volume_data(s->v), "link", target, sizeof target);
    assert_int_equal(n, strlen("/nowhere/else"));
    assert_memory_equal(target, "/nowhere/else", (size_t)n);
}

/* FIFOs and sockets are passed over; files without permissions are not, where they can be read. */
static void only_files_directories_and_links_are_packed(void **state)
{
    struct scene *s = *state;
    struct list paths = { 0 };
    int data = volume_data(s->v);
    assert_int_equal(mkfifoat(data, "fifo", 0600), 0);
    assert_int_equal(make_file(data, "file", "x", 0644), 0);
    pack(s, &paths);
    assert_int_equal(paths.count, 1);
    assert_string_equal(paths.items[0], "file");
    list_clear(&paths);
}

/* A volume without files is a stream of its end alone. */
static void nothing_is_packed_as_an_end(void **state)
{
    struct scene *s = *state;
    pack(s, NULL);
    assert_int_equal(s->stream.len, PACK_HEADER_SIZE);
    assert_int_equal(s->stream.data[0], PACK_END);
}

/* A disk that is full ends it with the volume's name, and leaves nothing. A limit of the file's
 * size cuts writes as a full disk does. */
static void a_full_disk_ends_the_packing(void **state)
{
    struct scene *s = *state;
    struct rlimit before, small;
    cleanup_free char *large = malloc(70001);
    memset(large, 'x', 70000);
    large[70000] = '\0';
    assert_int_equal(make_file(volume_data(s->v), "large", large, 0644), 0);
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t room = 0; room < 70000; room += 9999) {
        struct error err = { 0 };
        int file = -1;
        small = (struct rlimit){ room, before.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        int rc = volume_pack(s->v, &file, NULL, &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_true(rc < 0 && file == -1);
        assert_non_null(strstr(err.text, "volume 'v'"));
    }
    pack(s, NULL);
    assert_int_equal(s->stream.len, 2 * PACK_HEADER_SIZE + strlen("large") + 70000);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, scene_open, scene_close)
    const struct CMUnitTest tests[] = {
        TEST(what_comes_is_there),
        TEST(what_is_gone_there_is_removed),
        TEST(nothing_changes_where_nothing_has),
        TEST(what_is_broken_changes_nothing),
        TEST(every_cut_is_noticed),
        TEST(links_are_not_followed),
        TEST(more_than_the_limits_is_not_taken),
        TEST(what_is_packed_is_what_was_there),
        TEST(only_files_directories_and_links_are_packed),
        TEST(nothing_is_packed_as_an_end),
        TEST(a_full_disk_ends_the_packing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
