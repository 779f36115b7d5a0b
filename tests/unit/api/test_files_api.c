/* The files of a session, through the public interface: what is copied, listed and refused. */
#include "../programs.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "droste.h"

#define API_ERROR f.err
#include "assert_fine.h"

static struct {
    droste *d;
    droste_session *session;
    droste_error err;
    char names[256];  /* that were listed, each with a space behind it */
    unsigned stop_at; /* the listing ends with the entry of this number; 0: it goes on */
    unsigned count;
    int ended[4]; /* errors of started requests by number, -1: none, 0: not ended */
    uint64_t handle;
} f;

static int setup(void **state)
{
    memset(&f, 0, sizeof f);
    assert_fine(droste_new(&f.d, &f.err));
    assert_fine(droste_session_open(f.d, &f.session, &f.err));
    return 0;
}

static int teardown(void **state)
{
    droste_session_close(f.session);
    droste_free(f.d);
    return 0;
}

#define files_test(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* A memory file with this text, at its beginning. */
static int memory(const char *text, size_t len)
{
    int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, len), len);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static void put(const char *path, const char *text)
{
    cleanup_fd int fd = memory(text, strlen(text));
    uint64_t copied = 0;
    assert_fine(droste_file_put(f.session, fd, path, &copied, &f.err));
    assert_int_equal(copied, strlen(text));
}

static void gets(const char *path, uint64_t offset, uint64_t length, const char *expected)
{
    cleanup_fd int fd = memory("", 0);
    char got[64] = "";
    uint64_t copied = 0;
    assert_fine(droste_file_get(f.session, path, offset, length, fd, &copied, &f.err));
    ssize_t n = pread(fd, got, sizeof got - 1, 0);
    assert_int_equal(n, copied);
    assert_string_equal(got, expected);
}

/* The call failed with this code of Droste's and this errno. */
static void failed(int rc, int code, int sys)
{
    if (rc != -code || f.err.code != code || f.err.sys != sys)
        fail_msg("%d, not -%d: code %d, errno %d, %s", rc, code, f.err.code, f.err.sys, f.err.text);
}

static int keep_name(void *arg, const droste_file_entry *entry)
{
    size_t len = strlen(f.names);
    snprintf(f.names + len, sizeof f.names - len, "%s ", entry->name);
    f.count++;
    return f.count == f.stop_at ? -77 : 0;
}

static int lists(unsigned depth, size_t most)
{
    f.names[0] = '\0';
    f.count = 0;
    return droste_file_list(f.session, "tree", depth, most, keep_name, NULL, &f.err);
}

/* ---- copies ---- */

static void a_part_of_a_file_is_copied(void **state)
{
    put("a.txt", "0123456789");
    gets("a.txt", 0, UINT64_MAX, "0123456789");
    gets("a.txt", 3, 4, "3456");
    gets("a.txt", 8, UINT64_MAX, "89");
    gets("a.txt", 10, 1, "");
    gets("a.txt", 11, UINT64_MAX, "");
    gets("a.txt", 0, 0, "");
    put("a.txt", "short");
    gets("a.txt", 0, 100, "short");
}

/* The size that the kernel says is 0, and there are contents all the same. */
static void files_of_the_kernel_are_read_to_their_end(void **state)
{
    cleanup_fd int fd = memory("", 0);
    uint64_t copied = 0;
    assert_fine(
        droste_file_get(f.session, "/proc/self/status", 0, UINT64_MAX, fd, &copied, &f.err));
    assert_true(copied > 100);
}

static void larger_files_go_in_pieces(void **state)
{
    enum { SIZE = 3 * DROSTE_FILE_PIECE + 17 };
    cleanup_free char *data = malloc(SIZE), *back = malloc(SIZE);
    assert_true(data && back);
    for (size_t i = 0; i < SIZE; i++)
        data[i] = (char)(i * 7 + i / 251);
    cleanup_fd int in = memory(data, SIZE), out = memory("", 0);
    uint64_t copied = 0;
    assert_fine(droste_file_put(f.session, in, "large", &copied, &f.err));
    assert_int_equal(copied, SIZE);
    assert_fine(droste_file_get(f.session, "large", 0, UINT64_MAX, out, &copied, &f.err));
    assert_int_equal(copied, SIZE);
    assert_int_equal(pread(out, back, SIZE, 0), SIZE);
    assert_memory_equal(data, back, SIZE);
}

