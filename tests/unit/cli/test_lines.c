/* Lines of code from a pipe, and the signals that come meanwhile. */
#include "../test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "cli/terminal/lines.h"

static struct lines *lines;
static int input = -1; /* what becomes standard input is written to */

static int lines_begin(void **state)
{
    struct error err;
    int ends[2];
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_UNBLOCK, &all, NULL); /* lines_open blocked them for the test before */
    if (pipe2(ends, O_CLOEXEC) < 0 || dup2(ends[0], STDIN_FILENO) < 0)
        return -1;
    close(ends[0]);
    input = ends[1];
    return lines_open(&lines, &err);
}

static int lines_end(void **state)
{
    lines_close(lines);
    close_fd(&input);
    return 0;
}

#define lines_test(f) cmocka_unit_test_setup_teardown(f, lines_begin, lines_end)

static void type(const char *text)
{
    assert_int_equal(file_write_all(input, text, strlen(text)), 0);
}

static void assert_line(const char *expected)
{
    cleanup_buf struct buf line = { 0 };
    assert_int_equal(lines_read(lines, "> ", &line), LINES_LINE);
    assert_string_equal(buf_text(&line), expected);
}

static enum lines_event next_event(void)
{
    cleanup_buf struct buf line = { 0 };
    return lines_read(lines, "> ", &line);
}

/* Lines come without their newlines, empty ones too; the last needs none. The end stays the end. */
static void lines_come_one_by_one(void **state)
{
    assert_false(lines_is_terminal(lines));
    type("one\n\n\ttwo \nlast");
    close_fd(&input);
    assert_line("one");
    assert_line("");
    assert_line("\ttwo ");
    assert_line("last");
    assert_int_equal(next_event(), LINES_END);
    assert_int_equal(next_event(), LINES_END);
}

/* Nothing but a newline at the end makes no line of its own. */
static void a_last_newline_begins_no_line(void **state)
{
    type("one\n");
    close_fd(&input);
    assert_line("one");
    assert_int_equal(next_event(), LINES_END);
}

enum { LONG = 300000 };

static void *write_long_line(void *arg)
{
    cleanup_free char *text = malloc(LONG + 2);
    memset(text, 'x', LONG);
    memcpy(text + LONG, "\n", 2);
    type(text);
    type("after\n");
    return NULL;
}

/* A line may be longer than what a pipe holds and than one read gives. */
static void a_line_may_be_long(void **state)
{
    cleanup_buf struct buf line = { 0 };
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_long_line, NULL), 0);
    assert_int_equal(lines_read(lines, "> ", &line), LINES_LINE);
    assert_int_equal(line.len, LONG);
    assert_line("after");
    pthread_join(writer, NULL);
}

/* A signal that comes before a line is waited for is an event of its own, once, and takes no line
 * with it. */
static void a_signal_is_an_event_and_takes_no_line(void **state)
{
    raise(SIGINT); /* blocked until the wait */
    assert_int_equal(next_event(), LINES_INTERRUPT);
    type("one\n");
    assert_line("one");
    raise(SIGTERM);
    assert_int_equal(next_event(), LINES_LEAVE);
    raise(SIGHUP);
    assert_int_equal(next_event(), LINES_LEAVE);
    type("two\n");
    assert_line("two");
}

/* A signal while the library works is told when that is over; without one there is none. */
static void a_signal_during_work_is_delivered_after_it(void **state)
{
    lines_busy(lines, NULL);
    assert_int_equal(lines_busy_end(lines), LINES_LINE);
    lines_busy(lines, NULL);
    raise(SIGINT);
    assert_int_equal(lines_busy_end(lines), LINES_INTERRUPT);
    type("one\n");
    assert_line("one");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        lines_test(lines_come_one_by_one),
        lines_test(a_last_newline_begins_no_line),
        lines_test(a_line_may_be_long),
        lines_test(a_signal_is_an_event_and_takes_no_line),
        lines_test(a_signal_during_work_is_delivered_after_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
