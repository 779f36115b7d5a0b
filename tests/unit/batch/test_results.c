/* The file of results: one batch at a time, whole lines, and no byte lost of a file that is not
 * one. */
#include "../test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "batch/results.h"

static char path[64];
static char ids[256]; /* of the lines that were read, with commas */

static int results_begin(void **state)
{
    snprintf(path, sizeof path, "/tmp/droste-results-XXXXXX");
    ids[0] = '\0';
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int results_over(void **state)
{
    return unlink(path);
}

#define results_test(f) cmocka_unit_test_setup_teardown(f, results_begin, results_over)

static void write_bytes(const char *bytes, size_t len)
{
    cleanup_fd int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, bytes, len), 0);
}

static void write_text(const char *text)
{
    write_bytes(text, strlen(text));
}

static void assert_file(const char *text)
{
    cleanup_buf struct buf found = { 0 };
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_ok(file_read_fd(fd, path, 1 << 20, &found, err));
    assert_string_equal(buf_text(&found), text);
    assert_int_equal(found.len, strlen(text));
}

static int take_id(void *arg, const char *id, struct json_object *line, struct error *err)
{
    size_t len = strlen(ids);
    snprintf(ids + len, sizeof ids - len, "%s,", id);
    return strcmp(id, "stop") == 0 ? error_set(err, ERROR_IO, "stopped") : 0;
}

static int read_results(struct buf *notice, struct error *err)
{
    struct results *r = NULL;
    int rc = results_open(path, &r, err);
    assert_int_equal(rc, 0);
    rc = results_read(r, take_id, NULL, notice, err);
    results_close(r);
    return rc;
}

#define LINE(id) "{\"id\":" id ",\"status\":\"answered\"}"

/* Every line is told with its id as text, blank ones are passed over. */
static void lines_are_matched_by_id(void **state)
{
    cleanup_buf struct buf notice = { 0 };
    write_text(LINE("1") "\n\n \t\n" LINE("\"b\"") "\n");
    assert_ok(read_results(&notice, err));
    assert_string_equal(ids, "1,b,");
    assert_int_equal(notice.len, 0);
}

/* What the reader's function refuses ends the reading. */
static void a_refusal_ends_the_reading(void **state)
{
    cleanup_buf struct buf notice = { 0 };
    write_text(LINE("\"stop\"") "\n" LINE("2") "\n");
    assert_fails(ERROR_IO, read_results(&notice, err));
    assert_string_equal(ids, "stop,");
}

/* A last line that lacks only its newline is a result, and gets it. */
static void a_last_line_gets_its_newline(void **state)
{
    cleanup_buf struct buf notice = { 0 };
    write_text(LINE("1") "\n" LINE("2"));
    assert_ok(read_results(&notice, err));
    assert_string_equal(ids, "1,2,");
    assert_file(LINE("1") "\n" LINE("2") "\n");
    assert_int_equal(notice.len, 0);
}

/* Wherever the write of a line was cut, its beginning is removed, with a notice, and nothing
 * else. */
static void the_beginning_of_a_line_is_removed(void **state)
{
    static const char last[] = LINE("22");
    for (size_t cut = 1; cut < sizeof last - 1; cut++) {
        cleanup_buf struct buf notice = { 0 }, text = { 0 };
        ids[0] = '\0';
        buf_puts(&text, LINE("1") "\n");
        buf_append(&text, last, cut);
        write_text(buf_text(&text));
        assert_ok(read_results(&notice, err));
        assert_string_equal(ids, "1,");
        assert_file(LINE("1") "\n");
        assert_non_null(strstr(buf_text(&notice), "incomplete last line"));
    }
}

/* After a loss of power a file may end in zeros: they are an incomplete line, too. */
static void zeros_at_the_end_are_removed(void **state)
{
    static const char text[] = LINE("1") "\n\0\0\0";
    cleanup_buf struct buf notice = { 0 };
    write_bytes(text, sizeof text - 1);
    assert_ok(read_results(&notice, err));
    assert_file(LINE("1") "\n");
    assert_non_null(strstr(buf_text(&notice), "3 bytes"));
}

/* A file that is not a file of results is refused and stays as it is, whether its last line has a
 * newline or not: --out may have been given the wrong name. */
static void another_file_is_refused_and_kept(void **state)
{
    static const char *const others[] = { "notes without a newline", "notes\n",
        "{\"id\":1,\"question\":\"Why?\"}", "{\"id\":1,\"question\":\"Why?\"}\n", "[1, 2]", "42",
        "{\"question\":\"half", LINE("1.5") "\n", "{\"id\":\"\",\"status\":\"answered\"}",
        LINE("1") "\nmy own remark" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        cleanup_buf struct buf notice = { 0 };
        write_text(others[i]);
        assert_fails_saying(ERROR_ARGUMENT, "not a result of a batch", read_results(&notice, err));
        assert_file(others[i]);
        assert_int_equal(notice.len, 0);
    }
}

/* A second batch is told so; when the first has ended, it can go on. */
static void one_batch_at_a_time(void **state)
{
    struct results *first = NULL, *second = NULL;
    assert_ok(results_open(path, &first, err));
    assert_fails_saying(ERROR_ARGUMENT, "another batch", results_open(path, &second, err));
    results_close(first);
    assert_ok(results_open(path, &second, err));
    results_close(second);
    results_close(NULL);
}

/* Its name is absolute, because the record keeps it. */
static void the_name_is_absolute(void **state)
{
    struct results *r = NULL;
    assert_int_equal(chdir("/tmp"), 0);
    assert_ok(results_open(path + strlen("/tmp/"), &r, err));
    assert_string_equal(r->path, path);
    results_close(r);
}

/* A line for which there is no space is not there in part, and a later one follows the last whole
 * one. A limit of the file's size cuts writes as a full disk does. */
static void a_line_is_whole_or_absent(void **state)
{
    struct results *r = NULL;
    struct rlimit before, small = { 0 };
    getrlimit(RLIMIT_FSIZE, &before);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_ok(results_open(path, &r, err));
    assert_ok(results_append(r, LINE("1"), strlen(LINE("1")), err));
    for (rlim_t room = 0; room < sizeof LINE("2"); room++) {
        small.rlim_cur = sizeof LINE("1") + room;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        struct error err = { 0 };
        int rc = results_append(r, LINE("2"), strlen(LINE("2")), &err);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(rc, -(int)ERROR_IO);
        assert_non_null(strstr(err.text, path));
        assert_file(LINE("1") "\n");
    }
    assert_ok(results_append(r, LINE("3"), strlen(LINE("3")), err));
    assert_file(LINE("1") "\n" LINE("3") "\n");
    assert_true(r->dirty);
    assert_ok(results_sync(r, err));
    assert_false(r->dirty);
    results_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        results_test(lines_are_matched_by_id),
        results_test(a_refusal_ends_the_reading),
        results_test(a_last_line_gets_its_newline),
        results_test(the_beginning_of_a_line_is_removed),
        results_test(zeros_at_the_end_are_removed),
        results_test(another_file_is_refused_and_kept),
        results_test(one_batch_at_a_time),
        results_test(the_name_is_absolute),
        results_test(a_line_is_whole_or_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
