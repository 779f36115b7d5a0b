/* Opening the record: Droste's files are opened or created, others are refused with advice, and no
 * failure damages the file. */
#include "fixture.h"

#include <errno.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/mount.h>

static void assert_open_says(const char *path, const char *words)
{
    struct error err = { 0 };
    struct store *store = NULL;
    assert_int_equal(store_open(path, &store, &err), -ERROR_STORE);
    assert_int_equal(err.code, ERROR_STORE);
    assert_null(store);
    if (!strstr(err.text, words))
        fail_msg("'%s' does not say '%s'", err.text, words);
}

static void run_sql(const char *file, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_open(file, &db);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static unsigned mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

/* Without a path the file is runs.db in DROSTE_HOME, and it is nobody else's to read. */
static void the_default_file_is_private(void **state)
{
    struct place *place = *state;
    char home[128], file[160];
    snprintf(home, sizeof home, "%s/a/b", place->directory);
    snprintf(file, sizeof file, "%s/runs.db", home);
    setenv("DROSTE_HOME", home, 1);
    mode_t before = umask(0);
    struct store *store = open_store(NULL);
    begin_run(store, "a");
    assert_int_equal(mode_of(home), 0700);
    assert_int_equal(mode_of(file), 0600);
    strcat(file, "-wal");
    assert_int_equal(mode_of(file), 0600);
    store_close(store);
    umask(before);
    unsetenv("DROSTE_HOME");
}

/* What one store wrote, the next one opens and adds to. */
static void an_existing_file_is_opened(void **state)
{
    struct place *place = *state;
    for (int i = 0; i < 3; i++) {
        struct store *store = open_store(place->file);
        begin_run(store, NULL);
        store_close(store);
        assert_int_equal(ask(place->file, "SELECT count(*) FROM runs"), i + 1);
    }
    assert_int_equal(ask(place->file, "PRAGMA user_version"), 15);
}

/* Opening and closing a second store in this process does not drop the locks of the first, without
 * which the next process to close the file would take it to be the last one and remove the log that
 * the first still writes to. */
static void a_second_store_leaves_the_locks_of_the_first(void **state)
{
    struct place *place = *state;
    int ends[2];
    char go;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork(); /* now: SQLite's notes about locks would be inherited */
    if (pid == 0)
        _exit(read(ends[0], &go, 1) == 1 ? (int)ask(place->file, "SELECT count(*) FROM runs") : 99);
    struct store *store = open_store(place->file);
    begin_run(store, "a");
    store_close(open_store(place->file));
    assert_int_equal(write(ends[1], "", 1), 1);
    assert_int_equal(wait_for(pid), 1);
    close(ends[0]);
    close(ends[1]);
    begin_run(store, "b");
    assert_int_equal(ask(place->file, "SELECT count(*) FROM runs"), 2);
    store_close(store);
}

/* Processes that find no file and make it at the same instant all succeed. SQLite by itself refuses
 * about one in nine: it does not wait for the file when it goes over to WAL. */
static void a_new_file_is_opened_by_many_at_once(void **state)
{
    struct place *place = *state;
    enum { PROCESSES = 8, ROUNDS = 20 };
    pid_t pids[PROCESSES];
    volatile bool *go = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < ROUNDS; round++) {
        char file[sizeof place->file + 4];
        snprintf(file, sizeof file, "%s.%d", place->file, round);
        *go = false;
        for (int i = 0; i < PROCESSES; i++) {
            struct store *store;
            pids[i] = fork();
            if (pids[i] != 0)
                continue;
            while (!*go)
                continue; /* not sched_yield: they are to start together */
            _exit(store_open(file, &store, NULL) < 0);
        }
        usleep(1000);
        *go = true;
        for (int i = 0; i < PROCESSES; i++)
            assert_int_equal(wait_for(pids[i]), 0);
    }
    munmap((void *)go, 1);
}

/* ---- files that are not ours ---- */

/* A file of other bytes is refused and stays as it is. */
static void a_file_that_is_no_database_is_refused(void **state)
{
    struct place *place = *state;
    char text[4096], after[4096];
    memset(text, 'x', sizeof text);
    int fd = open(place->file, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, text, sizeof text), sizeof text);
    assert_open_says(place->file, "not a database; move it away, or set DROSTE_HOME");
    assert_int_equal(pread(fd, after, sizeof after, 0), sizeof after);
    assert_memory_equal(after, text, sizeof text);
    close(fd);
}

