/* Opening files below a directory that untrusted code writes to: no path leads out of it. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/beneath.h"
#include "base/os/tree.h"

static char place[64];
static int top;

static int make_directory(void **state)
{
    snprintf(place, sizeof place, "/tmp/droste-beneath-XXXXXX");
    if (!mkdtemp(place))
        return -1;
    top = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return top < 0 || mkdirat(top, "a", 0755) < 0 || mkdirat(top, "a/b", 0755) < 0 ? -1 : 0;
}

static int remove_directory(void **state)
{
    close(top);
    return tree_remove(AT_FDCWD, place) ? 0 : -1;
}

#define beneath_test(f) cmocka_unit_test_setup_teardown(f, make_directory, remove_directory)

/* The error with which a path is refused; 0: it was opened. */
static int refusal(const char *path)
{
    cleanup_fd int fd = open_beneath(top, path, O_RDONLY, 0);
    return fd < 0 ? errno : 0;
}

/* Files and directories of any depth are opened, and made with the mode given. */
static void paths_below_are_opened(void **state)
{
    struct stat st;
    cleanup_fd int made = open_beneath(top, "a/b/file", O_WRONLY | O_CREAT | O_EXCL, 0640);
    assert_true(made >= 0);
    assert_int_equal(fstat(made, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(fcntl(made, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(refusal("a/b/file"), 0);
    assert_int_equal(refusal("a/b/../b/file"), 0);
    assert_int_equal(refusal("."), 0);
    assert_int_equal(refusal("a/none"), ENOENT);
}

/* "..", an absolute path, and a link at any place of the path do not lead out. */
static void no_path_leads_out(void **state)
{
    assert_int_equal(symlinkat("/etc", top, "absolute"), 0);
    assert_int_equal(symlinkat("b", top, "a/inside"), 0);
    assert_int_equal(symlinkat("../..", top, "a/up"), 0);
    assert_int_equal(refusal("../passwd"), EXDEV);
    assert_int_equal(refusal("a/../../x"), EXDEV);
    assert_int_equal(refusal("/etc/passwd"), EXDEV);
    assert_int_equal(refusal("absolute/passwd"), ELOOP);
    assert_int_equal(refusal("absolute"), ELOOP);
    assert_int_equal(refusal("a/up/x"), ELOOP);
    assert_int_equal(refusal("a/inside"), ELOOP); /* also one that would stay inside */
}

/* A FIFO without a writer is opened at once. */
static void a_fifo_does_not_block(void **state)
{
    assert_int_equal(mkfifoat(top, "fifo", 0600), 0);
    assert_int_equal(refusal("fifo"), 0);
    cleanup_fd int fd = open_anyway(top, "fifo", O_RDONLY);
    assert_true(fd >= 0);
}

/* A directory whose owner may not read it is listed, and has its mode again. A file or a link is
 * no directory. */
static void modes_hide_nothing_from_the_owner(void **state)
{
    struct stat st;
    assert_int_equal(fchmodat(top, "a", 0, 0), 0);
    DIR *listing = open_listing(top, "a");
    assert_non_null(listing);
    assert_string_equal(next_listed(listing), "b");
    assert_null(next_listed(listing));
    closedir(listing);
    assert_int_equal(fstatat(top, "a", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0);
    assert_int_equal(fchmodat(top, "a", 0755, 0), 0);
    assert_int_equal(symlinkat("a", top, "link"), 0);
    assert_null(open_listing(top, "link"));
    assert_true(errno == ELOOP || errno == ENOTDIR);
    assert_null(open_listing(top, "none"));
    assert_int_equal(errno, ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        beneath_test(paths_below_are_opened),
        beneath_test(no_path_leads_out),
        beneath_test(a_fifo_does_not_block),
        beneath_test(modes_hide_nothing_from_the_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
