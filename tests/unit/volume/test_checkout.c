/* Writing the files of a commit: what the repository has is on disk, and no tree that a stranger
 * made leads out of it. The trees are git's own objects, written without its checks. */
#include "fixture.h"

#include "base/clock.h"
#include "volume/checkout.h"
#include "volume/git.h"

static struct repository repository;
static struct git_bounds git_bounds;

static int keep_id(void *arg, const char *data, size_t len, struct error *err)
{
    char *id = arg;
    size_t have = strlen(id);
    for (size_t i = 0; i < len && data[i] != '\n' && have + 1 < COMMIT_SIZE; i++)
        id[have++] = data[i];
    id[have] = '\0';
    return 0;
}

static void run_git(const char *const *words, const char *input, size_t len, char id[COMMIT_SIZE])
{
    cleanup_fd int fd = -1;
    assert_ok(fd = file_memfd("input", err));
    assert_int_equal(file_write_all(fd, input, len), 0);
    lseek(fd, 0, SEEK_SET);
    id[0] = '\0';
    struct git_call call = { .directory = repository.path,
        .words = words,
        .input = fd,
        .lock = -1,
        .take = keep_id,
        .arg = id };
    assert_ok(git_run(&call, &git_bounds, NULL, err));
}

static int checkout_begin(void **state)
{
    static char path[100], parent[100];
    if (make_directory(state) < 0)
        return -1;
    git_bounds = (struct git_bounds){ clock_ns() + 60000000000, -1, 0 };
    snprintf(parent, sizeof parent, "%s/cache", place);
    snprintf(path, sizeof path, "%s/cache/git", place);
    if (mkdir(parent, 0700) < 0)
        return -1;
    repository =
        (struct repository){ path, -1, open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC), "" };
    const char *words[] = { "init", "-q", "--bare", path, NULL };
    struct git_call call = { .words = words, .input = -1, .lock = -1 };
    return git_run(&call, &git_bounds, NULL, NULL);
}

static int checkout_over(void **state)
{
    close(repository.busy_at);
    return remove_directory(state);
}

#define checkout_test(f) cmocka_unit_test_setup_teardown(f, checkout_begin, checkout_over)

/* ---- objects ---- */

static void put_object(const char *type, const char *data, size_t len, char id[COMMIT_SIZE])
{
    const char *words[] = { "hash-object", "-w", "--literally", "--stdin", "-t", type, NULL };
    run_git(words, data, len, id);
    assert_int_equal(strlen(id), 40);
}

/* Adds an entry to a tree. */
static void add_entry(struct buf *tree, const char *mode, const char *name, const char *id)
{
    buf_printf(tree, "%s %s", mode, name);
    buf_putc(tree, '\0');
    for (size_t i = 0; i < 40; i += 2) {
        unsigned byte;
        assert_int_equal(sscanf(id + i, "%2x", &byte), 1);
        buf_putc(tree, (char)byte);
    }
}

static void add_blob(struct buf *tree, const char *mode, const char *name, const char *text)
{
    char id[COMMIT_SIZE];
    put_object("blob", text, strlen(text), id);
    add_entry(tree, mode, name, id);
}

static void add_tree(struct buf *tree, const char *name, struct buf *below)
{
    char id[COMMIT_SIZE];
    put_object("tree", buf_text(below), below->len, id);
    add_entry(tree, "40000", name, id);
    buf_free(below);
}

/* Writes the tree into `files` of a new volume; frees the tree. */
static int check_out(
    struct volume *v, struct buf *tree, droste_volume_count *count, struct error *err)
{
    put_object("tree", buf_text(tree), tree->len, repository.commit);
    buf_free(tree);
    return checkout(v, "files", &repository, &git_bounds, count, err);
}

