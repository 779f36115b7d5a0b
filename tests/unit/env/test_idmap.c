/* Showing a directory with another owner through a detached idmapped mount. The tests need root,
 * and are skipped if the temporary directory's file system does not support such mounts. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/tree.h"
#include "env/common/idmap.h"

enum { OWNER = 65534, USER = 1900070001, OTHER = 1900070002 };

static char place[64];

static int open_directory(void)
{
    snprintf(place, sizeof place, "/tmp/droste-idmap-XXXXXX");
    assert_non_null(mkdtemp(place));
    assert_int_equal(chown(place, OWNER, OWNER), 0);
    int fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static int mount_or_skip(int directory, uid_t user)
{
    int mount = idmap_mount(directory, OWNER, user);
    if (mount >= 0)
        return mount;
    print_message("# no idmapped mounts of %s here: %s\n", place, strerror(errno));
    tree_remove(AT_FDCWD, place);
    skip();
    return -1;
}

/* In a child that is this user: 0, or the errno of making a file there. */
static int make_file_as(int directory, const char *name, uid_t user)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (setresgid(user, user, user) < 0 || setresuid(user, user, user) < 0)
            _exit(255);
        int fd = openat(directory, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        _exit(fd < 0 ? errno : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

/* What the user of the mount makes is the owner's on disk, and the user's where it is mounted;
 * others may do nothing there, and neither may the user without the mount. */
static void files_are_the_owners_on_disk(void **state)
{
    struct stat disk, seen;
    cleanup_fd int directory = open_directory();
    cleanup_fd int mount = mount_or_skip(directory, USER);
    assert_int_equal(make_file_as(mount, "x", USER), 0);
    assert_int_equal(fstatat(directory, "x", &disk, 0), 0);
    assert_int_equal(fstatat(mount, "x", &seen, 0), 0);
    assert_int_equal(disk.st_uid, OWNER);
    assert_int_equal(disk.st_gid, OWNER);
    assert_int_equal(seen.st_uid, USER);
    assert_int_equal(seen.st_gid, USER);
    assert_int_equal(make_file_as(mount, "y", OTHER), EACCES);
    assert_int_equal(make_file_as(mount, "y", OWNER), EACCES);
    assert_int_equal(make_file_as(directory, "y", USER), EACCES);
    tree_remove(AT_FDCWD, place);
}

/* Two at once, of one directory: each user finds the other's files its own. */
static void two_users_share_a_directory(void **state)
{
    cleanup_fd int directory = open_directory();
    cleanup_fd int one = mount_or_skip(directory, USER);
    cleanup_fd int two = idmap_mount(directory, OWNER, OTHER);
    assert_true(two >= 0);
    assert_int_equal(make_file_as(one, "x", USER), 0);
    assert_int_equal(make_file_as(two, "x", OTHER), 0);
    assert_int_equal(make_file_as(one, "x", USER), 0);
    tree_remove(AT_FDCWD, place);
}

/* The process that the namespace was made with is gone, and is nobody's child to wait for. */
static void nothing_is_left_to_wait_for(void **state)
{
    cleanup_fd int directory = open_directory();
    cleanup_fd int mount = mount_or_skip(directory, USER);
    assert_int_equal(waitpid(-1, NULL, WNOHANG | __WALL), -1);
    assert_int_equal(errno, ECHILD);
    tree_remove(AT_FDCWD, place);
}

/* /proc cannot be mounted so: the caller is told, and has no descriptor. */
static void a_file_system_without_support_is_reported(void **state)
{
    cleanup_fd int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(idmap_mount(proc, OWNER, USER), -1);
    assert_true(errno == EINVAL || errno == EPERM);
}

int main(void)
{
    if (geteuid() != 0) {
        printf("1..0 # SKIP needs root, which alone can map the owners of files\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_the_owners_on_disk),
        cmocka_unit_test(two_users_share_a_directory),
        cmocka_unit_test(nothing_is_left_to_wait_for),
        cmocka_unit_test(a_file_system_without_support_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
