/* Untrusted directory trees: walked without following links, and removed whatever they contain. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/beneath.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/tree.h"

/* ---- a directory of its own for each test, with one beside it that nobody may come to ---- */

static char place[64];
static int top = -1;

static int make_directory(void **state)
{
    snprintf(place, sizeof place, "/tmp/droste-tree-XXXXXX");
    if (!mkdtemp(place))
        return -1;
    int outer = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mkdirat(outer, "top", 0700);
    mkdirat(outer, "outside", 0700);
    close(openat(outer, "outside/secret", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    top = openat(outer, "top", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(outer);
    return top < 0 ? -1 : 0;
}

static int remove_directory(void **state)
{
    close_fd(&top);
    return tree_remove(AT_FDCWD, place) ? 0 : -1;
}

#define tree_test(f) cmocka_unit_test_setup_teardown(f, make_directory, remove_directory)

static bool is_there(const char *path)
{
    char whole[200];
    struct stat st;
    snprintf(whole, sizeof whole, "%s/%s", place, path);
    return lstat(whole, &st) == 0;
}

static void put(int at, const char *name)
{
    cleanup_fd int fd = openat(at, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
}

/* So deep that its path is longer than any call takes, and deeper than descriptors last. */
static void make_deep(int depth)
{
    int at = dup(top);
    for (int i = 0; i < depth; i++) {
        assert_int_equal(mkdirat(at, "deeper", 0700), 0);
        int inner = openat(at, "deeper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = inner;
    }
    put(at, "at the end");
    close(at);
}

struct seen {
    size_t entries, directories, entered, left;
    unsigned deepest;
};

static int see(void *arg, enum tree_visit visit, const struct tree_place *at, struct error *err)
{
    struct seen *s = arg;
    s->entered += visit == TREE_ENTER;
    s->left += visit == TREE_LEAVE;
    if (visit != TREE_ENTRY)
        return 0;
    assert_string_not_equal(at->name, "secret");
    s->entries++;
    s->directories += S_ISDIR(at->st->st_mode);
    if (at->depth > s->deepest)
        s->deepest = at->depth;
    return 0;
}

/* ---- walking ---- */

/* Everything is visited once, and each directory entered and left. */
static void a_walk_visits_everything_once(void **state)
{
    struct seen s = { 0 };
    mkdirat(top, "a", 0700);
    mkdirat(top, "b", 0700);
    put(top, "f");
    put(top, "a/f");
    put(top, "b/g");
    assert_ok(tree_walk(top, see, &s, err));
    assert_int_equal(s.entries, 5);
    assert_int_equal(s.directories, 2);
    assert_int_equal(s.entered, 2);
    assert_int_equal(s.left, 2);
}

/* 3,000 levels: neither descriptors nor the length of paths nor the stack are used up. */
static void a_walk_goes_as_deep_as_it_is(void **state)
{
    struct seen s = { 0 };
    make_deep(3000);
    assert_ok(tree_walk(top, see, &s, err));
    assert_int_equal(s.entries, 3001);
    assert_int_equal(s.deepest, 3000);
}

/* A link to a directory is an entry, and is not entered. */
static void a_walk_follows_no_link(void **state)
{
    struct seen s = { 0 };
    assert_int_equal(symlinkat("../outside", top, "link"), 0);
    assert_int_equal(mkfifoat(top, "fifo", 0600), 0);
    assert_ok(tree_walk(top, see, &s, err));
    assert_int_equal(s.entries, 2);
    assert_int_equal(s.entered, 0);
}

/* A directory that its owner may not list is listed all the same, and keeps its mode. */
static void a_closed_directory_hides_nothing(void **state)
{
    struct seen s = { 0 };
    struct stat st;
    mkdirat(top, "closed", 0700);
    put(top, "closed/f");
    assert_int_equal(fchmodat(top, "closed", 0, 0), 0);
    assert_ok(tree_walk(top, see, &s, err));
    assert_int_equal(s.entries, 2);
    assert_int_equal(fstatat(top, "closed", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0);
}

static int stay_out(
    void *arg, enum tree_visit visit, const struct tree_place *at, struct error *err)
{
    ((struct seen *)arg)->entries++;
    return 1;
}

/* The callback for a directory can leave it out. */
static void a_directory_can_be_left_out(void **state)
{
    struct seen s = { 0 };
    mkdirat(top, "a", 0700);
    put(top, "a/f");
    assert_ok(tree_walk(top, stay_out, &s, err));
    assert_int_equal(s.entries, 1);
}

/* A walk takes as many steps as it is asked to. */
static void a_walk_goes_on_where_it_was(void **state)
{
    struct seen s = { 0 };
    struct tree_walk *w = NULL;
    struct error why = { 0 };
    for (int i = 0; i < 10; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        put(top, name);
    }
    assert_ok(tree_walk_open(top, see, &s, &w, err));
    int rc, steps = 0;
    while ((rc = tree_walk_step(w, 3, &why)) == 1)
        steps++;
    assert_int_equal(rc, 0);
    assert_in_range(steps, 3, 6);
    assert_int_equal(s.entries, 10);
    tree_walk_close(w);
}

static int move_out(
    void *arg, enum tree_visit visit, const struct tree_place *at, struct error *err)
{
    if (visit == TREE_ENTER && strcmp(at->name, "b") == 0)
        assert_int_equal(renameat(top, "a/b", top, "../outside/b"), 0);
    return see(arg, visit, at, err);
}

/* A directory that is moved away while the walk is in it: the walk ends, it does not go up to where
 * that stands now. */
static void a_walk_does_not_leave_with_what_is_moved(void **state)
{
    struct seen s = { 0 };
    struct error why = { 0 };
    mkdirat(top, "a", 0700);
    mkdirat(top, "a/b", 0700);
    put(top, "a/b/f");
    assert_int_equal(tree_walk(top, move_out, &s, &why), -(int)ERROR_IO);
    assert_int_equal(why.sys, ESTALE);
    assert_int_equal(s.entries, 3);
}

/* ---- removing ---- */

/* Whatever is in it, and nothing of what links in it lead to. */
static void everything_is_removed_and_nothing_else(void **state)
{
    make_deep(3000);
    mkdirat(top, "closed", 0700);
    mkdirat(top, "closed/inner", 0700);
    put(top, "closed/inner/f");
    assert_int_equal(fchmodat(top, "closed/inner", 0500, 0), 0);
    assert_int_equal(fchmodat(top, "closed", 0, 0), 0);
    assert_int_equal(symlinkat("../outside", top, "link"), 0);
    assert_int_equal(mkfifoat(top, "fifo", 0), 0);
    put(top, "new\nline");
    char whole[100];
    snprintf(whole, sizeof whole, "%s/top", place);
    assert_true(tree_remove(AT_FDCWD, whole));
    assert_false(is_there("top"));
    assert_true(is_there("outside/secret"));
}

/* A writer that keeps adding entries cannot keep the removal busy: it visits a bounded number. */
static void a_removal_is_bounded(void **state)
{
    mkdirat(top, "a", 0700);
    for (int i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "a/%d", i);
        put(top, name);
    }
    assert_false(tree_remove_some(top, "a", 5));
    assert_true(is_there("top/a"));
    assert_true(tree_remove_some(top, "a", 100));
    assert_false(is_there("top/a"));
}

/* A link is removed, not what it leads to; what is not there is gone. */
static void a_link_is_removed_as_a_link(void **state)
{
    assert_int_equal(symlinkat("../outside", top, "link"), 0);
    assert_true(tree_remove(top, "link"));
    assert_false(is_there("top/link"));
    assert_true(is_there("outside/secret"));
    assert_true(tree_remove(top, "link"));
}

/* ---- opening ---- */

/* What a path became meanwhile is not followed and not waited for; the owner's own closed file is
 * opened. */
static void opening_neither_follows_nor_waits(void **state)
{
    struct stat st;
    put(top, "closed");
    assert_int_equal(fchmodat(top, "closed", 0, 0), 0);
    assert_int_equal(symlinkat("closed", top, "link"), 0);
    assert_int_equal(mkfifoat(top, "fifo", 0600), 0);
    assert_int_equal(open_anyway(top, "link", O_RDONLY), -1);
    assert_int_equal(errno, ELOOP);
    cleanup_fd int closed = open_anyway(top, "closed", O_RDWR);
    cleanup_fd int fifo = open_anyway(top, "fifo", O_RDONLY);
    cleanup_fd int again = open_beneath(top, "fifo", O_RDONLY, 0);
    assert_true(closed >= 0 && fifo >= 0 && again >= 0);
    assert_int_equal(fstat(closed, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0);
}

/* Below the directory all is open; links, the directory above and whole paths are not. */
static void opening_stays_beneath(void **state)
{
    mkdirat(top, "a", 0700);
    put(top, "a/f");
    assert_int_equal(symlinkat("../outside", top, "link"), 0);
    assert_int_equal(symlinkat("f", top, "a/inner"), 0);
    cleanup_fd int fine = open_beneath(top, "a/f", O_RDONLY, 0);
    cleanup_fd int around = open_beneath(top, "a/../a/f", O_RDONLY, 0);
    assert_true(fine >= 0 && around >= 0);
    const struct {
        const char *path;
        int sys;
    } denied[] = { { "link/secret", ELOOP }, { "a/inner", ELOOP }, { "../outside/secret", EXDEV },
        { "/etc/passwd", EXDEV }, { "a/../../outside", EXDEV }, { "nothing", ENOENT } };
    for (size_t i = 0; i < array_length(denied); i++) {
        errno = 0;
        assert_int_equal(open_beneath(top, denied[i].path, O_RDONLY, 0), -1);
        assert_int_equal(errno, denied[i].sys);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        tree_test(a_walk_visits_everything_once),
        tree_test(a_walk_goes_as_deep_as_it_is),
        tree_test(a_walk_follows_no_link),
        tree_test(a_closed_directory_hides_nothing),
        tree_test(a_directory_can_be_left_out),
        tree_test(a_walk_goes_on_where_it_was),
        tree_test(a_walk_does_not_leave_with_what_is_moved),
        tree_test(everything_is_removed_and_nothing_else),
        tree_test(a_removal_is_bounded),
        tree_test(a_link_is_removed_as_a_link),
        tree_test(opening_stays_beneath),
        tree_test(opening_neither_follows_nor_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