/* Another program's database is refused, and gets no table of ours. */
static void another_programs_database_is_refused(void **state)
{
    struct place *place = *state;
    run_sql(place->file, "CREATE TABLE theirs (x)");
    assert_open_says(place->file, "the database of another program; set DROSTE_HOME");
    assert_int_equal(ask(place->file, "SELECT count(*) FROM sqlite_schema"), 1);
    assert_int_equal(
        ask(place->file, "SELECT journal_mode = 'delete' FROM pragma_journal_mode"), 1);
}

/* A file that a newer Droste wrote is refused; one of our own version is not. */
static void a_newer_version_is_refused(void **state)
{
    struct place *place = *state;
    store_close(open_store(place->file));
    run_sql(place->file, "PRAGMA user_version = 16");
    assert_open_says(place->file, "newer Droste wrote it (version 16, supported up to 15)");
    run_sql(place->file, "PRAGMA user_version = 15");
    store_close(open_store(place->file));
}

static int check_no_cost(void *arg, const droste_record_call *call, struct error *err)
{
    assert_true(call->cost < 0);
    ++*(int *)arg;
    return 0;
}

/* What each version brought, and how to be without it. */
static const char without_15[] = "DROP INDEX calls_about_costs;"
                                 "ALTER TABLE calls DROP COLUMN question;"
                                 "PRAGMA user_version = 14";
static const char without_14[] =
    "DROP TRIGGER call_asked; DROP TRIGGER call_decided; DROP INDEX calls_that_ask;"
    "ALTER TABLE calls DROP COLUMN asked_ms; ALTER TABLE calls DROP COLUMN until_ms;"
    "ALTER TABLE calls DROP COLUMN decision; ALTER TABLE calls DROP COLUMN decided_ms;"
    "ALTER TABLE calls DROP COLUMN decided_by; ALTER TABLE calls DROP COLUMN decision_reason;"
    "ALTER TABLE calls DROP COLUMN begun_ms;"
    "PRAGMA user_version = 13";
static const char without_13[] = "DROP TABLE requests;"
                                 "PRAGMA user_version = 12";
static const char without_12[] =
    "DROP TRIGGER run_began; DROP TRIGGER run_isolated; DROP TRIGGER run_ended;"
    "DROP TRIGGER run_removed; DROP TRIGGER turn_began; DROP TRIGGER turn_kept;"
    "DROP TRIGGER call_began; DROP TRIGGER call_ended; DROP TRIGGER cell_began;"
    "DROP TRIGGER cell_ended; DROP TABLE events; DROP INDEX runs_by_account;"
    "ALTER TABLE runs DROP COLUMN account;"
    "PRAGMA user_version = 11";
static const char without_11[] = "ALTER TABLE calls DROP COLUMN reply_values;"
                                 "PRAGMA user_version = 10";
static const char without_10[] = "DROP TABLE artifacts;"
                                 "PRAGMA user_version = 9";
static const char without_9[] =
    "ALTER TABLE calls DROP COLUMN candidate; ALTER TABLE cells DROP COLUMN candidate;"
    "ALTER TABLE turns DROP COLUMN kept; ALTER TABLE turns DROP COLUMN reason;"
    "ALTER TABLE turns DROP COLUMN session;"
    "PRAGMA user_version = 8";
static const char without_8[] = "ALTER TABLE calls DROP COLUMN fork;"
                                "ALTER TABLE runs DROP COLUMN parent_fork;"
                                "PRAGMA user_version = 7";
static const char without_7[] = "DROP TABLE results;"
                                "PRAGMA user_version = 6";
static const char without_6[] = "ALTER TABLE runs DROP COLUMN tools;"
                                "PRAGMA user_version = 5";
static const char without_5[] = "ALTER TABLE runs DROP COLUMN previous;"
                                "PRAGMA user_version = 4";
static const char without_4[] = "DROP INDEX runs_by_task;"
                                "ALTER TABLE runs DROP COLUMN batch;"
                                "ALTER TABLE runs DROP COLUMN task;"
                                "PRAGMA user_version = 3";
static const char without_3[] = "ALTER TABLE calls DROP COLUMN cost;"
                                "ALTER TABLE runs DROP COLUMN error_code;"
                                "PRAGMA user_version = 2";
static const char without_2[] =
    "ALTER TABLE runs DROP COLUMN settings;"
    "ALTER TABLE runs DROP COLUMN context_data;"
    "ALTER TABLE calls DROP COLUMN key; ALTER TABLE calls DROP COLUMN repeated;"
    "PRAGMA user_version = 1";

