/* The usage of a volume, its stored limits, and its locks. */
#include "fixture.h"

#include "volume/internal.h"

/* ---- usage ---- */

static void make_files(const struct volume *v, const char *prefix, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s%u", prefix, i);
        write_inside(v, name, "x");
    }
}

/* Directories count as files do, a hole takes nothing, and a file with two names counts twice. */
static void blocks_and_names_are_counted(void **state)
{
    struct volume *v = new_volume();
    struct volume_usage before, one, two;
    struct stat st;
    assert_ok(volume_measure(v, &before, err));
    assert_int_equal(before.files, 0);
    assert_int_equal(mkdirat(volume_data(v), "d", 0755), 0);
    write_inside(v, "d/file", "text");
    assert_ok(volume_measure(v, &one, err));
    assert_int_equal(one.files, 2);
    assert_true(one.size > 0);
    assert_int_equal(linkat(volume_data(v), "d/file", volume_data(v), "again", 0), 0);
    assert_int_equal(fstatat(volume_data(v), "d/file", &st, 0), 0);
    assert_ok(volume_measure(v, &two, err));
    assert_int_equal(two.files, 3);
    assert_int_equal(two.size - one.size, st.st_blocks * 512);
    cleanup_fd int fd = openat(volume_data(v), "hole", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(ftruncate(fd, 1 << 30), 0);
    assert_ok(volume_measure(v, &one, err));
    assert_true(one.size < two.size + (1 << 20));
    volume_release(v);
}

/* In pieces it is the same sum, and a measuring can be used again. */
static void pieces_have_the_same_sum(void **state)
{
    struct volume *v = new_volume();
    struct volume_measuring *m = NULL;
    struct volume_usage whole, pieces = { 0 };
    make_files(v, "f", 50);
    assert_ok(volume_measure(v, &whole, err));
    assert_ok(volume_measuring_open(v, &m, err));
    for (unsigned again = 0; again < 2; again++) {
        unsigned steps = 1;
        int rc;
        while ((rc = volume_measuring_step(m, 7, &pieces, NULL)) == 1)
            steps++;
        assert_int_equal(rc, 0);
        assert_true(steps >= 50 / 8);
        assert_int_equal(pieces.files, whole.files);
        assert_int_equal(pieces.size, whole.size);
    }
    volume_measuring_close(m);
    volume_release(v);
}

/* Measuring ends as soon as the sum is over a limit: a volume of a million files is not counted to
 * its end to be refused. */
static void more_than_the_limit_is_enough(void **state)
{
    struct volume *v = new_volume();
    struct volume_measuring *m = NULL;
    struct volume_usage used = { 0 };
    const struct volume_limits few = { 8 << 20, 10 };
    make_files(v, "f", 200);
    assert_ok(volume_set_limits(v, &few, err));
    assert_ok(volume_measuring_open(v, &m, err));
    while (volume_measuring_step(m, 4, &used, NULL) == 1)
        ;
    assert_true(used.files > 10);
    assert_true(used.files < 100);
    volume_measuring_close(m);
    volume_release(v);
}

/* ---- limits ---- */

/* Limits are read as they were written, the largest ones too. */
static void limits_are_kept(void **state)
{
    struct volume *v = new_volume();
    const struct volume_limits most = { 1ull << 56, 1ull << 56 };
    assert_ok(volume_set_limits(v, &most, err));
    volume_release(v);
    v = open_volume(VOLUME_SHARED);
    assert_int_equal(volume_limits_of(v)->size, most.size);
    assert_int_equal(volume_limits_of(v)->files, most.files);
    volume_release(v);
}

static void damage_limits(const char *text)
{
    cleanup_fd int fd = open(at("volumes/v/limits"), O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, text, strlen(text)), 0);
}

