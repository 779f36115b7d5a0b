/* The temporary directories of zygotes: one that a killed host has left is removed by the next, and
 * nothing else is. */
#include "../test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/tree.h"
#include "env/common/scratch_dir.h"

static char place[64];

static int setup(void **state)
{
    strcpy(place, "/tmp/nests-XXXXXX");
    assert_non_null(mkdtemp(place));
    return setenv("TMPDIR", place, 1);
}

static int teardown(void **state)
{
    unsetenv("TMPDIR");
    return tree_remove(AT_FDCWD, place) ? 0 : -1;
}

static const char *in_directory(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", place, name);
    return path;
}

static void make(const char *name)
{
    assert_int_equal(mkdir(in_directory(name), 0700), 0);
}

static bool is_there(const char *name)
{
    struct stat st;
    return lstat(in_directory(name), &st) == 0;
}

static void open_and_close_one(void)
{
    struct scratch_dir *scratch_dir = NULL;
    char path[128];
    assert_ok(scratch_dir_new(false, &scratch_dir, err));
    snprintf(path, sizeof path, "%s", scratch_dir_path(scratch_dir));
    assert_int_equal(access(path, F_OK), 0);
    scratch_dir_release(scratch_dir);
    assert_int_equal(access(path, F_OK), -1);
}

static void one_that_is_left_is_removed(void **state)
{
    make("droste-aB3dE6");
    open_and_close_one();
    assert_false(is_there("droste-aB3dE6"));
}

static void a_directory_in_use_stays(void **state)
{
    struct scratch_dir *scratch_dir = NULL, *second = NULL;
    assert_ok(scratch_dir_new(false, &scratch_dir, err));
    assert_ok(scratch_dir_new(false, &second, err));
    assert_int_equal(access(scratch_dir_path(scratch_dir), F_OK), 0);
    scratch_dir_release(second);
    open_and_close_one();
    assert_int_equal(access(scratch_dir_path(scratch_dir), F_OK), 0);
    scratch_dir_release(scratch_dir);
}

static void what_is_no_scratch_dir_or_not_empty_stays(void **state)
{
    static const char *const names[] = { "droste-aB3dE67", "droste-aB3dE", "Droste-aB3dE6",
        "droste-bbbbbb", "droste-cccccc" };
    make(names[0]);
    make(names[1]);
    make(names[2]);
    make(names[3]);
    make("droste-bbbbbb/work");
    make("elsewhere");
    assert_int_equal(symlink("elsewhere", in_directory(names[4])), 0);
    open_and_close_one();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(is_there(names[i]));
    assert_true(is_there("elsewhere"));
}

static void another_users_stays(void **state)
{
    if (geteuid() != 0) {
        print_message("skipped: only root can give a directory to somebody else\n");
        skip();
    }
    make("droste-dddddd");
    assert_int_equal(chown(in_directory("droste-dddddd"), 12345, 12345), 0);
    open_and_close_one();
    assert_true(is_there("droste-dddddd"));
}

static void a_missing_directory_is_reported(void **state)
{
    struct scratch_dir *scratch_dir = NULL;
    setenv("TMPDIR", in_directory("not-there"), 1);
    assert_fails(ERROR_ENVIRONMENT, scratch_dir_new(false, &scratch_dir, err));
    setenv("TMPDIR", place, 1);
}

#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        T(one_that_is_left_is_removed),
        T(a_directory_in_use_stays),
        T(what_is_no_scratch_dir_or_not_empty_stays),
        T(another_users_stays),
        T(a_missing_directory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