/* A file with a call that has ended, at a price, and one that is under way, which is given back. */
static int64_t make_older_file(struct place *place)
{
    droste_record_call end = { .status = "ok", .cost = 1 };
    struct store *store = open_store(place->file);
    begin_run(store, "a");
    assert_ok(store_turn_begin(store, "a", 1, err));
    assert_ok(store_call_end(store, begin_call(store, "a", "p"), &end, err));
    int64_t call = begin_call(store, "a", "what?");
    store_close(store);
    run_sql(place->file, without_15);
    run_sql(place->file, without_14);
    run_sql(place->file, without_13);
    run_sql(place->file, without_12);
    run_sql(place->file, without_11);
    run_sql(place->file, without_10);
    run_sql(place->file, without_9);
    run_sql(place->file, without_8);
    run_sql(place->file, without_7);
    run_sql(place->file, without_6);
    run_sql(place->file, without_5);
    run_sql(place->file, without_4);
    run_sql(place->file, without_3);
    return call;
}

/* It is still there, has no price, and can be gone on with. */
static void check_brought_up_to_date(struct place *place, int64_t call)
{
    struct store_visitor visitor = { .call = check_no_cost };
    int seen = 0;
    struct store *store = open_store(place->file);
    assert_ok(store_call_repeat(store, call, err));
    assert_ok(store_run_visit(store, "a", &visitor, &seen, err));
    assert_int_equal(seen, 2);
    assert_int_equal(ask(place->file, "SELECT sum(repeated) FROM calls WHERE key IS NULL"), 1);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM runs WHERE settings IS NULL"), 1);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM runs WHERE error_code IS NULL"), 1);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM runs WHERE batch IS NULL"), 1);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM runs WHERE tools IS NULL"), 1);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM events"), 5);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM events WHERE ends"), 1);
    assert_int_equal(ask(place->file, "PRAGMA user_version"), 15);
    assert_intact(place->file);
    store_close(store);
}

/* A file of the first version gets what is new, and keeps what it had. */
static void a_file_of_version_1_is_brought_up_to_date(void **state)
{
    struct place *place = *state;
    int64_t call = make_older_file(place);
    run_sql(place->file, without_2);
    check_brought_up_to_date(place, call);
}

/* So does one of the second. */
static void a_file_of_version_2_is_brought_up_to_date(void **state)
{
    struct place *place = *state;
    check_brought_up_to_date(place, make_older_file(place));
}

/* A version that no Droste writes is not a file of ours, whatever its mark says. */
static void an_impossible_version_is_refused(void **state)
{
    struct place *place = *state;
    store_close(open_store(place->file));
    run_sql(place->file, "PRAGMA user_version = -1");
    assert_open_says(place->file, "the database of another program");
    run_sql(place->file, "PRAGMA user_version = 0");
    assert_open_says(place->file, "the database of another program");
}

/* A database with all pages but the first destroyed is named as damaged when it is opened: its
 * tables and triggers are described on several. */
static void a_damaged_file_is_named(void **state)
{
    struct place *place = *state;
    char zeros[4096] = { 0 };
    store_close(open_store(place->file));
    int fd = open(place->file, O_RDWR);
    off_t size = lseek(fd, 0, SEEK_END);
    for (off_t at = 4096; at < size; at += 4096)
        assert_int_equal(pwrite(fd, zeros, sizeof zeros, at), sizeof zeros);
    close(fd);
    assert_open_says(place->file, "is damaged");
}

/* ---- places that cannot be written ---- */

/* A directory, a path below nothing, and the empty path. */
static void a_path_that_cannot_be_is_refused(void **state)
{
    struct place *place = *state;
    char below[128];
    snprintf(below, sizeof below, "%s/nothing/runs.db", place->directory);
    assert_open_says(below, "set DROSTE_HOME");
    assert_open_says(place->directory, "set DROSTE_HOME");
    assert_open_says("", "set DROSTE_HOME");
}

/* Runs `check` in a process that permissions bind: as nobody where we are root. */
static void without_privileges(void (*check)(struct place *), struct place *place)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (getuid() == 0 && (setgroups(0, NULL) < 0 || setgid(65534) < 0 || setuid(65534) < 0))
            _exit(2);
        check(place);
        _exit(0);
    }
    assert_int_equal(wait_for(pid), 0);
}

static void open_in_a_closed_directory(struct place *place)
{
    assert_open_says(place->file, "set DROSTE_HOME");
    setenv("DROSTE_HOME", place->directory, 1);
    assert_open_says(NULL, "set DROSTE_HOME");
    char home[128];
    snprintf(home, sizeof home, "%s/below", place->directory);
    setenv("DROSTE_HOME", home, 1);
    assert_open_says(NULL, "set DROSTE_HOME");
}

