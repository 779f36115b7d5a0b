/* Errors: a code, errno, and one bounded line of well-formed text. */
#include "../test.h"

#include <errno.h>

#include "base/error.h"
#include "base/text.h"

/* Setting returns the negative code and says what was asked. */
static void setting_is_the_whole_failure_path(void **state)
{
    struct error err = { .code = ERROR_IO, .sys = 5, .text = "before" };
    assert_int_equal(error_set(&err, ERROR_BUDGET, "%d of %d", 3, 2), -ERROR_BUDGET);
    assert_int_equal(err.code, ERROR_BUDGET);
    assert_int_equal(err.sys, 0);
    assert_string_equal(err.text, "3 of 2");
    assert_int_equal(error_memory(&err), -ERROR_MEMORY);
    assert_string_equal(err.text, "out of memory");
}

/* errno is kept, and its words are added. */
static void errno_is_kept_with_its_words(void **state)
{
    struct error err;
    errno = ENOENT;
    assert_int_equal(error_set_errno(&err, ERROR_NOT_FOUND, "opening %s", "x"), -ERROR_NOT_FOUND);
    assert_int_equal(err.sys, ENOENT);
    assert_string_equal(err.text, "opening x: No such file or directory");
}

/* A caller adds what it knows in front; code and errno stay. */
static void wrapping_adds_in_front(void **state)
{
    struct error err;
    errno = EACCES;
    error_set_errno(&err, ERROR_PERMISSION, "writing");
    assert_int_equal(error_wrap(&err, "opening volume '%s'", "x"), -ERROR_PERMISSION);
    assert_int_equal(err.code, ERROR_PERMISSION);
    assert_int_equal(err.sys, EACCES);
    assert_string_equal(err.text, "opening volume 'x': writing: Permission denied");
}

/* A caller that needs no reason passes NULL and still gets a failure. */
static void no_error_is_wanted(void **state)
{
    assert_int_equal(error_set(NULL, ERROR_LOST, "x"), -ERROR_LOST);
    assert_int_equal(error_set_errno(NULL, ERROR_LOST, "x"), -ERROR_LOST);
    assert_true(error_wrap(NULL, "x") < 0);
}

/* However long the parts are, the text ends within its array, and its beginning is kept. */
static void the_text_is_bounded(void **state)
{
    struct error err;
    const int size = ERROR_TEXT_SIZE;
    char text[ERROR_TEXT_SIZE + 100];
    memset(text, 'y', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int used = size - 10; used <= size + 5; used++) {
        errno = EIO;
        error_set_errno(&err, ERROR_IO, "x%.*s", used, text);
        assert_in_range(strlen(err.text), size - 9, size - 1);
        error_set(&err, ERROR_IO, "%.*s", used, text);
        error_wrap(&err, "wrapped");
        assert_int_equal(strlen(err.text), used + 9 < size ? used + 9 : size - 1);
        assert_int_equal(strstr(err.text, "…") != NULL, used + 9 >= size);
        error_wrap(&err, "%.*s", used, text);
        assert_true(strlen(err.text) < sizeof err.text);
        assert_int_equal(err.text[0], 'y');
    }
}

/* What a server or a guest put into it cannot break the line, nor a terminal's state. */
static void the_text_is_one_line(void **state)
{
    struct error err;
    error_set(&err, ERROR_MODEL, "%s",
        "a\nb\r\x1b[2Jc\x7f"
        "d\t");
    assert_string_equal(err.text, "a b  [2Jc d ");
}

/* The text is UTF-8 whatever it was made of and wherever it was cut: records and JSON rely on it.
 */
/* Nor does it act on a terminal. */
static void the_text_turns_nothing_around(void **state)
{
    struct error err;
    error_set(&err, ERROR_MODEL,
        "a\xC2\x9B"
        "b\xE2\x80\xAE"
        "c\xE2\x81\xA6"
        "d\xE2\x82\xAC\xC2\xA0");
    assert_string_equal(err.text, "a  b   c   d\xE2\x82\xAC\xC2\xA0");
}

static void the_text_is_well_formed(void **state)
{
    struct error err;
    error_set(&err, ERROR_MODEL,
        "a\xff"
        "b %.4s",
        "\xC3\xA9\xE2\x82\xAC");
    assert_string_equal(err.text, "a?b \xC3\xA9??");
    char euros[3 * 100 + 1] = "";
    for (int i = 0; i < 100; i++)
        strcat(euros, "\xE2\x82\xAC");
    for (int shift = 0; shift < 3; shift++) {
        error_set(&err, ERROR_MODEL, "%.*s%s", shift, "xxx", euros);
        assert_true(text_is_utf8(err.text, strlen(err.text), NULL));
        error_wrap(&err, "wrapped");
        assert_true(text_is_utf8(err.text, strlen(err.text), NULL));
        assert_true(strlen(err.text) > 230);
    }
}

/* Every code has a name of its own; what is not code has one too. */
static void every_code_has_a_name(void **state)
{
    static const int codes[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 20, 21, 22, 23,
        24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37 };
    enum { COUNT = sizeof codes / sizeof *codes };
    for (int i = 0; i < COUNT; i++) {
        const char *name = error_code_name((enum error_code)codes[i]);
        assert_string_not_equal(name, "unknown");
        for (int j = 0; j < i; j++)
            assert_string_not_equal(name, error_code_name((enum error_code)codes[j]));
        assert_int_equal(
            error_is_model((enum error_code)codes[i]), codes[i] >= 20 && codes[i] < 30);
        assert_int_equal(
            error_is_budget((enum error_code)codes[i]), codes[i] == 10 || codes[i] >= 30);
        assert_int_equal(
            error_is_budget((enum error_code)codes[i]), strncmp(name, "budget", 6) == 0);
    }
    assert_string_equal(error_code_name((enum error_code)15), "unknown");
    assert_string_equal(error_code_name((enum error_code) - 1), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_is_the_whole_failure_path),
        cmocka_unit_test(errno_is_kept_with_its_words),
        cmocka_unit_test(wrapping_adds_in_front),
        cmocka_unit_test(no_error_is_wanted),
        cmocka_unit_test(the_text_is_bounded),
        cmocka_unit_test(the_text_is_one_line),
        cmocka_unit_test(the_text_turns_nothing_around),
        cmocka_unit_test(the_text_is_well_formed),
        cmocka_unit_test(every_code_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