/* What fails on this side is told as what it is, and leaves the session as it was. */
static void descriptors_that_do_not_work_are_reported(void **state)
{
    uint64_t copied = 1;
    put("a.txt", "text");
    failed(droste_file_get(f.session, "a.txt", 0, 4, -1, &copied, &f.err), DROSTE_ERROR_IO, EBADF);
    assert_non_null(strstr(f.err.text, "writing what comes from the sandbox"));
    failed(droste_file_put(f.session, -1, "b.txt", &copied, &f.err), DROSTE_ERROR_IO, EBADF);
    assert_int_equal(copied, 0);
    gets("a.txt", 0, 4, "text");
}

static void what_is_no_file_is_not_copied(void **state)
{
    cleanup_fd int fd = memory("x", 1);
    uint64_t copied = 9;
    assert_true(droste_file_get(f.session, "none", 0, 9, fd, &copied, &f.err) < 0);
    assert_int_equal(f.err.sys, ENOENT);
    assert_int_equal(copied, 0);
    copied = 9;
    assert_true(droste_file_put(f.session, fd, "none/a", &copied, &f.err) < 0);
    assert_int_equal(f.err.sys, ENOENT);
    assert_int_equal(copied, 0);
    assert_true(droste_file_get(f.session, ".", 0, 9, fd, NULL, &f.err) < 0);
    assert_int_equal(f.err.sys, EISDIR);
}

/* ---- directories ---- */

static void make_tree(void)
{
    assert_fine(droste_file_make_directory(f.session, "tree/below/deep", 1, &f.err));
    put("tree/one.txt", "1");
    put("tree/below/two.txt", "22");
}

static void a_listing_has_levels_and_a_limit(void **state)
{
    make_tree();
    assert_int_equal(lists(1, 10), 0);
    assert_string_equal(f.names, "below one.txt ");
    assert_int_equal(lists(3, 10), 0);
    assert_string_equal(f.names, "below below/deep below/two.txt one.txt ");
    assert_int_equal(lists(3, 2), 1); /* there are more */
    assert_int_equal(f.count, 2);
    assert_int_equal(lists(0, 10), 0);
    assert_string_equal(f.names, "below one.txt ");
}

static void the_receiver_may_end_a_listing(void **state)
{
    make_tree();
    f.stop_at = 2;
    assert_int_equal(lists(3, 10), -77);
    assert_int_equal(f.count, 2);
}

static void patterns_find_files(void **state)
{
    make_tree();
    f.names[0] = '\0';
    assert_fine(droste_file_glob(f.session, "**/*.txt", 10, keep_name, NULL, &f.err));
    assert_string_equal(f.names, "tree/below/two.txt tree/one.txt ");
}

static void files_are_described_moved_and_removed(void **state)
{
    droste_file_entry entry;
    make_tree();
    assert_fine(droste_file_stat(f.session, "tree/below/two.txt", 1, &entry, &f.err));
    assert_int_equal(entry.size, 2);
    assert_true(S_ISREG(entry.mode));
    assert_string_equal(entry.name, "");
    assert_fine(droste_file_rename(f.session, "tree/one.txt", "tree/three.txt", &f.err));
    gets("tree/three.txt", 0, 9, "1");
    assert_true(droste_file_remove(f.session, "tree", 0, &f.err) < 0);
    assert_int_equal(f.err.sys, ENOTEMPTY);
    assert_fine(droste_file_remove(f.session, "tree", 1, &f.err));
    assert_true(droste_file_stat(f.session, "tree", 0, &entry, &f.err) < 0);
    assert_int_equal(f.err.sys, ENOENT);
    assert_true(droste_file_make_directory(f.session, "a/b", 0, &f.err) < 0);
}