/* A directory in which nothing can be made. */
static void a_read_only_directory_is_refused(void **state)
{
    struct place *place = *state;
    assert_int_equal(chmod(place->directory, 0555), 0);
    without_privileges(open_in_a_closed_directory, place);
}

static void open_anothers_file(struct place *place)
{
    assert_open_says(place->file, "you may not write it; set DROSTE_HOME");
}

/* A file that can be read but not written. */
static void a_read_only_file_is_refused(void **state)
{
    struct place *place = *state;
    store_close(open_store(place->file));
    assert_int_equal(chmod(place->directory, 0777), 0);
    assert_int_equal(chmod(place->file, 0444), 0);
    without_privileges(open_anothers_file, place);
}

/* ---- a full disk ---- */

/* The directory becomes a disk of this size; false where mounting is not for us. */
static bool mount_small(const struct place *place, const char *size)
{
    char options[64];
    snprintf(options, sizeof options, "size=%s", size);
    return getuid() == 0 && mount("droste", place->directory, "tmpfs", 0, options) == 0;
}

/* Writes cells of noise until one is refused, and says how many went in. */
static int64_t fill(struct store *store, struct error *err)
{
    static unsigned char noise[32768];
    uint64_t x = 88172645463325252u; /* xorshift64 */
    for (int64_t written = 0;; written++) {
        for (size_t i = 0; i < sizeof noise; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            noise[i] = (unsigned char)(x >> 32);
        }
        droste_record_cell begin = { .run = "a", .turn = 1, .code = { noise, sizeof noise } };
        int64_t cell;
        if (store_cell_begin(store, &begin, &cell, err) < 0)
            return written;
        assert_in_range(written, 0, 1000);
    }
}

/* On a full disk a step fails and says so, what was written before stays, and there is no half
 * step; with space again the same store goes on. */
static void a_full_disk_is_an_error_and_no_harm(void **state)
{
    struct place *place = *state;
    if (!mount_small(place, "1m"))
        skip();
    struct error full = { 0 };
    char ballast[128];
    snprintf(ballast, sizeof ballast, "%s/ballast", place->directory);
    int fd = open(ballast, O_RDWR | O_CREAT, 0600);
    assert_int_equal(posix_fallocate(fd, 0, 300000), 0);

    struct store *store = open_store(place->file);
    begin_run(store, "a");
    assert_ok(store_turn_begin(store, "a", 1, err));
    int64_t written = fill(store, &full);
    assert_true(written > 0);
    assert_int_equal(full.code, ERROR_STORE);
    assert_non_null(strstr(full.text, "the disk is full; free some space, or set DROSTE_HOME"));
    assert_int_equal(ask(place->file, "SELECT count(*) FROM cells"), written);

    assert_int_equal(ftruncate(fd, 0), 0);
    close(fd);
    begin_cell(store, "a", store_text("more"));
    store_close(store);
    assert_int_equal(ask(place->file, "SELECT count(*) FROM cells"), written + 1);
    assert_intact(place->file);
    assert_int_equal(umount(place->directory), 0);
}

/* On a disk without room for the tables nothing opens, and nothing crashes at any size. */
static void a_disk_that_is_too_small_is_refused(void **state)
{
    struct place *place = *state;
    static const char *const sizes[] = { "4k", "8k", "16k", "32k", "48k", "64k", "96k" };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (!mount_small(place, sizes[i]))
            skip();
        struct error err = { 0 };
        struct store *store = NULL;
        if (store_open(place->file, &store, &err) < 0) {
            assert_int_equal(err.code, ERROR_STORE);
            if (!strstr(err.text, "DROSTE_HOME"))
                fail_msg("with %s: %s", sizes[i], err.text);
        }
        store_close(store);
        assert_int_equal(umount(place->directory), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        store_test(the_default_file_is_private),
        store_test(an_existing_file_is_opened),
        store_test(a_second_store_leaves_the_locks_of_the_first),
        store_test(a_new_file_is_opened_by_many_at_once),
        store_test(a_file_that_is_no_database_is_refused),
        store_test(another_programs_database_is_refused),
        store_test(a_newer_version_is_refused),
        store_test(a_file_of_version_1_is_brought_up_to_date),
        store_test(a_file_of_version_2_is_brought_up_to_date),
        store_test(an_impossible_version_is_refused),
        store_test(a_damaged_file_is_named),
        store_test(a_path_that_cannot_be_is_refused),
        store_test(a_read_only_directory_is_refused),
        store_test(a_read_only_file_is_refused),
        store_test(a_full_disk_is_an_error_and_no_harm),
        store_test(a_disk_that_is_too_small_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
