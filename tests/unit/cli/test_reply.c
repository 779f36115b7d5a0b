/* A model's reply as it arrives: words are printed, code is kept for the preview. */
#include "../test.h"

#include "base/cleanup.h"
#include "cli/reply.h"

static char *text;
static size_t len;
static struct screen screen;
static struct reply reply;

static int reply_begin(void **state)
{
    FILE *out = open_memstream(&text, &len);
    screen = (struct screen){ .out = out, .utf8 = true, .visible = true };
    reply = (struct reply){ 0 };
    return out ? 0 : -1;
}

static int reply_finish(void **state)
{
    reply_free(&reply);
    screen_close(&screen);
    fclose(screen.out);
    free(text);
    return 0;
}

#define reply_test(f) cmocka_unit_test_setup_teardown(f, reply_begin, reply_finish)

static void take(const char *piece)
{
    reply_take(&reply, &screen, piece, strlen(piece));
}

static void end(const char *whole)
{
    reply_end(&reply, &screen, whole, strlen(whole));
}

static void printed(const char *expected)
{
    assert_string_equal(buf_text(&screen.log), expected);
    buf_clear(&screen.log);
}

/* The lines that would be rewritten. */
static void drawn(const char *expected)
{
    reply_draw(&reply, &screen, 80);
    assert_string_equal(buf_text(&screen.next), expected);
    buf_clear(&screen.next);
    buf_clear(&screen.next_columns);
}

static void words_are_printed_and_code_is_not(void **state)
{
    end("I look.\n\n```repl\nprint(1)\n```\nThen I answer.\n");
    printed("  I look.\n\n  Then I answer.\n");
}

/* However it is cut into pieces, the same is printed. */
static void pieces_make_no_difference(void **state)
{
    static const char whole[] = "I look.\n```python\nprint('```')\n```\n\n\nDone \xC3\xA9.";
    end(whole);
    cleanup_free char *expected = strdup(buf_text(&screen.log));
    assert_non_null(expected);
    assert_string_equal(expected, "  I look.\n\n  Done \xC3\xA9.\n");
    buf_clear(&screen.log);
    for (size_t at = 0; at < sizeof whole - 1; at++)
        reply_take(&reply, &screen, whole + at, 1);
    end(whole);
    printed(expected);
    reply_take(&reply, &screen, whole, 10);
    end(whole);
    printed(expected);
}

/* A block in another language is a part of the words, with its fences. */
static void other_blocks_are_words(void **state)
{
    end("```json\n{}\n```\n");
    printed("  ```json\n  {}\n  ```\n");
    end("~~~ PY\nx = 1\n~~~\nafter\n");
    printed("  after\n");
}

static void a_block_ends_with_its_own_fence(void **state)
{
    end("````repl\n```\n~~~~\n```` no\n   `````\nafter\n");
    printed("  after\n");
    end("    ```repl\nwords\n"); /* too deep for a fence */
    printed("      ```repl\n  words\n");
}

static void the_preview_has_the_last_lines_of_the_code(void **state)
{
    take("Words\n```repl\n");
    for (char line[] = "a = 0\n"; line[4] <= '9'; line[4]++)
        take(line);
    take("b = ");
    drawn("  > a = 2\n  > a = 3\n  > a = 4\n  > a = 5\n  > a = 6\n  > a = 7\n  > a = 8\n"
          "  > a = 9\n  > b = ");
    take("1\n```\n");
    drawn("");
}

static void a_line_of_words_is_drawn_until_it_is_complete(void **state)
{
    take("I lo");
    printed("");
    drawn("  I lo");
    take("ok\n");
    printed("  I look\n");
    drawn("");
}

/* On a terminal, a long line is printed row by row, between words; a file gets it as it is. */
static void a_long_line_is_broken_on_a_terminal(void **state)
{
    cleanup_buf struct buf words = { 0 };
    for (int i = 0; i < 20; i++)
        buf_puts(&words, "seven77 ");
    end(buf_text(&words));
    assert_int_equal(strchr(buf_text(&screen.log), '\n') - screen.log.data, 2 + 20 * 8 - 1);
    buf_clear(&screen.log);
    screen.moves = true;
    end(buf_text(&words));
    assert_int_equal(strchr(buf_text(&screen.log), '\n') - screen.log.data, 2 + 9 * 8 - 1);
}

static void a_very_long_reply_is_cut(void **state)
{
    for (int i = 0; i < 100; i++)
        take("line\n");
    end("");
    assert_non_null(strstr(buf_text(&screen.log), "  … 40 more lines\n"));
    buf_clear(&screen.log);
    end("next\n"); /* the next reply begins anew */
    printed("  next\n");
}

static void control_characters_are_escaped(void **state)
{
    end("a\x1b[2Jb\r\n");
    printed("  a\\x1b[2Jb\n");
    take("```repl\n\x07");
    drawn("  > \\x07");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        reply_test(words_are_printed_and_code_is_not),
        reply_test(pieces_make_no_difference),
        reply_test(other_blocks_are_words),
        reply_test(a_block_ends_with_its_own_fence),
        reply_test(the_preview_has_the_last_lines_of_the_code),
        reply_test(a_line_of_words_is_drawn_until_it_is_complete),
        reply_test(a_long_line_is_broken_on_a_terminal),
        reply_test(a_very_long_reply_is_cut),
        reply_test(control_characters_are_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
