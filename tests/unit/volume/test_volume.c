/* Volumes with untrusted files: created, opened, shared, limited, copied as snapshots and
 * removed. */
#include "fixture.h"

#include "volume/share.h"

/* ---- names ---- */

/* A name is one directory's, and looks like it. */
static void names_are_strict(void **state)
{
    char longest[66];
    memset(longest, 'a', sizeof longest);
    longest[65] = '\0';
    const char *const wrong[] = { "", ".", "..", "../x", "a/b", "-a", ".a", "%n;rm\n", "v\xC3\xA4",
        longest, "a b" };
    for (size_t i = 0; i < array_length(wrong); i++) {
        struct volume *v = NULL;
        assert_fails(ERROR_ARGUMENT, volume_create(root, wrong[i], &limits, err));
        assert_fails(ERROR_ARGUMENT, volume_open(root, wrong[i], VOLUME_SHARED, &v, err));
        assert_fails(ERROR_ARGUMENT, volume_remove(root, wrong[i], err));
    }
    longest[64] = '\0';
    assert_ok(volume_create(root, longest, &limits, err));
    assert_ok(volume_create(root, "%n" + 1, &limits, err));
    assert_ok(volume_create(root, "A-1_b.c", &limits, err));
}

/* ---- making and opening ---- */

/* A new one is empty, belongs to the guest, and nobody else can look into it: root's guest, who
 * is another user, can pass what is above it, and list nothing. The umask has no say. */