static mode_t mode_of(struct volume *v, const char *path)
{
    struct stat st;
    return fstatat(volume_data(v), path, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : st.st_mode;
}

/* ---- tests ---- */

/* Files, programs, links, directories, and a submodule as an empty directory; all are counted. */
static void a_commit_is_written(void **state)
{
    struct volume *v = new_volume();
    struct buf tree = { 0 }, below = { 0 };
    droste_volume_count count;
    mode_t before = umask(077);
    add_blob(&below, "100755", "run", "#!/bin/sh\n");
    add_blob(&below, "100644", "empty", "");
    add_blob(&tree, "100644", "a\nb", "text");
    add_tree(&tree, "d", &below);
    add_blob(&tree, "120000", "l", "../../outside");
    add_entry(&tree, "160000", "sub", "0123456789012345678901234567890123456789");
    assert_ok(check_out(v, &tree, &count, err));
    umask(before);
    assert_string_equal(text_of(v, "files/a\nb"), "text");
    assert_string_equal(text_of(v, "files/d/run"), "#!/bin/sh\n");
    assert_int_equal(mode_of(v, "files/d/run"), S_IFREG | 0755);
    assert_int_equal(mode_of(v, "files/d/empty"), S_IFREG | 0644);
    assert_true(S_ISLNK(mode_of(v, "files/l")));
    assert_true(S_ISDIR(mode_of(v, "files/sub")));
    assert_int_equal(count.bytes, 4 + 10 + 0 + strlen("../../outside"));
    assert_int_equal(count.files, 7);
    volume_release(v);
}

/* Names that lead elsewhere, or make another git run what is there, are refused; a file of nearly
 * such a name is written. */
static void names_that_lead_elsewhere_are_refused(void **state)
{
    static const char *const bad[] = { "..", ".git", ".GIT", "." };
    struct volume *v = new_volume();
    droste_volume_count count;
    for (size_t i = 0; i < array_length(bad); i++) {
        struct buf tree = { 0 };
        struct error err = { 0 };
        add_blob(&tree, "100644", bad[i], "escaped");
        assert_int_equal(check_out(v, &tree, &count, &err), -(int)ERROR_PROTOCOL);
        assert_non_null(strstr(err.text, "this name is not allowed"));
        tree_remove(volume_data(v), "files");
    }
    assert_false(is_there("escaped"));
    struct buf tree = { 0 };
    add_blob(&tree, "100644", ".gitignore", "fine");
    assert_ok(check_out(v, &tree, &count, err));
    assert_string_equal(text_of(v, "files/.gitignore"), "fine");
    volume_release(v);
}

/* A link and a directory of one name: nothing is written behind the link. */
static void links_are_never_followed(void **state)
{
    struct volume *v = new_volume();
    struct buf tree = { 0 }, below = { 0 };
    droste_volume_count count;
    assert_int_equal(mkdir(at("outside"), 0755), 0);
    add_blob(&below, "100644", "f", "escaped");
    add_blob(&tree, "120000", "x", at("outside"));
    add_tree(&tree, "x", &below);
    assert_fails_saying(
        ERROR_PROTOCOL, "another file has the same name", check_out(v, &tree, &count, err));
    assert_int_equal(count_in("outside"), 0);
    volume_release(v);
}

/* Two files of one name are refused. */
static void a_name_is_of_one_file(void **state)
{
    struct volume *v = new_volume();
    struct buf tree = { 0 };
    droste_volume_count count;
    add_blob(&tree, "100644", "f", "one");
    add_blob(&tree, "100644", "f", "two");
    assert_fails_saying(
        ERROR_PROTOCOL, "another file has the same name", check_out(v, &tree, &count, err));
    volume_release(v);
}

/* Links without a target, and with one that is too long, are refused with their name. */
static void a_links_target_is_checked(void **state)
{
    struct volume *v = new_volume();
    struct buf tree = { 0 };
    droste_volume_count count;
    char target[4097];
    memset(target, 't', sizeof target - 1);
    target[sizeof target - 1] = '\0';
    add_blob(&tree, "120000", "none", "");
    assert_fails_saying(ERROR_PROTOCOL, "the link has no target", check_out(v, &tree, &count, err));
    tree_remove(volume_data(v), "files");
    add_blob(&tree, "120000", "long", target);
    assert_fails_saying(
        ERROR_PROTOCOL, "target of the link is too long", check_out(v, &tree, &count, err));
    volume_release(v);
}

/* What is larger than the volume may be is refused with the settings to raise, by bytes and by
 * files; what is exactly as large is written. */
static void the_volumes_limits_hold(void **state)
{
    const struct volume_limits small = { 10, 4 };
    struct volume *v = NULL;
    struct buf tree = { 0 };
    droste_volume_count count;
    assert_ok(volume_create(root, "v", &small, err));
    assert_ok(volume_open(root, "v", VOLUME_SHARED, &v, err));
    add_blob(&tree, "100644", "a", "12345");
    add_blob(&tree, "100644", "b", "123456");
    assert_fails_saying(ERROR_ARGUMENT, "--workspace-size", check_out(v, &tree, &count, err));
    tree_remove(volume_data(v), "files");
    for (char name[] = "a"; name[0] < 'f'; name[0]++)
        add_blob(&tree, "100644", name, "");
    assert_fails_saying(ERROR_ARGUMENT, "--workspace-files", check_out(v, &tree, &count, err));
    tree_remove(volume_data(v), "files");
    add_blob(&tree, "100644", "a", "12345");
    add_blob(&tree, "100644", "b", "12345");
    assert_ok(check_out(v, &tree, &count, err));
    volume_release(v);
}

/* An object that the cache lacks is told as such, and the cache is not trusted any more. */
static void a_missing_object_is_not_trusted(void **state)
{
    struct volume *v = new_volume();
    struct buf tree = { 0 };
    droste_volume_count count;
    add_entry(&tree, "100644", "f", "0123456789012345678901234567890123456789");
    assert_false(is_there("cache/busy"));
    assert_fails_saying(
        ERROR_PROTOCOL, "the next attempt fetches it again", check_out(v, &tree, &count, err));
    assert_true(is_there("cache/busy"));
    volume_release(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        checkout_test(a_commit_is_written),
        checkout_test(names_that_lead_elsewhere_are_refused),
        checkout_test(links_are_never_followed),
        checkout_test(a_name_is_of_one_file),
        checkout_test(a_links_target_is_checked),
        checkout_test(the_volumes_limits_hold),
        checkout_test(a_missing_object_is_not_trusted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
