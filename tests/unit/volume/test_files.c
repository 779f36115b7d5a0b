/* The files of a volume: put, got, copied, listed and measured, without leading out of it. */
#include "fixture.h"

/* A file is put under its path, whose directories are made, in the place of another one, and
 * belongs to the guest. */
static void a_file_is_put(void **state)
{
    struct volume *v = new_volume();
    struct stat st;
    put_text(v, "a/b/c.txt", "one");
    put_text(v, "/data/a/b/c.txt", "two");
    put_text(v, "/data//d", "three");
    assert_string_equal(text_of(v, "a/b/c.txt"), "two");
    assert_string_equal(text_of(v, "d"), "three");
    assert_int_equal(fstatat(volume_data(v), "a/b", &st, 0), 0);
    assert_int_equal(st.st_uid, volume_owner(v));
    assert_int_equal(fstatat(volume_data(v), "d", &st, 0), 0);
    assert_int_equal(st.st_uid, volume_owner(v));
    volume_release(v);
}

/* What gets a name is on the disk before, and the name itself after; what is made or goes in the
 * root does so under the root's lock. */
static void what_has_a_name_is_on_the_disk(void **state)
{
    droste_volume_count count;
    assert_ok(volume_create(root, "v", &limits, err));
    assert_asked("fRddsRdd");
    struct volume *v = open_volume(VOLUME_ALONE);
    put_text(v, "a", "one");
    assert_asked("frdd");
    assert_int_equal(mkdir(at("source-directory"), 0700), 0);
    cleanup_fd int source = open(at("source-directory"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_ok(volume_put(v, source, "d", &count, err));
    assert_asked("srdd");
    assert_ok(volume_get(v, "a", at("got"), &count, err));
    assert_asked("fr");
    assert_ok(volume_get(v, "d", at("got-directory"), &count, err));
    assert_asked("sr");
    assert_ok(volume_snapshot(v, "s", &count, err));
    assert_asked("srdd");
    assert_ok(volume_restore(v, "s", &count, err));
    assert_asked("srdd");
    assert_ok(volume_set_limits(v, &limits, err));
    assert_asked("frdd");
    volume_release(v);
    assert_ok(volume_remove(root, "v", err));
    asked[3] = '\0'; /* what comes then is its removal */
    assert_asked("Rdd");
}

/* Where the disk fails nothing has changed its name. */
static void what_is_not_on_the_disk_has_no_name(void **state)
{
    struct volume *v = new_volume();
    droste_volume_count count;
    struct volume_limits more = { 1 << 30, 7 };
    struct list names = { 0 };
    put_text(v, "a", "one");
    cleanup_fd int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    disk_fails = true;
    assert_fails(ERROR_IO, volume_put(v, fd, "a", &count, err));
    assert_string_equal(text_of(v, "a"), "one");
    disk_fails = true;
    assert_fails(ERROR_IO, volume_get(v, "a", at("got"), &count, err));
    assert_false(is_there("got"));
    disk_fails = true;
    assert_fails(ERROR_IO, volume_set_limits(v, &more, err));
    volume_release(v);
    v = open_volume(VOLUME_ALONE);
    assert_int_equal(volume_limits_of(v)->files, limits.files);
    disk_fails = true;
    assert_fails(ERROR_IO, volume_snapshot(v, "s", &count, err));
    assert_ok(volume_snapshots(v, &names, err));
    assert_int_equal(names.count, 0);
    volume_release(v);
    disk_fails = true;
    assert_fails(ERROR_IO, volume_create(root, "w", &limits, err));
    assert_ok(volume_names(root, &names, err));
    assert_int_equal(names.count, 1);
    list_clear(&names);
}

/* What comes through a pipe may be as much as the volume may hold, and no more. */
static void a_stream_is_bounded(void **state)
{
    const struct volume_limits few = { 1000, 100 };
    struct volume *v = new_volume();
    droste_volume_count count;
    char text[1001] = { 0 };
    int ends[2];
    assert_ok(volume_set_limits(v, &few, err));
    for (size_t n = 1000; n <= 1001; n++) {
        assert_int_equal(pipe(ends), 0);
        assert_int_equal(write(ends[1], text, n), (ssize_t)n);
        close(ends[1]);
        if (n == 1000)
            assert_ok(volume_put(v, ends[0], "a", &count, err));
        else
            assert_fails(ERROR_ARGUMENT, volume_put(v, ends[0], "b", &count, err));
        close(ends[0]);
    }
    assert_false(is_there("volumes/v/data/b"));
    volume_release(v);
}

/* Paths that lead out, through links or upwards, are refused, and nothing is made. */
static void no_path_leads_out(void **state)
{
    struct volume *v = new_volume();
    droste_volume_count count;
    cleanup_fd int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    assert_int_equal(mkdir(at("outside"), 0777), 0);
    assert_int_equal(symlinkat(at("outside"), volume_data(v), "link"), 0);
    assert_int_equal(symlinkat("/etc/passwd", volume_data(v), "passwd"), 0);
    assert_fails(ERROR_PERMISSION, volume_put(v, fd, "link/x", &count, err));
    assert_fails(ERROR_PERMISSION, volume_put(v, fd, "../x", &count, err));
    assert_fails(ERROR_PERMISSION, volume_put(v, fd, "memory/../x", &count, err));
    assert_fails(ERROR_ARGUMENT, volume_put(v, fd, "passwd", &count, err));
    assert_fails(ERROR_ARGUMENT, volume_put(v, fd, "/etc/x", &count, err));
    assert_fails(ERROR_ARGUMENT, volume_put(v, fd, "/database/x", &count, err));
    assert_fails(ERROR_ARGUMENT, volume_put(v, fd, "", &count, err));
    assert_fails(ERROR_ARGUMENT, volume_read(v, "passwd", STDERR_FILENO, err));
    assert_fails(ERROR_ARGUMENT, volume_get(v, "passwd", at("got"), &count, err));
    assert_fails(ERROR_PERMISSION, volume_get(v, "link/x", at("got"), &count, err));
    assert_fails(ERROR_PERMISSION, volume_get(v, "../limits", at("got"), &count, err));
    assert_fails(ERROR_PERMISSION, volume_remove_path(v, "link/x", err));
    assert_fails(ERROR_ARGUMENT, volume_remove_path(v, "a/..", err));
    assert_false(is_there("outside/x") || is_there("got"));
    assert_ok(volume_remove_path(v, "link", err));
    assert_true(is_there("outside"));
    volume_release(v);
}

/* While somebody exchanges a directory for a link to another place, as fast as it can, a hundred
 * thousand looks through its name never see that place. */
static void an_exchange_never_leads_out(void **state)
{
    struct volume *v = new_volume();
    unsigned inside = 0;
    put_text(v, "d/f", "inside");
    assert_int_equal(mkdir(at("outside"), 0755), 0);
    cleanup_fd int secret = open(at("outside/f"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    assert_int_equal(file_write_all(secret, "secret", 6), 0);
    assert_int_equal(symlinkat(at("outside"), volume_data(v), "l"), 0);
    pid_t other = fork();
    while (other == 0)
        syscall(SYS_renameat2, volume_data(v), "d", volume_data(v), "l", RENAME_EXCHANGE);
    for (int i = 0; i < 100000; i++) {
        char text[16] = "";
        cleanup_fd int fd = open_beneath(volume_data(v), "d/f", O_RDONLY, 0);
        if (fd < 0)
            continue;
        assert_int_equal(read(fd, text, sizeof text), 6);
        assert_string_equal(text, "inside");
        inside++;
    }
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    assert_true(inside > 0);
    volume_release(v);
}

/* A directory comes out whole, without what is not a file, and without rights that a guest gave. */
static void a_directory_is_got(void **state)
{
    struct volume *v = new_volume();
    droste_volume_count count;
    struct stat st;
    assert_int_equal(mkdirat(volume_data(v), "d", 0755), 0);
    assert_int_equal(mkdirat(volume_data(v), "d/sub", 0755), 0);
    assert_int_equal(fchmodat(volume_data(v), "d/sub", 07755, 0), 0);
    write_inside(v, "d/run", "text");
    assert_int_equal(fchmodat(volume_data(v), "d/run", 06755, 0), 0);
    write_inside(v, "d/closed", "text");
    assert_int_equal(fchmodat(volume_data(v), "d/closed", 0, 0), 0);
    assert_int_equal(symlinkat("/etc/passwd", volume_data(v), "d/link"), 0);
    assert_int_equal(mkfifoat(volume_data(v), "d/fifo", 0600), 0);
    assert_ok(volume_get(v, "d", at("got"), &count, err));
    assert_int_equal(count.files, 4);
    assert_int_equal(count.left_out, 2);
    assert_int_equal(stat(at("got/sub"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    assert_int_equal(stat(at("got/run"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    assert_int_equal(st.st_uid, geteuid());
    assert_false(is_there("got/link") || is_there("got/fifo"));
    assert_int_equal(mkdir(at("empty"), 0700), 0);
    assert_fails(ERROR_IO, volume_get(v, "d", at("empty"), &count, err));
    assert_fails(ERROR_ARGUMENT, volume_get(v, "d/fifo", at("fifo"), &count, err));
    volume_release(v);
}

/* Holes stay holes: a terabyte of nothing is copied at once. */
static void holes_are_not_copied(void **state)
{
    struct volume *v = new_volume();
    droste_volume_count count;
    struct stat st;
    write_inside(v, "sparse", "x");
    cleanup_fd int fd = openat(volume_data(v), "sparse", O_WRONLY | O_CLOEXEC);
    assert_int_equal(ftruncate(fd, 1ll << 40), 0);
    assert_ok(volume_get(v, "sparse", at("got"), &count, err));
    assert_int_equal(stat(at("got"), &st), 0);
    assert_int_equal(st.st_size, 1ll << 40);
    assert_in_range(st.st_blocks, 0, 64);
    volume_release(v);
}

/* Any name but those that are none comes back as it is. */
static int find_odd(void *arg, const droste_volume_entry *e, struct error *err)
{
    *(unsigned *)arg += strcmp(e->path, "-a\n\x1b[31m\xff") == 0;
    return 0;
}

static void any_name_is_listed(void **state)
{
    struct volume *v = seeded_volume();
    unsigned found = 0;
    bool more = true;
    write_inside(v, "-a\n\x1b[31m\xff", "text");
    assert_ok(volume_list(v, ".", 1, 100, find_odd, &found, &more, err));
    assert_int_equal(found, 1);
    assert_false(more);
    assert_ok(volume_list(v, ".", 1, 3, find_odd, &found, &more, err));
    assert_true(more);
    assert_ok(volume_remove_path(v, "-a\n\x1b[31m\xff", err));
    volume_release(v);
}

/* A file counts under each of its names; those of a closed directory too. */
static void all_is_measured(void **state)
{
    struct volume *v = new_volume();
    struct volume_usage before, after;
    assert_ok(volume_measure(v, &before, err));
    assert_int_equal(mkdirat(volume_data(v), "d", 0700), 0);
    write_inside(v, "d/a", "text");
    assert_int_equal(linkat(volume_data(v), "d/a", volume_data(v), "d/b", 0), 0);
    assert_int_equal(fchmodat(volume_data(v), "d", 0, 0), 0);
    assert_ok(volume_measure(v, &after, err));
    assert_int_equal(after.files, before.files + 3);
    assert_true(after.size > before.size);
    volume_release(v);
}

/* A measuring in pieces gives the same as one at once. */
static void measuring_in_pieces_is_the_same(void **state)
{
    struct volume *v = seeded_volume();
    struct volume_usage whole, pieces = { 0 };
    struct volume_measuring *m = NULL;
    assert_ok(volume_measure(v, &whole, err));
    assert_ok(volume_measuring_open(v, &m, err));
    for (int i = 0; i < 2; i++) {
        int rc, steps = 0;
        while ((rc = volume_measuring_step(m, 4, &pieces, NULL)) == 1)
            steps++;
        assert_int_equal(rc, 0);
        assert_true(steps > 2);
        assert_int_equal(pieces.size, whole.size);
        assert_int_equal(pieces.files, whole.files);
    }
    volume_measuring_close(m);
    volume_release(v);
}

/* A directory that has the volume in it is put without the volume: a copy that took itself along
 * would have no end. What is beside the volume comes along. */
static void a_copy_leaves_itself_out(void **state)
{
    struct volume *v = new_volume();
    droste_volume_count count;
    struct stat st;
    cleanup_fd int source = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_fd int beside = open(at("beside"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(beside >= 0);
    assert_ok(volume_put(v, source, "all", &count, err));
    assert_int_equal(count.left_out, 1);
    assert_int_equal(fstatat(volume_data(v), "all/beside", &st, 0), 0);
    assert_int_equal(fstatat(volume_data(v), "all/volumes", &st, 0), 0);
    assert_true(fstatat(volume_data(v), "all/volumes/v", &st, 0) < 0);
    volume_release(v);
}

/* A directory that is moved away at any moment, also while it is counted, ends no measuring
 * badly. */
static void what_moves_is_measured_as_well_as_it_can(void **state)
{
    struct volume *v = seeded_volume();
    struct volume_usage whole;
    assert_int_equal(mkdirat(volume_data(v), "memory/x", 0700), 0);
    assert_int_equal(mkdirat(volume_data(v), "memory/x/y", 0700), 0);
    assert_ok(volume_measure(v, &whole, err));
    for (uint64_t steps = 0; steps < 3 * whole.files; steps++) {
        struct volume_measuring *m = NULL;
        struct volume_usage seen = { 0 };
        int rc = 1;
        assert_ok(volume_measuring_open(v, &m, err));
        for (uint64_t i = 0; i < steps && rc == 1; i++)
            rc = volume_measuring_step(m, 1, &seen, NULL);
        assert_int_equal(renameat(volume_data(v), "memory/x", volume_data(v), "x"), 0);
        if (rc == 1)
            assert_ok(volume_measuring_step(m, SIZE_MAX, &seen, err));
        assert_in_range(seen.files, 1, whole.files);
        volume_measuring_close(m);
        assert_int_equal(renameat(volume_data(v), "x", volume_data(v), "memory/x"), 0);
    }
    assert_ok(volume_measure(v, &whole, err));
    assert_int_equal(whole.files, 17); /* 15 were there */
    volume_release(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        volume_test(a_file_is_put),
        volume_test(what_has_a_name_is_on_the_disk),
        volume_test(what_is_not_on_the_disk_has_no_name),
        volume_test(a_stream_is_bounded),
        volume_test(no_path_leads_out),
        volume_test(an_exchange_never_leads_out),
        volume_test(a_directory_is_got),
        volume_test(holes_are_not_copied),
        volume_test(any_name_is_listed),
        volume_test(all_is_measured),
        volume_test(measuring_in_pieces_is_the_same),
        volume_test(a_copy_leaves_itself_out),
        volume_test(what_moves_is_measured_as_well_as_it_can),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
