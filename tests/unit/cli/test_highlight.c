/* Python in colours: what is coloured, what a line leaves open, and that it is harmless. */
#include "../test.h"

#include "base/cleanup.h"
#include "cli/terminal/highlight.h"

#define KEYWORD(text) "\x1b[35m" text "\x1b[0m"
#define STRING(text)  "\x1b[32m" text "\x1b[0m"
#define NUMBER(text)  "\x1b[36m" text "\x1b[0m"
#define COMMENT(text) "\x1b[2m" text "\x1b[0m"

static void shows(struct highlight *h, const char *line, const char *expected)
{
    cleanup_buf struct buf out = { 0 };
    highlight_line(h, &out, line, strlen(line));
    assert_string_equal(buf_text(&out), expected);
}

static void shows_alone(const char *line, const char *expected)
{
    struct highlight h = { 0 };
    shows(&h, line, expected);
    assert_int_equal(h.quote, 0);
}

static void tokens_have_their_colours(void **state)
{
    shows_alone("return x", KEYWORD("return") " x");
    shows_alone("x = 12", "x = " NUMBER("12"));
    shows_alone("f('a', \"b\")", "f(" STRING("'a'") ", " STRING("\"b\"") ")");
    shows_alone("x  # if 1", "x  " COMMENT("# if 1"));
    shows_alone("", "");
}

/* A keyword, a number or a quote within another token is a part of it. */
static void parts_of_tokens_are_not_coloured(void **state)
{
    shows_alone("returns, if_", "returns, if_");
    shows_alone("x1", "x1");
    shows_alone("\xC3\xA9if", "\xC3\xA9if");
    shows_alone("'# if 1'", STRING("'# if 1'"));
    shows_alone("'it\\'s'x", STRING("'it\\'s'") "x");
    shows_alone("a_word_longer_than_every_keyword", "a_word_longer_than_every_keyword");
}

static void only_a_triple_string_goes_on_in_the_next_line(void **state)
{
    struct highlight h = { 0 };
    shows(&h, "x = '''a", "x = " STRING("'''a"));
    assert_int_equal(h.quote, '\'');
    shows(&h, "if \"\"\" ''", STRING("if \"\"\" ''"));
    shows(&h, "b'''; if", STRING("b'''") "; " KEYWORD("if"));
    assert_int_equal(h.quote, 0);
    shows_alone("x = 'never closed", "x = " STRING("'never closed"));
    shows_alone("'a\\", STRING("'a\\"));
}

/* What stands in a string or a comment cannot move the cursor. */
static void control_characters_are_escaped(void **state)
{
    shows_alone("'\x1b[2J'", STRING("'\\x1b[2J'"));
    shows_alone("# \x07", COMMENT("# \\x07"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_have_their_colours),
        cmocka_unit_test(parts_of_tokens_are_not_coloured),
        cmocka_unit_test(only_a_triple_string_goes_on_in_the_next_line),
        cmocka_unit_test(control_characters_are_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
