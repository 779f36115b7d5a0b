/* What the tests of volumes share: a root of its own for each, and what is asked of the disk. */
#pragma once

#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/beneath.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/tree.h"
#include "volume/volume.h"

static const struct volume_limits limits = { 8 << 20, 1000 };

/* ---- a root of its own for each test ---- */

static char place[64], root[80];
static char asked[64]; /* of the disk; see below */

static inline int make_directory(void **state)
{
    snprintf(place, sizeof place, "/tmp/droste-volume-XXXXXX");
    if (!mkdtemp(place))
        return -1;
    snprintf(root, sizeof root, "%s/volumes", place);
    memset(asked, 0, sizeof asked);
    return 0;
}

static inline int remove_directory(void **state)
{
    return tree_remove(AT_FDCWD, place) ? 0 : -1;
}

#define volume_test(f) cmocka_unit_test_setup_teardown(f, make_directory, remove_directory)

static inline const char *at(const char *name)
{
    static char paths[4][200];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", place, name);
    return path;
}

static inline bool is_there(const char *name)
{
    struct stat st;
    return lstat(at(name), &st) == 0;
}

static inline unsigned count_in(const char *name)
{
    unsigned count = 0;
    DIR *listing = open_listing(AT_FDCWD, at(name));
    assert_non_null(listing);
    while (next_listed(listing))
        count++;
    closedir(listing);
    return count;
}

static inline struct volume *open_volume(enum volume_use use)
{
    struct volume *v = NULL;
    assert_ok(volume_open(root, "v", use, &v, err));
    return v;
}

static inline struct volume *new_volume(void)
{
    assert_ok(volume_create(root, "v", &limits, err));
    return open_volume(VOLUME_SHARED);
}

/* A layout's directories. */
static const char *const expected_directories[] = { "artifacts", "buffers", "knowledge",
    "knowledge/ingested", "knowledge/summaries", "logs", "memories", "memory", "meta", "sessions",
    "skills", "skills/system", "skills/user", "uploads", "workspace", NULL };

/* The same with these 15 directories. */
static inline struct volume *seeded_volume(void)
{
    struct volume *v = new_volume();
    assert_ok(volume_fill_empty(v, expected_directories, err));
    return v;
}

/* What a guest would have written. */
static inline void write_inside(const struct volume *v, const char *path, const char *text)
{
    cleanup_fd int fd =
        openat(volume_data(v), path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    assert_int_equal(file_write_all(fd, text, strlen(text)), 0);
}

static inline void put_text(const struct volume *v, const char *path, const char *text)
{
    droste_volume_count count;
    cleanup_fd int fd = open(at("source"), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(file_write_all(fd, text, strlen(text)), 0);
    assert_ok(volume_put(v, fd, path, &count, err));
}

/* The text of a file of the volume; "" where there is none. */
static inline const char *text_of(const struct volume *v, const char *path)
{
    static char text[256];
    cleanup_fd int fd = openat(volume_data(v), path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[n] = '\0';
    return text;
}

/* ---- what is asked of the disk, in its order ---- */

/* f, d: fsync of a file, of a directory; s: syncfs; r: a rename; R: one under the root's lock. */
static bool disk_fails;         /* at the next fsync or syncfs */
static void (*meanwhile)(void); /* done once, when the next lock is taken */

static inline void ask(char what)
{
    size_t n = strlen(asked);
    if (n < sizeof asked - 1)
        asked[n] = what;
}

static inline int answer(long rc)
{
    if (!disk_fails)
        return (int)rc;
    disk_fails = false;
    errno = EIO;
    return -1;
}

static inline bool root_is_locked(void)
{
    cleanup_fd int lock = open(at("volumes/.lock"), O_RDWR | O_CLOEXEC);
    return lock >= 0 && syscall(SYS_flock, lock, LOCK_EX | LOCK_NB) < 0;
}

/* These take the place of the C library's. */
int fsync(int fd)
{
    struct stat st;
    ask(fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) ? 'd' : 'f');
    return answer(syscall(SYS_fsync, fd));
}

int syncfs(int fd)
{
    ask('s');
    return answer(syscall(SYS_syncfs, fd));
}

int renameat2(int from, const char *name, int directory, const char *to, unsigned flags)
{
    ask(root_is_locked() ? 'R' : 'r');
    return (int)syscall(SYS_renameat2, from, name, directory, to, flags);
}

int flock(int fd, int operation)
{
    void (*first)(void) = meanwhile;
    meanwhile = NULL;
    if (first)
        first();
    return (int)syscall(SYS_flock, fd, operation);
}

static inline void assert_asked(const char *expected)
{
    assert_string_equal(asked, expected);
    memset(asked, 0, sizeof asked);
}