static void a_new_volume_is_whole(void **state)
{
    mode_t mask = umask(077), outer = geteuid() == 0 ? 0711 : 0700;
    struct volume *v = new_volume();
    struct stat st;
    umask(mask);
    assert_int_equal(stat(at("volumes"), &st), 0);
    assert_int_equal(st.st_mode & 07777, outer);
    assert_int_equal(stat(at("volumes/v"), &st), 0);
    assert_int_equal(st.st_mode & 07777, outer);
    assert_int_equal(count_in("volumes/v/data"), 0);
    assert_int_equal(fstat(volume_data(v), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(st.st_uid, geteuid() == 0 ? VOLUME_GUEST : geteuid());
    assert_int_equal(volume_limits_of(v)->size, limits.size);
    assert_int_equal(volume_limits_of(v)->files, limits.files);
    volume_release(v);
}

/* Where they are asked for, an empty one gets the directories that other programs expect; one that
 * holds something is left as it is, and they are the guest's. */
static void an_empty_volume_is_seeded(void **state)
{
    struct volume *v = seeded_volume();
    struct stat st;
    assert_true(is_there("volumes/v/data/knowledge/ingested"));
    assert_true(is_there("volumes/v/data/skills/user"));
    assert_int_equal(stat(at("volumes/v/data/artifacts"), &st), 0);
    assert_int_equal(st.st_uid, geteuid() == 0 ? VOLUME_GUEST : geteuid());
    assert_int_equal(unlinkat(volume_data(v), "artifacts", AT_REMOVEDIR), 0);
    assert_ok(volume_fill_empty(v, expected_directories, err));
    assert_false(is_there("volumes/v/data/artifacts"));
    volume_release(v);
}

/* One of this name is not made again; one that is not there is said how to make. */
static void there_is_one_of_a_name(void **state)
{
    struct volume *v = NULL;
    assert_fails(ERROR_NOT_FOUND, volume_open(root, "v", VOLUME_SHARED, &v, err));
    volume_release(new_volume());
    assert_fails(ERROR_ARGUMENT, volume_create(root, "v", &limits, err));
    assert_ok(volume_open_or_create(root, "v", &limits, &v, err));
    volume_release(v);
    assert_ok(volume_open_or_create(root, "w", &limits, &v, err));
    volume_release(v);
}

/* A link in the place of a volume, or of its data, is refused, wherever it leads; the same as a
 * directory is not. */
static void a_link_is_no_volume(void **state)
{
    struct volume *v = new_volume();
    volume_release(v);
    assert_int_equal(rename(at("volumes/v"), at("elsewhere")), 0);
    assert_int_equal(symlink(at("elsewhere"), at("volumes/v")), 0);
    assert_fails(ERROR_PERMISSION, volume_open(root, "v", VOLUME_SHARED, &v, err));
    assert_fails(ERROR_PERMISSION, volume_open_or_create(root, "v", &limits, &v, err));
    assert_int_equal(unlink(at("volumes/v")), 0);
    assert_int_equal(rename(at("elsewhere"), at("volumes/v")), 0);
    assert_int_equal(rename(at("volumes/v/data"), at("data")), 0);
    assert_int_equal(symlink(at("data"), at("volumes/v/data")), 0);
    assert_fails(ERROR_PERMISSION, volume_open(root, "v", VOLUME_SHARED, &v, err));
    assert_int_equal(unlink(at("volumes/v/data")), 0);
    assert_int_equal(rename(at("data"), at("volumes/v/data")), 0);
    volume_release(open_volume(VOLUME_SHARED));
}

static void exchange(void)
{
    assert_int_equal(rename(at("volumes/v/data"), at("volumes/v/before")), 0);
    assert_int_equal(rename(at("volumes/v/after"), at("volumes/v/data")), 0);
}

static void move_away(void)
{
    assert_int_equal(rename(at("volumes/v"), at("volumes/w")), 0);
}

/* What is exchanged or removed after it was found and before there is a lock on it is not what is
 * had. */
static void an_opening_has_what_is_there_now(void **state)
{
    struct volume *v = new_volume();
    put_text(v, "a", "before");
    volume_release(v);
    assert_int_equal(mkdir(at("volumes/v/after"), 0700), 0);
    meanwhile = exchange;
    v = open_volume(VOLUME_SHARED);
    assert_null(meanwhile);
    assert_string_equal(text_of(v, "a"), "");
    volume_release(v);
    meanwhile = move_away;
    assert_fails(ERROR_NOT_FOUND, volume_open(root, "v", VOLUME_SHARED, &v, err));
    assert_null(meanwhile);
}

/* One of a user who is neither this one nor its guest is not used. */
static void a_volume_of_another_user_is_refused(void **state)
{
    if (geteuid() != 0) {
        print_message("skipped: giving files to others needs root\n");
        skip();
    }
    struct volume *v = new_volume();
    volume_release(v);
    assert_int_equal(chown(at("volumes/v/data"), 4242, 4242), 0);
    assert_fails(ERROR_PERMISSION, volume_open(root, "v", VOLUME_SHARED, &v, err));
    assert_int_equal(chown(at("volumes/v/data"), 0, 0), 0);
    volume_release(open_volume(VOLUME_SHARED));
}

/* Any number of holders share a volume. An exclusive request is refused with the holder's name, and
 * an exclusive holder excludes all others. */
static void it_is_shared_or_had_alone(void **state)
{
    struct volume *a = new_volume(), *b = open_volume(VOLUME_SHARED), *alone = NULL;
    struct error why = { 0 };
    char pid[32];
    assert_int_equal(volume_open(root, "v", VOLUME_ALONE, &alone, &why), -(int)ERROR_ARGUMENT);
    snprintf(pid, sizeof pid, "process %d", getpid());
    assert_non_null(strstr(why.text, pid));
    assert_fails(ERROR_ARGUMENT, volume_remove(root, "v", err));
    volume_release(a);
    volume_release(b);
    volume_release(open_volume(VOLUME_ALONE));
}

/* What a killed process has left is removed by the next one that is alone, and not while others are
 * there. */
static void leftovers_are_swept(void **state)
{
    struct volume *v = new_volume();
    assert_int_equal(mkdir(at("volumes/v/aside/left"), 0700), 0);
    assert_int_equal(mkdir(at("volumes/.new-volume"), 0700), 0);
    assert_int_equal(mkdir(at("volumes/.gone-1"), 0700), 0);
    volume_release(open_volume(VOLUME_SHARED));
    assert_true(is_there("volumes/v/aside/left"));
    volume_release(v);
    volume_release(open_volume(VOLUME_SHARED));
    assert_false(is_there("volumes/v/aside/left"));
    assert_ok(volume_create(root, "w", &limits, err));
    assert_false(is_there("volumes/.new-volume") || is_there("volumes/.gone-1"));
}

/* Where the volumes are is the user's own to say, by a link too: those that are made there are
 * listed there. */
static void a_root_may_be_a_link(void **state)
{
    struct list names = { 0 };
    assert_int_equal(mkdir(at("elsewhere"), 0700), 0);
    assert_int_equal(symlink(at("elsewhere"), root), 0);
    struct volume *v = new_volume();
    assert_ok(volume_names(root, &names, err));
    assert_int_equal(names.count, 1);
    assert_string_equal(names.items[0], "v");
    list_clear(&names);
    volume_release(v);
}

/* The limits last. */
static void limits_last(void **state)
{
    struct volume *v = new_volume();
    struct volume_limits more = { 1ull << 40, 77 };
    assert_ok(volume_set_limits(v, &more, err));
    volume_release(v);
    v = open_volume(VOLUME_SHARED);
    assert_int_equal(volume_limits_of(v)->size, more.size);
    assert_int_equal(volume_limits_of(v)->files, more.files);
    volume_release(v);
}

/* Damaged limits are reported with their volume's name, also in a listing of all volumes. Limits
 * that cannot be computed with are damaged, too. */
static void damaged_limits_are_reported(void **state)
{
    static const char *const damaged[] = { "", "size x\nfiles 1\n", "size 1000\nfiles -1\n",
        "size 1000\nfiles 9223372036854775808\n", "size 18446744073709551615\nfiles 1\n" };
    struct volume *v = new_volume();
    volume_release(v);
    for (size_t i = 0; i < array_length(damaged); i++) {
        struct error err = { 0 };
        cleanup_fd int fd = open(at("volumes/v/limits"), O_WRONLY | O_TRUNC | O_CLOEXEC);
        assert_int_equal(file_write_all(fd, damaged[i], strlen(damaged[i])), 0);
        assert_int_equal(volume_open(root, "v", VOLUME_SHARED, &v, &err), -(int)ERROR_PROTOCOL);
        assert_non_null(strstr(err.text, "volume 'v'"));
    }
    cleanup_fd int fd = open(at("volumes/v/limits"), O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_fails(ERROR_PROTOCOL, volume_open(root, "v", VOLUME_SHARED, &v, err));
    assert_int_equal(write(fd, "size 5\n", 7), 7);
    assert_fails(ERROR_PROTOCOL, volume_open(root, "v", VOLUME_SHARED, &v, err));
    assert_int_equal(write(fd, "files 5\n", 8), 8);
    volume_release(open_volume(VOLUME_SHARED));
}

/* ---- snapshots ---- */

/* What was there then is there again, and what came since is gone. */
static void a_snapshot_is_restored(void **state)
{
    struct volume *v = new_volume();
    droste_volume_count count;
    struct list names = { 0 };
    volume_release(v);
    v = open_volume(VOLUME_ALONE);
    put_text(v, "a", "one");
    assert_int_equal(symlinkat("/etc/passwd", volume_data(v), "link"), 0);
    assert_ok(volume_snapshot(v, "s", &count, err));
    assert_fails(ERROR_ARGUMENT, volume_snapshot(v, "s", &count, err));
    assert_fails(ERROR_ARGUMENT, volume_snapshot(v, "../s", &count, err));
    assert_fails(ERROR_NOT_FOUND, volume_restore(v, "t", &count, err));
    put_text(v, "a", "two");
    put_text(v, "b", "three");
    assert_ok(volume_restore(v, "s", &count, err));
    unsigned staging = count_in("volumes/v/aside");
    volume_release(v);
    v = open_volume(VOLUME_ALONE);
    struct stat st;
    assert_string_equal(text_of(v, "a"), "one");
    assert_string_equal(text_of(v, "b"), "");
    assert_int_equal(staging, 0); /* nor is it elsewhere */
    assert_int_equal(fstatat(volume_data(v), "link", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(fstat(volume_data(v), &st), 0);
    assert_int_equal(st.st_uid, volume_owner(v));
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_ok(volume_snapshots(v, &names, err));
    assert_int_equal(names.count, 1);
    list_clear(&names);
    assert_ok(volume_snapshot_remove(v, "s", err));
    assert_fails(ERROR_NOT_FOUND, volume_snapshot_remove(v, "s", err));
    volume_release(v);
}

/* ---- commits ---- */

static unsigned chunks_in(const char *share)
{
    unsigned count = 0;
    DIR *all = open_listing(AT_FDCWD, share);
    assert_non_null(all);
    for (const char *name; (name = next_listed(all));) {
        DIR *some = open_listing(dirfd(all), name);
        assert_non_null(some);
        while (next_listed(some))
            count++;
        closedir(some);
    }
    closedir(all);
    return count;
}

/* 6 MiB that do not repeat, from the middle of which a byte may be missing. */
static void put_noise(const struct volume *v, bool is_shorter)
{
    enum { NOISE = 6 << 20 };
    cleanup_free unsigned char *noise = malloc(NOISE);
    uint64_t n = 1;
    droste_volume_count count;
    for (size_t i = 0; i < NOISE; i++) {
        n = n * 6364136223846793005u + 1442695040888963407u;
        noise[i] = (unsigned char)(n >> 56);
    }
    cleanup_fd int fd = open(at("source"), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(file_write_all(fd, noise, NOISE / 2), 0);
    assert_int_equal(file_write_all(fd, noise + NOISE / 2 + is_shorter, NOISE / 2 - is_shorter), 0);
    assert_ok(volume_put(v, fd, "noise", &count, err));
}

static struct volume *committed_volume(char commit[HASH_TEXT_SIZE])
{
    droste_volume_count count;
    volume_release(new_volume());
    struct volume *v = open_volume(VOLUME_ALONE);
    assert_int_equal(mkdir(at("share"), 0700), 0);
    put_text(v, "some/file", "one");
    put_noise(v, false);
    assert_int_equal(symlinkat("/etc/passwd", volume_data(v), "link"), 0);
    assert_ok(volume_commit(v, at("share"), commit, &count, err));
    return v;
}

/* A commit has what was there then, with its limits; a small change adds few chunks to it. */
static void a_commit_is_opened_under_another_name(void **state)
{
    char commit[HASH_TEXT_SIZE], next[HASH_TEXT_SIZE];
    struct volume *v = committed_volume(commit), *other = NULL;
    droste_volume_count count;
    struct stat st;
    unsigned chunks = chunks_in(at("share"));
    assert_true(chunks >= 4);
    assert_ok(volume_commit(v, at("share"), next, &count, err));
    assert_string_equal(next, commit);
    put_text(v, "some/file", "two");
    put_noise(v, true);
    assert_ok(volume_commit(v, at("share"), next, &count, err));
    assert_string_not_equal(next, commit);
    assert_true(chunks_in(at("share")) <= chunks + 4); /* around each change, and the names */
    assert_ok(volume_create_from(root, "w", at("share"), commit, err));
    assert_fails(ERROR_ARGUMENT, volume_create_from(root, "w", at("share"), commit, err));
    assert_ok(volume_open(root, "w", VOLUME_ALONE, &other, err));
    assert_string_equal(text_of(other, "some/file"), "one");
    assert_int_equal(fstatat(volume_data(other), "noise", &st, 0), 0);
    assert_int_equal(st.st_size, 6 << 20);
    assert_int_equal(fstatat(volume_data(other), "link", &st, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(volume_limits_of(other)->size, limits.size);
    chunks = chunks_in(at("share"));
    assert_ok(volume_commit(other, at("share"), next, &count, err));
    assert_true(chunks_in(at("share")) <= chunks + 2); /* directories and links have other times */
    volume_release(other);
    volume_release(v);
}

/* What is missing, damaged or no commit is an error, and leaves no volume. */
static void a_damaged_commit_is_refused(void **state)
{
    char commit[HASH_TEXT_SIZE], path[120], none[HASH_TEXT_SIZE];
    volume_release(committed_volume(commit));
    memset(none, 'a', sizeof none - 1);
    none[HASH_TEXT_SIZE - 1] = '\0';
    const char *const wrong[] = { "", "../../x", "A", commit + 1 };
    for (size_t i = 0; i < array_length(wrong); i++)
        assert_fails(ERROR_PROTOCOL, volume_create_from(root, "w", at("share"), wrong[i], err));
    assert_fails(ERROR_NOT_FOUND, volume_create_from(root, "w", at("share"), none, err));
    assert_fails(ERROR_IO, volume_create_from(root, "w", at("nowhere"), commit, err));
    snprintf(path, sizeof path, "%s/%.2s/%s", at("share"), commit, commit);
    assert_int_equal(truncate(path, 100), 0);
    assert_fails(ERROR_PROTOCOL, volume_create_from(root, "w", at("share"), commit, err));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(at("source"), path), 0);
    assert_fails(ERROR_IO, volume_create_from(root, "w", at("share"), commit, err));
    assert_false(is_there("volumes/w"));
}

/* A directory that is moved away is not what has the name any more. */
static void a_moved_volume_is_noticed(void **state)
{
    struct volume *v = new_volume();
    assert_false(volume_is_moved(v));
    assert_int_equal(rename(at("volumes/v"), at("elsewhere")), 0);
    assert_true(volume_is_moved(v));
    assert_ok(volume_create(root, "v", &limits, err));
    assert_true(volume_is_moved(v));
    volume_release(v);
}

/* Files of many names would become more than the volume may hold: that is said, and nothing is
 * kept. */
static void a_snapshot_is_bounded(void **state)
{
    struct volume *v = seeded_volume();
    droste_volume_count count;
    struct list names = { 0 };
    char name[16];
    cleanup_free char *big = calloc(1, (1 << 20) + 1);
    memset(big, 'x', 1 << 20);
    write_inside(v, "big", big);
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(linkat(volume_data(v), "big", volume_data(v), name, 0), 0);
    }
    volume_release(v);
    v = open_volume(VOLUME_ALONE);
    assert_fails(ERROR_ARGUMENT, volume_snapshot(v, "s", &count, err));
    assert_ok(volume_snapshots(v, &names, err));
    assert_int_equal(names.count, 0);
    for (int i = 0; i < 18; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_ok(volume_remove_path(v, name, err));
    }
    assert_ok(volume_snapshot(v, "s", &count, err));
    assert_ok(volume_set_limits(v, &(struct volume_limits){ limits.size, 2 }, err));
    assert_fails(ERROR_ARGUMENT, volume_snapshot(v, "t", &count, err));
    volume_release(v);
}

/* ---- removing ---- */

/* A volume goes with all that is in it, and nothing else. */
static void a_volume_is_removed(void **state)
{
    struct volume *v = seeded_volume();
    struct list names = { 0 };
    assert_int_equal(mkdir(at("outside"), 0700), 0);
    assert_int_equal(symlinkat(at("outside"), volume_data(v), "link"), 0);
    assert_int_equal(fchmodat(volume_data(v), "memory", 0, 0), 0);
    volume_release(v);
    assert_ok(volume_remove(root, "v", err));
    assert_true(is_there("outside"));
    assert_ok(volume_names(root, &names, err));
    assert_int_equal(names.count, 0);
    assert_fails(ERROR_NOT_FOUND, volume_remove(root, "v", err));
    assert_false(is_there("volumes/v"));
    assert_int_equal(count_in("volumes"), 1); /* the lock */
}

/* ---- owners ---- */

/* Root's guests are different users in turn: all becomes the next one's, but what has a second
 * name, which may be elsewhere, or is what a link leads to, and never while another uses it. */
static void files_belong_to_the_guest(void **state)
{
    if (geteuid() != 0) {
        print_message("skipped: giving files to others needs root\n");
        skip();
    }
    struct volume *v = seeded_volume(), *other = open_volume(VOLUME_SHARED);
    struct stat st;
    write_inside(v, "memory/f", "text");
    write_inside(v, "two", "text");
    assert_int_equal(linkat(volume_data(v), "two", AT_FDCWD, at("second"), 0), 0);
    assert_int_equal(symlinkat(at("second"), volume_data(v), "link"), 0);
    assert_fails(ERROR_ARGUMENT, volume_give(v, 0, err));
    volume_release(other);
    assert_ok(volume_give(v, 0, err));
    assert_ok(volume_give(v, VOLUME_GUEST, err));
    volume_release(open_volume(VOLUME_SHARED)); /* as before, for others too */
    assert_int_equal(fstatat(volume_data(v), "memory/f", &st, 0), 0);
    assert_int_equal(st.st_uid, VOLUME_GUEST);
    assert_int_equal(stat(at("second"), &st), 0);
    assert_int_equal(st.st_uid, 0);
    volume_release(v);
}

/* A holder whose request for the files was refused still holds the volume: it cannot be removed
 * before the holder has released it. */
static void a_refusal_keeps_the_lock(void **state)
{
    struct volume *v = new_volume(), *other = open_volume(VOLUME_SHARED);
    assert_fails(ERROR_ARGUMENT, volume_give(v, volume_owner(v) + 1, err));
    volume_release(other);
    assert_fails(ERROR_ARGUMENT, volume_remove(root, "v", err));
    volume_release(v);
    assert_ok(volume_remove(root, "v", err));
}

/* Whom a directory on the way keeps out is known before anything is tried. */
static void a_barrier_is_found(void **state)
{
    struct volume *v = new_volume();
    assert_int_equal(chmod(place, 0700), 0);
    char *barrier = volume_barrier(v, geteuid() + 1);
    assert_string_equal(barrier, place);
    free(barrier);
    assert_null(volume_barrier(v, geteuid()));
    volume_release(v);
}

/* One of a session: with data, as large as it is said, listed by nobody, and gone with its last
 * holder. */
static void a_session_s_own_passes(void **state)
{
    struct list names = { 0 };
    struct volume *v = NULL;
    char path[300];
    assert_ok(volume_make_ephemeral(root, &limits, &v, err));
    snprintf(path, sizeof path, "%s", volume_path(v));
    put_text(v, "deep/a", "text");
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(volume_limits_of(v)->files, limits.files);
    assert_ok(volume_names(root, &names, err));
    assert_int_equal(names.count, 0);
    struct volume *held = volume_hold(v);
    volume_release(v);
    assert_int_equal(access(path, F_OK), 0);
    volume_release(held);
    assert_int_equal(access(path, F_OK), -1);
    list_clear(&names);
}

/* What a killed process leaves of one goes when the next is made; one that is held stays. */
static void what_is_left_of_a_session_is_swept(void **state)
{
    struct volume *v = NULL, *next = NULL;
    char path[300];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        if (volume_make_ephemeral(root, &limits, &v, NULL) == 0)
            (void)!write(ends[1], volume_path(v), strlen(volume_path(v)) + 1);
        _exit(0); /* without letting go of it */
    }
    assert_true(read(ends[0], path, sizeof path) > 0);
    waitpid(child, NULL, 0);
    assert_int_equal(access(path, F_OK), 0);
    assert_ok(volume_make_ephemeral(root, &limits, &v, err));
    assert_int_equal(access(path, F_OK), -1);
    assert_ok(volume_make_ephemeral(root, &limits, &next, err));
    assert_int_equal(access(volume_path(v), F_OK), 0);
    volume_release(v);
    volume_release(next);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        volume_test(a_session_s_own_passes),
        volume_test(what_is_left_of_a_session_is_swept),
        volume_test(names_are_strict),
        volume_test(a_new_volume_is_whole),
        volume_test(an_empty_volume_is_seeded),
        volume_test(there_is_one_of_a_name),
        volume_test(a_link_is_no_volume),
        volume_test(an_opening_has_what_is_there_now),
        volume_test(a_volume_of_another_user_is_refused),
        volume_test(it_is_shared_or_had_alone),
        volume_test(leftovers_are_swept),
        volume_test(limits_last),
        volume_test(damaged_limits_are_reported),
        volume_test(a_root_may_be_a_link),
        volume_test(a_snapshot_is_restored),
        volume_test(a_snapshot_is_bounded),
        volume_test(a_commit_is_opened_under_another_name),
        volume_test(a_damaged_commit_is_refused),
        volume_test(a_moved_volume_is_noticed),
        volume_test(a_volume_is_removed),
        volume_test(files_belong_to_the_guest),
        volume_test(a_refusal_keeps_the_lock),
        volume_test(a_barrier_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
