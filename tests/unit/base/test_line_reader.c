/* Reading a file line by line, wherever the reads split the lines. */
#include "../test.h"

#include <unistd.h>

#include "base/buf.h"
#include "base/os/file.h"
#include "base/line_reader.h"

static int file_of(const char *text, size_t len)
{
    int fd = file_memfd("lines", NULL);
    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, text, len), 0);
    return fd;
}

static int note(void *arg, const struct line *line, struct error *err)
{
    struct buf *seen = arg;
    buf_printf(seen, "%zu@%lld:", line->number, (long long)line->at);
    buf_append(seen, line->text, line->len);
    buf_puts(seen, line->whole ? ";" : "!");
    assert_int_equal(line->text[line->len], 0);
    return 0;
}

static void every_line_has_its_number_and_offset(void **state)
{
    static const char text[] = "a\n\nbc\nrest";
    cleanup_buf struct buf seen = { 0 };
    int fd = file_of(text, sizeof text - 1);
    assert_ok(line_reader_read(fd, "it", note, &seen, err));
    assert_string_equal(buf_text(&seen), "1@0:a;2@2:;3@3:bc;4@6:rest!");
    close(fd);
}

static void an_empty_file_has_no_line(void **state)
{
    cleanup_buf struct buf seen = { 0 };
    int fd = file_of("", 0);
    assert_ok(line_reader_read(fd, "it", note, &seen, err));
    assert_int_equal(seen.len, 0);
    close(fd);
}

/* A recording may come from another program. */
static void lines_come_from_a_pipe(void **state)
{
    static const char text[] = "a\n\nbc\nrest";
    cleanup_buf struct buf seen = { 0 };
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(file_write_all(ends[1], text, sizeof text - 1), 0);
    close(ends[1]);
    assert_ok(line_reader_read(ends[0], "it", note, &seen, err));
    assert_string_equal(buf_text(&seen), "1@0:a;2@2:;3@3:bc;4@6:rest!");
    close(ends[0]);
}

static int note_blank(void *arg, const struct line *line, struct error *err)
{
    buf_putc(arg, line_is_blank(line) ? '-' : 'x');
    return 0;
}

static void a_line_of_blanks_is_blank(void **state)
{
    static const char text[] = "\n \t\r\n a \n\0\n  ";
    cleanup_buf struct buf seen = { 0 };
    int fd = file_of(text, sizeof text - 1);
    assert_ok(line_reader_read(fd, "it", note_blank, &seen, err));
    assert_string_equal(buf_text(&seen), "--xx-");
    close(fd);
}

struct sum {
    size_t lines, bytes;
    off_t next;
};

static int add(void *arg, const struct line *line, struct error *err)
{
    struct sum *sum = arg;
    assert_int_equal(line->at, sum->next);
    assert_int_equal(line->len, line->number * 37 % 100000);
    assert_int_equal(strspn(line->text, "x"), line->len);
    sum->lines++;
    sum->bytes += line->len + 1;
    sum->next += (off_t)line->len + 1;
    return 0;
}

/* Lines that are shorter and longer than what is read at once. */
static void lines_of_all_lengths_are_whole(void **state)
{
    cleanup_buf struct buf text = { 0 };
    struct sum sum = { 0 };
    char xs[100000];
    memset(xs, 'x', sizeof xs);
    for (size_t n = 1; n <= 3000; n++) {
        buf_append(&text, xs, n * 37 % sizeof xs);
        buf_putc(&text, '\n');
    }
    int fd = file_of(text.data, text.len);
    assert_ok(line_reader_read(fd, "it", add, &sum, err));
    assert_int_equal(sum.lines, 3000);
    assert_int_equal(sum.bytes, text.len);
    close(fd);
}

static int stop_at_two(void *arg, const struct line *line, struct error *err)
{
    ++*(size_t *)arg;
    return line->number == 2 ? error_set(err, ERROR_ARGUMENT, "enough") : 0;
}

static void a_callback_may_stop_the_reader(void **state)
{
    size_t seen = 0;
    int fd = file_of("a\nb\nc\n", 6);
    assert_fails(ERROR_ARGUMENT, line_reader_read(fd, "it", stop_at_two, &seen, err));
    assert_int_equal(seen, 2);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_line_has_its_number_and_offset),
        cmocka_unit_test(lines_come_from_a_pipe),
        cmocka_unit_test(a_line_of_blanks_is_blank),
        cmocka_unit_test(an_empty_file_has_no_line),
        cmocka_unit_test(lines_of_all_lengths_are_whole),
        cmocka_unit_test(a_callback_may_stop_the_reader),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
