/* Directories of chunks: what is read is what was stored, and a sweep removes only what no list
 * has, beside writers and after sweeps that were killed. */
#include "../test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/chunk.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/file.h"
#include "base/os/tree.h"

enum { GRACE = 1000 };

static char place[64];
static struct chunk_store store;

static int make_store(void **state)
{
    snprintf(place, sizeof place, "/tmp/droste-chunk-XXXXXX");
    return mkdtemp(place) ? chunk_store_open(place, &store, NULL) : -1;
}

static int remove_store(void **state)
{
    chunk_store_close(&store);
    return tree_remove(AT_FDCWD, place) ? 0 : -1;
}

#define chunk_test(f) cmocka_unit_test_setup_teardown(f, make_store, remove_store)

static const char *path_of(const char *name, const char *end)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%.2s/%s%s", place, name, name, end);
    return path;
}

static bool is_file(const char *name, const char *end)
{
    return access(path_of(name, end), F_OK) == 0;
}

static void age(const char *name, const char *end)
{
    struct timespec long_ago[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
    assert_int_equal(utimensat(AT_FDCWD, path_of(name, end), long_ago, 0), 0);
}

static void put(const char *text, char name[HASH_TEXT_SIZE])
{
    assert_ok(chunk_put(&store, text, strlen(text), name, err));
}

static int get(const char *name)
{
    cleanup_buf struct buf out = { 0 };
    return chunk_get(&store, name, &out, NULL);
}

static size_t sweep(const char *list)
{
    char *item = (char *)list;
    size_t removed = 0;
    struct list lists = { &item, list != NULL };
    assert_ok(chunk_sweep(&store, &lists, clock_ns(), GRACE, &removed, err));
    return removed;
}

static void put_list(const char *chunk, char name[HASH_TEXT_SIZE])
{
    char text[200];
    snprintf(text, sizeof text, "a list of 1\n%s\n", chunk);
    put(text, name);
}

static void what_is_damaged_is_refused_and_can_be_stored_again(void **state)
{
    char name[HASH_TEXT_SIZE];
    put("something", name);
    assert_int_equal(get(name), 0);
    assert_int_equal(truncate(path_of(name, ""), 3), 0);
    assert_int_equal(get(name), -(int)ERROR_PROTOCOL);
    assert_fails(ERROR_PROTOCOL, chunk_put_named(&store, name, "somethinG", 9, err));
    assert_int_equal(get(name), -(int)ERROR_PROTOCOL);
    assert_ok(chunk_put_named(&store, name, "something", 9, err));
    assert_int_equal(get(name), 0);
}

static void a_list_has_the_lines_that_are_names(void **state)
{
    char name[HASH_TEXT_SIZE], found[HASH_TEXT_SIZE];
    cleanup_buf struct buf list = { 0 };
    size_t at = 0;
    put("one", name);
    buf_printf(&list, "size 1\n%s\n\n%sx\n../%.61s\n%.63s\n%s", name, name, name, name, name);
    assert_true(chunk_list_next(&list, &at, found));
    assert_string_equal(found, name);
    assert_true(chunk_list_next(&list, &at, found)); /* the last line has no end */
    assert_false(chunk_list_next(&list, &at, found));
}

static void only_old_chunks_that_no_list_has_are_removed(void **state)
{
    char used[HASH_TEXT_SIZE], list[HASH_TEXT_SIZE], unused[HASH_TEXT_SIZE], fresh[HASH_TEXT_SIZE];
    put("used", used);
    put_list(used, list);
    put("unused", unused);
    put("fresh", fresh);
    age(used, "");
    age(list, "");
    age(unused, "");
    assert_int_equal(sweep(list), 0);
    assert_false(chunk_is_there(&store, unused)); /* for writers */
    assert_int_equal(get(unused), 0);             /* a reader may need it */
    assert_int_equal(sweep(list), 0);             /* it is not old for long */
    age(unused, ".old");
    assert_int_equal(sweep(list), 1);
    assert_int_equal(get(unused), -(int)ERROR_NOT_FOUND);
    assert_true(chunk_is_there(&store, used) && chunk_is_there(&store, list));
    assert_true(chunk_is_there(&store, fresh));
}

/* The writer has found the chunk, and then the sweep takes it away before the list is in use. */
static void a_chunk_of_a_list_that_comes_into_use_meanwhile_is_kept(void **state)
{
    char chunk[HASH_TEXT_SIZE], list[HASH_TEXT_SIZE];
    put("chunk", chunk);
    age(chunk, "");
    put("chunk", chunk); /* is there */
    assert_int_equal(sweep(NULL), 0);
    put_list(chunk, list);
    assert_int_equal(get(chunk), 0);
    age(chunk, ".old");
    assert_int_equal(sweep(list), 0);
    assert_true(chunk_is_there(&store, chunk));
    assert_false(is_file(chunk, ".old"));
}

/* A sweep makes an old one by a link and removes the first name; either may be the last step. */
static void a_sweep_that_was_killed_is_completed_by_the_next_one(void **state)
{
    char used[HASH_TEXT_SIZE], list[HASH_TEXT_SIZE], unused[HASH_TEXT_SIZE], old[200];
    const char *const both[] = { used, unused };
    put("used", used);
    put_list(used, list);
    put("unused", unused);
    for (size_t i = 0; i < array_length(both); i++) {
        snprintf(old, sizeof old, "%s", path_of(both[i], ".old"));
        assert_int_equal(link(path_of(both[i], ""), old), 0);
        age(both[i], "");
    }
    snprintf(old, sizeof old, "%s/%.2s/.new-0123", place, used);
    close(creat(old, 0600));
    struct timespec long_ago[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
    assert_int_equal(utimensat(AT_FDCWD, old, long_ago, 0), 0);
    for (int i = 0; i < 4 && (is_file(unused, "") || is_file(unused, ".old")); i++) {
        sweep(list);
        if (is_file(unused, ""))
            age(unused, "");
        if (is_file(unused, ".old"))
            age(unused, ".old");
    }
    assert_int_equal(get(unused), -(int)ERROR_NOT_FOUND);
    assert_int_equal(get(used), 0);
    assert_true(chunk_is_there(&store, used) && !is_file(used, ".old"));
    assert_int_equal(access(old, F_OK), -1);
}

/* What a writer has found or written is there for its readers, however often sweeps are killed. */
static void writers_beside_sweeps_that_are_killed_lose_nothing(void **state)
{
    char chunk[HASH_TEXT_SIZE], list[HASH_TEXT_SIZE];
    for (int i = 0; i < 100; i++) {
        put("chunk", chunk);
        if (is_file(chunk, ""))
            age(chunk, "");
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                sweep(NULL);
        }
        put("chunk", chunk);
        put_list(chunk, list);
        kill(child, SIGKILL);
        assert_int_equal(get(chunk), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(get(chunk), 0);
        sweep(list);
        assert_true(chunk_is_there(&store, chunk));
    }
}

static void a_list_that_cannot_be_read_stops_the_sweep(void **state)
{
    char chunk[HASH_TEXT_SIZE], list[HASH_TEXT_SIZE];
    size_t removed = 0;
    put("chunk", chunk);
    put_list(chunk, list);
    age(chunk, "");
    assert_int_equal(truncate(path_of(list, ""), 10), 0);
    char *item = list;
    struct list lists = { &item, 1 };
    assert_fails(ERROR_PROTOCOL, chunk_sweep(&store, &lists, clock_ns(), GRACE, &removed, err));
    assert_true(chunk_is_there(&store, chunk));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        chunk_test(what_is_damaged_is_refused_and_can_be_stored_again),
        chunk_test(a_list_has_the_lines_that_are_names),
        chunk_test(only_old_chunks_that_no_list_has_are_removed),
        chunk_test(a_chunk_of_a_list_that_comes_into_use_meanwhile_is_kept),
        chunk_test(a_sweep_that_was_killed_is_completed_by_the_next_one),
        chunk_test(writers_beside_sweeps_that_are_killed_lose_nothing),
        chunk_test(a_list_that_cannot_be_read_stops_the_sweep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
