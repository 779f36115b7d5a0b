/* Text in columns, and lines that are rewritten. The output is a file, which counts as a terminal
 * of 80 columns. */
#include "../test.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cli/terminal/screen.h"

static struct screen screen;
static off_t seen;

static int screen_begin(void **state)
{
    FILE *out = tmpfile();
    screen = (struct screen){ .out = out, .moves = true, .utf8 = true, .visible = true };
    seen = 0;
    return out ? 0 : -1;
}

static int screen_end(void **state)
{
    screen_close(&screen);
    fclose(screen.out);
    return 0;
}

#define screen_test(f) cmocka_unit_test_setup_teardown(f, screen_begin, screen_end)

static void fits(const char *line, size_t columns, const char *expected, size_t used)
{
    cleanup_buf struct buf out = { 0 };
    size_t got = screen_fit(&screen, &out, line, strlen(line), columns);
    assert_string_equal(buf_text(&out), expected);
    assert_int_equal(got, used);
}

static void text_that_does_not_fit_ends_with_an_ellipsis(void **state)
{
    fits("abc", 3, "abc", 3);
    fits("abcd", 3, "ab…", 3);
    fits("", 3, "", 0);
    fits("abcd", 1, "a", 1); /* no room for the ellipsis beside a character */
    screen.utf8 = false;
    fits("abcdef", 5, "ab...", 5);
    fits("abcdef", 6, "abcdef", 6);
}

/* Chinese characters have two columns, combining ones none; none is cut in two. */
static void columns_are_those_of_the_terminal(void **state)
{
    fits("\xE6\x97\xA5\xE6\x9C\xAC", 4, "\xE6\x97\xA5\xE6\x9C\xAC", 4);
    fits("\xE6\x97\xA5\xE6\x9C\xAC", 3, "\xE6\x97\xA5…", 3);
    fits("\xE6\x97\xA5\xE6\x9C\xAC", 2, "…", 1);
    fits("e\xCC\x81x", 2, "e\xCC\x81x", 2);
}

static void what_is_fitted_is_one_harmless_line(void **state)
{
    fits("a\nb\tc", 9, "a b c", 5);
    fits("\x1b[2J", 9, "\\x1b[2J", 7);
    fits("\x1b[2J", 5, "\\x1b…", 5);
}

/* Megabytes are not looked at to show a line: the rest counts as text that does not fit. */
static void of_a_huge_text_only_the_beginning_is_looked_at(void **state)
{
    enum { HUGE = 1 << 20 };
    cleanup_buf struct buf out = { 0 };
    cleanup_free char *huge = malloc(HUGE);
    assert_non_null(huge);
    memset(huge, 'x', HUGE);
    assert_int_equal(screen_fit(&screen, &out, huge, HUGE, 10), 10);
    assert_string_equal(buf_text(&out), "xxxxxxxxx…");
    assert_true(screen_fit(&screen, &out, huge, HUGE, HUGE) < 8192);
}

static void breaks(const char *line, size_t columns, const char *first)
{
    size_t n = screen_break(line, strlen(line), columns);
    assert_int_equal(n, strlen(first));
    assert_memory_equal(line, first, n);
}

static void lines_break_between_words(void **state)
{
    breaks("one two three", 8, "one two");
    breaks("one two three", 7, "one two");
    breaks("one two", 80, "one two");
    breaks("seventeen x", 4, "seve");
    breaks("\xE6\x97\xA5", 1, "\xE6\x97\xA5"); /* at least one character */
    breaks("a\tb", 5, "a\t");                  /* a tab has four columns */
    breaks("", 5, "");
}

static void draw(const char *expected)
{
    char text[256] = "";
    screen_draw(&screen);
    ssize_t n = pread(fileno(screen.out), text, sizeof text - 1, seen);
    assert_true(n >= 0);
    seen += n;
    assert_string_equal(text, expected);
}

static void lines_are_rewritten_in_place(void **state)
{
    screen_add(&screen, "one", 3);
    screen_add(&screen, "two", 3);
    buf_puts(&screen.log, "above\n");
    draw("above\none\ntwo");
    screen_add(&screen, "three", 5);
    draw("\r\x1b[K\x1b[A\r\x1b[Kthree");
    draw("\r\x1b[K");
    draw("");
}

/* A terminal that became narrower breaks a line, which then has two rows to remove. */
static void a_line_wider_than_the_terminal_has_several_rows(void **state)
{
    screen_add(&screen, "wide", 81);
    draw("wide");
    draw("\r\x1b[K\x1b[A\r\x1b[K");
    screen_add(&screen, "just fits", 80);
    draw("just fits");
    draw("\r\x1b[K");
}

static void without_a_terminal_only_the_log_is_printed(void **state)
{
    screen.moves = screen.visible = false;
    screen_add(&screen, "one", 3);
    screen_put_text(&screen, &screen.log, "a\x1b[2J\n", 6);
    draw("a\x1b[2J\n"); /* a file gets the text as it is */
    draw("");
    assert_string_equal(screen_paint(&screen, "\x1b[2m"), "");
}

static size_t pipe_fill(int fd)
{
    static const char zeros[4096];
    size_t len = 0;
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    while (write(fd, zeros, sizeof zeros) == sizeof zeros)
        len += sizeof zeros;
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
    return len;
}

static void pipe_reads(int fd, const char *expected)
{
    char text[256] = "";
    assert_true(read(fd, text, sizeof text - 1) >= 0);
    assert_string_equal(text, expected);
}

static void a_full_pipe_is_not_waited_for(void **state)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fclose(screen.out);
    screen.out = fdopen(ends[1], "w");
    screen.moves = false;
    cleanup_free char *zeros = malloc(pipe_fill(ends[1]));
    buf_puts(&screen.log, "one\n");
    screen_draw(&screen);
    buf_puts(&screen.log, "two\n");
    screen_draw(&screen);
    assert_true(read(ends[0], zeros, 65536) == 65536);
    screen_draw(&screen);
    pipe_reads(ends[0], "one\ntwo\n");
    pipe_fill(ends[1]);
    buf_puts(&screen.log, "three\n");
    screen_draw(&screen);
    for (int i = 0; i < 2; i++) {
        for (int line = 0; line < 300000; line++)
            buf_puts(&screen.log, "lost\n");
        screen_draw(&screen);
    }
    buf_puts(&screen.log, "kept\n");
    assert_true(read(ends[0], zeros, 65536) == 65536);
    screen_draw(&screen);
    pipe_reads(ends[0], "three\n(nothing read this output, so a part of it is missing)\nkept\n");
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        screen_test(text_that_does_not_fit_ends_with_an_ellipsis),
        screen_test(columns_are_those_of_the_terminal),
        screen_test(what_is_fitted_is_one_harmless_line),
        screen_test(of_a_huge_text_only_the_beginning_is_looked_at),
        screen_test(lines_break_between_words),
        screen_test(lines_are_rewritten_in_place),
        screen_test(a_line_wider_than_the_terminal_has_several_rows),
        screen_test(without_a_terminal_only_the_log_is_printed),
        screen_test(a_full_pipe_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
