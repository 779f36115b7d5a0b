/* Rich results as files: every form has a name of its own, and nothing of the name is the
 * sandbox's. */
#include "../test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/result.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/tree.h"
#include "cli/cli.h"
#include "cli/results.h"

static char dir[64];

static int saving_begin(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/droste-saving-XXXXXX");
    return mkdtemp(dir) ? chdir(dir) : -1;
}

static int saving_over(void **state)
{
    tree_remove(AT_FDCWD, dir);
    return chdir("/");
}

#define saving_test(f) cmocka_unit_test_setup_teardown(f, saving_begin, saving_over)

/* Saves one result of these forms into `out`. */
static int save(struct bundle_item *items, size_t count, const char *out)
{
    struct bundle bundle = { .items = items, .count = count };
    droste_result r = { .cell.results = { .items = &bundle, .count = 1 } };
    struct result_files files = { .dir = out };
    int rc = cli_save_results(&files, &r);
    cli_save_end(&files);
    return rc;
}

static void assert_file(const char *name, const char *text)
{
    cleanup_buf struct buf found = { 0 };
    cleanup_fd int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail_msg("there is no %s", name);
    assert_ok(file_read_fd(fd, name, 1 << 20, &found, err));
    assert_string_equal(buf_text(&found), text);
}

static unsigned count_files(const char *name)
{
    unsigned count = 0;
    DIR *listing = opendir(name);
    assert_non_null(listing);
    for (struct dirent *e; (e = readdir(listing));)
        count += e->d_name[0] != '.';
    closedir(listing);
    return count;
}

#define ITEM(type, form, text)                                                                     \
    {                                                                                              \
        type, form, text, sizeof(text) - 1                                                         \
    }

/* A known type has its extension; others have one by their form, and their index. */
static void a_form_is_a_file(void **state)
{
    struct bundle_item items[] = { ITEM("text/plain", MEDIA_TEXT, "plain"),
        ITEM("image/png", MEDIA_BYTES, "png"), ITEM("x/../../y", MEDIA_BYTES, "bytes"),
        ITEM("application/x", MEDIA_JSON, "{}"), ITEM("text/x", MEDIA_TEXT, "x") };
    assert_int_equal(save(items, 5, "new/out"), EXIT_FINE);
    assert_file("new/out/1.txt", "plain");
    assert_file("new/out/1.png", "png");
    assert_file("new/out/1-3.bin", "bytes");
    assert_file("new/out/1-4.json", "{}");
    assert_file("new/out/1-5.txt", "x");
    assert_int_equal(count_files("new/out"), 5);
}

/* Two forms of one extension are two files: neither replaces the other. */
static void forms_of_one_extension_are_two_files(void **state)
{
    struct bundle_item items[] = {
        ITEM("application/vnd.vegalite.v5+json", MEDIA_JSON, "[5]"),
        ITEM("text/plain", MEDIA_TEXT, "chart"),
        ITEM("application/vnd.vegalite.v4+json", MEDIA_JSON, "[4]"),
    };
    assert_int_equal(save(items, 3, "out"), EXIT_FINE);
    assert_file("out/1.vl.json", "[5]");
    assert_file("out/1-3.vl.json", "[4]");
    assert_int_equal(count_files("out"), 3);
}

/* A directory that cannot be made ends it with the status of the environment, as does a name that
 * is taken by a directory. */
static void what_cannot_be_written_is_an_error(void **state)
{
    struct bundle_item items[] = { ITEM("text/plain", MEDIA_TEXT, "plain") };
    int kept = dup(STDERR_FILENO);
    cleanup_fd int none = open("/dev/null", O_WRONLY | O_CLOEXEC);
    close(open("file", O_WRONLY | O_CREAT, 0644));
    mkdir("taken", 0755);
    mkdir("taken/1.txt", 0755);
    dup2(none, STDERR_FILENO);
    int below = save(items, 1, "file/out"), taken = save(items, 1, "taken");
    dup2(kept, STDERR_FILENO);
    close(kept);
    assert_int_equal(below, EXIT_ENVIRONMENT);
    assert_int_equal(taken, EXIT_ENVIRONMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        saving_test(a_form_is_a_file),
        saving_test(forms_of_one_extension_are_two_files),
        saving_test(what_cannot_be_written_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