/* A damaged file of limits is not a volume without limits. Its error says what to write. */
static void damaged_limits_are_refused(void **state)
{
    const char *const wrong[] = { "", "size 5\n", "size x\nfiles 1\n", "files 1\nsize 1\n",
        "size 72057594037927937\nfiles 1\n", "size 1\nfiles 72057594037927937\n",
        "size 1\nfiles -1\n" };
    volume_release(new_volume());
    for (size_t i = 0; i < array_length(wrong); i++) {
        struct volume *v = NULL;
        damage_limits(wrong[i]);
        assert_fails(ERROR_PROTOCOL, volume_open(root, "v", VOLUME_SHARED, &v, err));
    }
    damage_limits("size 5\nfiles 6\n");
    struct volume *v = open_volume(VOLUME_SHARED);
    assert_int_equal(volume_limits_of(v)->size, 5);
    assert_int_equal(volume_limits_of(v)->files, 6);
    volume_release(v);
}

/* Where writing new limits fails, the old ones stay, and no other file is left. */
static void limits_that_fail_change_nothing(void **state)
{
    struct volume *v = new_volume();
    const struct volume_limits other = { 1, 1 };
    unsigned before = count_in("volumes/v");
    disk_fails = true;
    assert_fails(ERROR_IO, volume_set_limits(v, &other, err));
    assert_int_equal(count_in("volumes/v"), before);
    volume_release(v);
    v = open_volume(VOLUME_SHARED);
    assert_int_equal(volume_limits_of(v)->size, limits.size);
    volume_release(v);
}

/* ---- locks ---- */

/* A lock that another one holds is waited for, in vain; and is there at once when that has gone. */
static void a_lock_waits_so_long_only(void **state)
{
    assert_int_equal(mkdir(at("x"), 0700), 0);
    cleanup_fd int mine = open(at("x"), O_RDONLY | O_CLOEXEC);
    int other = open(at("x"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(lock_within(other, LOCK_SH, 0), 0);
    assert_int_equal(lock_within(mine, LOCK_SH, 0), 0);
    assert_int_equal(lock_within(mine, LOCK_EX, 20), -1);
    assert_int_equal(errno, EWOULDBLOCK);
    close(other);
    assert_int_equal(lock_within(mine, LOCK_EX, 0), 0);
}

static int other_holder = -1;

static void let_go(void)
{
    close(other_holder);
}

/* A lock that is let go meanwhile is had. */
static void a_lock_that_is_let_go_is_had(void **state)
{
    cleanup_fd int mine = open(place, O_RDONLY | O_CLOEXEC);
    other_holder = open(place, O_RDONLY | O_CLOEXEC);
    assert_int_equal(lock_within(other_holder, LOCK_EX, 0), 0);
    assert_int_equal(lock_within(mine, LOCK_EX, 0), -1);
    meanwhile = let_go; /* when it is tried the next time */
    assert_int_equal(lock_within(mine, LOCK_EX, 60000), 0);
}

/* A process that holds a lock is named, as far as the kernel tells: not where /proc/locks is of
 * another namespace. */
static void holders_are_named(void **state)
{
    cleanup_buf struct buf names = { 0 };
    char expected[32];
    cleanup_fd int held = open(place, O_RDONLY | O_CLOEXEC);
    cleanup_fd int other = open("/tmp", O_RDONLY | O_CLOEXEC);
    lock_holders(held, &names);
    assert_int_equal(names.len, 0);
    assert_int_equal(lock_within(held, LOCK_SH, 0), 0);
    lock_holders(other, &names); /* of another file: none of ours */
    snprintf(expected, sizeof expected, "process %d", (int)getpid());
    assert_null(strstr(buf_text(&names), expected));
    buf_clear(&names);
    lock_holders(held, &names);
    if (names.len == 0) {
        print_message("# /proc/locks does not tell this file's device\n");
        skip();
    }
    assert_string_equal(buf_text(&names), expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        volume_test(blocks_and_names_are_counted),
        volume_test(pieces_have_the_same_sum),
        volume_test(more_than_the_limit_is_enough),
        volume_test(limits_are_kept),
        volume_test(damaged_limits_are_refused),
        volume_test(limits_that_fail_change_nothing),
        volume_test(a_lock_waits_so_long_only),
        volume_test(a_lock_that_is_let_go_is_had),
        volume_test(holders_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
