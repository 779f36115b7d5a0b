/* Arguments that name pipes: they become files, which can be read as often as one likes. */
#include "../test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "cli/cli.h"

/* The reading end of a pipe that holds this text and has no writer. */
static int open_pipe(const char *text)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(file_write_all(ends[1], text, strlen(text)), 0);
    close(ends[1]);
    return ends[0];
}

/* Calls it with an argument in which the descriptor stands for '#'. */
static int replace(const char *form, int fd)
{
    char argument[64];
    char *argv[] = { (char *)(uintptr_t) "test", argument };
    size_t before = strcspn(form, "#");
    if (form[before])
        snprintf(argument, sizeof argument, "%.*s%d%s", (int)before, form, fd, form + before + 1);
    else
        snprintf(argument, sizeof argument, "%s", form);
    return cli_replace_pipes(2, argv);
}

static bool is_regular(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static void assert_text(int fd, const char *text)
{
    char path[32];
    snprintf(path, sizeof path, "/dev/fd/%d", fd);
    for (int times = 0; times < 2; times++) {
        cleanup_buf struct buf found = { 0 };
        cleanup_fd int file = open(path, O_RDONLY | O_CLOEXEC);
        assert_ok(file_read_fd(file, path, 1 << 20, &found, err));
        assert_string_equal(buf_text(&found), text);
    }
}

/* In each form in which an argument may name a file. */
static void a_pipe_becomes_a_file(void **state)
{
    static const char *const forms[] = { "/dev/fd/#", "/proc/self/fd/#", "@/dev/fd/#",
        "--context=/dev/fd/#", "name=/dev/fd/#" };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        cleanup_fd int fd = open_pipe("two\nlines");
        assert_int_equal(replace(forms[i], fd), -1);
        assert_true(is_regular(fd));
        assert_text(fd, "two\nlines");
    }
}

/* What only looks like one is left alone. */
static void other_arguments_are_left_alone(void **state)
{
    static const char *const forms[] = { "x/dev/fd/#", "/dev/fd/#x", "/dev/fd/", "/dev/fd/00000#",
        "see /dev/fd/#", "/dev/fd/-#", "/tmp/dev/fd/#" };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        cleanup_fd int fd = open_pipe("text");
        assert_int_equal(replace(forms[i], 10000 + fd) + replace(forms[i], fd), -2);
        if (i != 3) /* zeros before a number are still a number */
            assert_false(is_regular(fd));
    }
}

/* The writing end of a pipe, a file and a closed descriptor stay what they are. */
static void only_what_can_be_read_is_replaced(void **state)
{
    int ends[2];
    struct stat st;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(replace("/dev/fd/#", ends[1]), -1);
    assert_int_equal(fstat(ends[1], &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(replace("/dev/fd/#", ends[1]), -1);
    cleanup_fd int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    assert_int_equal(file_write_all(file, "file", 4), 0);
    assert_int_equal(replace("/dev/fd/#", file), -1);
    assert_text(file, "file");
}

/* More than a pipe holds, and nothing at all. */
static void a_pipe_may_hold_anything(void **state)
{
    enum { MUCH = 300000 };
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t writer = fork();
    if (writer == 0) {
        cleanup_free char *much = malloc(MUCH);
        memset(much, 'x', MUCH);
        _exit(file_write_all(ends[1], much, MUCH) < 0);
    }
    close(ends[1]);
    assert_int_equal(replace("/dev/fd/#", ends[0]), -1);
    struct stat st;
    assert_int_equal(fstat(ends[0], &st), 0);
    assert_int_equal(st.st_size, MUCH);
    close(ends[0]);
    cleanup_fd int empty = open_pipe("");
    assert_int_equal(replace("/dev/fd/#", empty), -1);
    assert_text(empty, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipe_becomes_a_file),
        cmocka_unit_test(other_arguments_are_left_alone),
        cmocka_unit_test(only_what_can_be_read_is_replaced),
        cmocka_unit_test(a_pipe_may_hold_anything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