/* ---- requests that do not block ---- */

static void request_ended(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    int *ended = arg;
    assert_int_equal(*ended, 0); /* once */
    *ended = err ? err->code : -1;
    if (reply && ended == &f.ended[0])
        f.handle = reply->handle;
}

static int start(droste_file_request request, unsigned number)
{
    return droste_file_start(f.session, &request, request_ended, &f.ended[number], &f.err);
}

static void turn_until(const int *ended)
{
    while (*ended == 0)
        assert_fine(droste_turn(f.d, -1, &f.err));
}

static void requests_are_answered_in_their_order(void **state)
{
    put("a.txt", "text");
    assert_fine(start((droste_file_request){ .op = "open", .path = "a.txt", .mode = "r" }, 0));
    assert_fine(start((droste_file_request){ .op = "stat", .path = "none" }, 1));
    assert_fine(start((droste_file_request){ .op = "stat", .path = "a.txt" }, 2));
    turn_until(&f.ended[2]);
    assert_int_equal(f.ended[0], -1);
    assert_true(f.ended[1] > 0);
    assert_int_equal(f.ended[2], -1);
    assert_fine(start((droste_file_request){ .op = "close", .handle = f.handle }, 3));
    turn_until(&f.ended[3]);
    assert_int_equal(f.ended[3], -1);
}

static void requests_that_cannot_be_are_refused(void **state)
{
    put("a.txt", "text");
    failed(start((droste_file_request){ .op = "erase", .path = "a.txt" }, 0), DROSTE_ERROR_ARGUMENT,
        0);
    assert_non_null(strstr(f.err.text, "'erase'"));
    failed(start((droste_file_request){ .op = "rename", .path = "a.txt" }, 0),
        DROSTE_ERROR_ARGUMENT, 0);
    failed(start((droste_file_request){ .op = "stat", .path = "a.txt", .to = "b.txt" }, 0),
        DROSTE_ERROR_ARGUMENT, 0);
    assert_int_equal(f.ended[0], 0);
    gets("a.txt", 0, 9, "text");
}

/* Each request that is open when the session closes gets an error, once. */
static void open_requests_end_with_the_session(void **state)
{
    assert_fine(start((droste_file_request){ .op = "stat", .path = "." }, 0));
    assert_fine(start((droste_file_request){ .op = "list", .path = "." }, 1));
    droste_session_close(f.session);
    f.session = NULL;
    assert_true(f.ended[0] > 0 && f.ended[1] > 0);
}

static void ask_again(void *arg, const droste_file_reply *reply, const droste_error *err)
{
    int *ended = arg;
    assert_non_null(err);
    *ended = start((droste_file_request){ .op = "stat", .path = "." }, 1);
}

/* A request that fails because the session closes cannot begin another: it would open the file
 * service again, which nothing closes. */
static void a_closing_session_takes_no_requests(void **state)
{
    droste_file_request request = { .op = "stat", .path = "." };
    assert_fine(droste_file_start(f.session, &request, ask_again, &f.ended[0], &f.err));
    droste_session_close(f.session);
    f.session = NULL;
    failed(f.ended[0], DROSTE_ERROR_CANCELLED, 0);
    assert_int_equal(f.ended[1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        files_test(a_part_of_a_file_is_copied),
        files_test(files_of_the_kernel_are_read_to_their_end),
        files_test(larger_files_go_in_pieces),
        files_test(descriptors_that_do_not_work_are_reported),
        files_test(what_is_no_file_is_not_copied),
        files_test(a_listing_has_levels_and_a_limit),
        files_test(the_receiver_may_end_a_listing),
        files_test(patterns_find_files),
        files_test(files_are_described_moved_and_removed),
        files_test(requests_are_answered_in_their_order),
        files_test(requests_that_cannot_be_are_refused),
        files_test(open_requests_end_with_the_session),
        files_test(a_closing_session_takes_no_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
