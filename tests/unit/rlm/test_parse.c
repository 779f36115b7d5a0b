/* Parsing a reply: which lines are code, and the value of FINAL. */
#include "../test.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "rlm/parse.h"

/* All blocks of a reply, each in brackets. */
static void blocks_of(const char *reply, struct buf *out)
{
    struct reply_block block;
    size_t at = 0, len = strlen(reply);
    while (reply_next_block(reply, len, &at, &block))
        buf_printf(out, "[%.*s]", (int)block.len, block.code);
}

static void assert_blocks(const char *reply, const char *expected)
{
    cleanup_buf struct buf out = { 0 };
    blocks_of(reply, &out);
    if (strcmp(buf_text(&out), expected) != 0)
        fail_msg("of\n%s\ncame %s, not %s", reply, buf_text(&out), expected);
}

static void blocks_come_in_order(void **state)
{
    assert_blocks("First\n```repl\na = 1\n```\nthen\n```repl\nb = 2\n```\n", "[a = 1\n][b = 2\n]");
    assert_blocks("no code at all", "");
    assert_blocks("", "");
    assert_blocks("```repl\n```\n", "[]");
}

static void code_is_recognised_by_its_language(void **state)
{
    static const char *const code[] = { "repl", "python", "python3", "py", "REPL", "Python",
        " repl", "repl ", "python title=x", "python{.line}" };
    static const char *const others[] = { "", "json", "text", "pythonic", "rep", "c", "sh",
        "pycon" };
    char reply[80];
    for (size_t i = 0; i < array_length(code); i++) {
        snprintf(reply, sizeof reply, "```%s\nx\n```\n", code[i]);
        assert_blocks(reply, "[x\n]");
    }
    for (size_t i = 0; i < array_length(others); i++) {
        snprintf(reply, sizeof reply, "```%s\nx\n```\n", others[i]);
        assert_blocks(reply, "");
    }
}

/* A prompt in a string often has fences of its own; the block ends behind the string. */
static void fences_within_strings_stay_in_the_code(void **state)
{
    static const char *const codes[] = {
        "x = '''\n```\ntext\n```\n'''\n",
        "x = f\"\"\"Look at\n```python\n{code}\n```\n# and ''' this\n\"\"\"\ny = 1\n",
        "x = r'''\\'''\n```\n'''  # it's\n",
        "x = 'it\\'s'; y = \"'''\"; z = '''\n~~~\n```\n'''\n",
        "x = \"\"\"'\\\"\"\"\n```\n\"\"\"\n",
    };
    for (size_t i = 0; i < array_length(codes); i++) {
        cleanup_buf struct buf reply = { 0 }, expected = { 0 };
        buf_printf(&reply, "Now:\n```repl\n%s```\nand\n```repl\nb\n```\n", codes[i]);
        buf_printf(&expected, "[%s][b\n]", codes[i]);
        assert_blocks(buf_text(&reply), buf_text(&expected));
    }
}

/* Where no end stands outside of strings, the first one counts. */
static void strings_that_never_end_hold_no_fence(void **state)
{
    assert_blocks("```repl\nx = '''\n```\nIt's done.\n", "[x = '''\n]");
    assert_blocks("```repl\nx = '''\n```\n```repl\ny\n```\n", "[x = '''\n][y\n]");
    assert_blocks("```repl\nx = 'a\n```\n```repl\ny\n```\n", "[x = 'a\n][y\n]");
    assert_blocks("```repl\n# don't '''\n```\n```repl\ny\n```\n", "[# don't '''\n][y\n]");
    assert_blocks("```text\nx = '''\n```\n```repl\ny\n```\n'''\n```\n", "[y\n]");
}

/* A reply of such blocks is read in the time that its length takes. */
static void many_strings_that_never_end_are_read_in_time(void **state)
{
    enum { BLOCKS = 100000 };
    cleanup_buf struct buf reply = { 0 };
    struct reply_block block;
    const char *value;
    size_t at = 0, count = 0, len;
    for (int i = 0; i < BLOCKS; i++)
        buf_puts(&reply, "```repl\n'''\n```\n");
    while (reply_next_block(buf_text(&reply), reply.len, &at, &block))
        count++;
    assert_true(count > BLOCKS / 100);
    assert_int_equal(reply_find_final(buf_text(&reply), reply.len, &value, &len), FINAL_NONE);
}

static void words_of_a_string_are_no_answer(void **state)
{
    static const char reply[] = "```repl\nx = '''\n```\nFINAL(no)\n```\n'''\n```\nFINAL(yes)\n";
    const char *value;
    size_t len;
    assert_int_equal(reply_find_final(reply, strlen(reply), &value, &len), FINAL_TEXT);
    assert_int_equal(len, 3);
    assert_memory_equal(value, "yes", 3);
}

/* What looks like code within a block of another language is part of that block. */
static void blocks_within_others_are_passed_over(void **state)
{
    assert_blocks("````text\n```repl\nx\n```\n````\n```repl\ny\n```\n", "[y\n]");
}

static void shorter_fences_stay_in_the_code(void **state)
{
    assert_blocks(
        "````repl\nx = '''\n```repl\nz\n```\n'''\n````\n", "[x = '''\n```repl\nz\n```\n'''\n]");
}

static void longer_fences_close(void **state)
{
    assert_blocks("```repl\nx\n`````\ny\n", "[x\n]");
}

/* A line with a fence and a word behind it closes nothing. */
static void a_fence_with_a_word_does_not_close(void **state)
{
    assert_blocks("```repl\nx = '''\n```python\n'''\n```\n", "[x = '''\n```python\n'''\n]");
}

static void a_fence_in_a_line_of_a_string_does_not_close(void **state)
{
    assert_blocks("```repl\nx = '```'\ny = \"a ``` b\"\n```\n", "[x = '```'\ny = \"a ``` b\"\n]");
}

static void tildes_are_fences_of_their_own(void **state)
{
    assert_blocks("~~~repl\nx\n```\n~~~\n", "[x\n```\n]");
    assert_blocks("```repl\nx\n~~~\n```\n", "[x\n~~~\n]");
    assert_blocks("~~~~ python\nx\n~~~\n~~~~\n", "[x\n~~~\n]");
}

static void fences_may_be_indented_by_three(void **state)
{
    assert_blocks("   ```repl\nx\n  ```\n", "[x\n]");
    assert_blocks("    ```repl\nx\n    ```\n", "");
}

static void lines_may_end_like_windows(void **state)
{
    assert_blocks("```repl\r\nx\r\n```\r\nrest", "[x\r\n]");
}

static void a_missing_end_is_the_end_of_the_text(void **state)
{
    assert_blocks("```repl\nx = 1\ny", "[x = 1\ny]");
    assert_blocks("```repl", "[]");
}

static void short_or_inline_marks_are_no_fences(void **state)
{
    assert_blocks("``repl\nx\n``\n", "");
    assert_blocks("```repl `x` ```\n", "");
    assert_blocks("Use ```repl\nx\n", "");
}

/* ---- FINAL ---- */

static void assert_final(const char *reply, enum reply_final expected, const char *words)
{
    const char *value = "";
    size_t len = 0;
    enum reply_final found = reply_find_final(reply, strlen(reply), &value, &len);
    if (found != expected ||
        (found != FINAL_NONE && (len != strlen(words) || memcmp(value, words, len))))
        fail_msg(
            "of\n%s\ncame %d '%.*s', not %d '%s'", reply, found, (int)len, value, expected, words);
}

static void final_gives_its_words(void **state)
{
    assert_final("FINAL(42)", FINAL_TEXT, "42");
    assert_final("I am sure.\n  FINAL( the answer )\nBye.", FINAL_TEXT, "the answer");
    assert_final("FINAL()", FINAL_TEXT, "");
    assert_final("FINAL(over\ntwo lines)", FINAL_TEXT, "over\ntwo lines");
}

static void final_var_gives_a_name(void **state)
{
    assert_final("FINAL_VAR(result)", FINAL_VARIABLE, "result");
    assert_final("FINAL_VAR( 'result' )", FINAL_VARIABLE, "result");
    assert_final("FINAL_VAR(\"result\")", FINAL_VARIABLE, "result");
}

static void quotes_around_the_words_go(void **state)
{
    assert_final("FINAL(\"x\")", FINAL_TEXT, "x");
    assert_final("FINAL('x')", FINAL_TEXT, "x");
    assert_final("FINAL(\"\"\"x\"\"\")", FINAL_TEXT, "x");
    assert_final("FINAL('''a 'b' c''')", FINAL_TEXT, "a 'b' c");
    assert_final("FINAL('x\")", FINAL_TEXT, "'x\"");
    assert_final("FINAL(')", FINAL_TEXT, "'");
    assert_final("FINAL('')", FINAL_TEXT, "");
}

static void parentheses_are_balanced(void **state)
{
    assert_final("FINAL(f(x) (and (more)))", FINAL_TEXT, "f(x) (and (more))");
    assert_final("FINAL(it's (really) Ann's)", FINAL_TEXT, "it's (really) Ann's");
}

static void the_last_one_counts(void **state)
{
    assert_final("FINAL(1)\nNo, wait.\nFINAL(2)", FINAL_TEXT, "2");
    assert_final("FINAL(1)\nFINAL_VAR(x)", FINAL_VARIABLE, "x");
}

static void only_the_start_of_a_line_counts(void **state)
{
    assert_final("You could say FINAL(1)", FINAL_NONE, "");
    assert_final("FINALLY(1)", FINAL_NONE, "");
    assert_final("FINAL 1", FINAL_NONE, "");
    assert_final("", FINAL_NONE, "");
}

static void what_is_never_closed_is_no_answer(void **state)
{
    assert_final("FINAL(1", FINAL_NONE, "");
    assert_final("FINAL(1\nFINAL(2)", FINAL_TEXT, "2");
}

/* The time grows with the length, not with its square: this took four minutes. */
static void many_that_are_never_closed_take_no_time(void **state)
{
    static const char first[] = "FINAL(1)\n", open[] = "FINAL(\n";
    size_t count = 300000, len = sizeof first - 1;
    char *text = malloc(len + count * (sizeof open - 1) + 1);
    assert_non_null(text);
    memcpy(text, first, sizeof first);
    for (size_t i = 0; i < count; i++, len += sizeof open - 1)
        memcpy(text + len, open, sizeof open);
    assert_final(text, FINAL_TEXT, "1");
    free(text);
}

/* In a block it is code, which was run. */
static void final_in_a_block_is_not_words(void **state)
{
    assert_final("```repl\nFINAL(1)\n```\n", FINAL_NONE, "");
    assert_final("```json\nFINAL(1)\n```\nFINAL(2)", FINAL_TEXT, "2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_in_order),
        cmocka_unit_test(code_is_recognised_by_its_language),
        cmocka_unit_test(blocks_within_others_are_passed_over),
        cmocka_unit_test(shorter_fences_stay_in_the_code),
        cmocka_unit_test(fences_within_strings_stay_in_the_code),
        cmocka_unit_test(strings_that_never_end_hold_no_fence),
        cmocka_unit_test(many_strings_that_never_end_are_read_in_time),
        cmocka_unit_test(words_of_a_string_are_no_answer),
        cmocka_unit_test(longer_fences_close),
        cmocka_unit_test(a_fence_with_a_word_does_not_close),
        cmocka_unit_test(a_fence_in_a_line_of_a_string_does_not_close),
        cmocka_unit_test(tildes_are_fences_of_their_own),
        cmocka_unit_test(fences_may_be_indented_by_three),
        cmocka_unit_test(lines_may_end_like_windows),
        cmocka_unit_test(a_missing_end_is_the_end_of_the_text),
        cmocka_unit_test(short_or_inline_marks_are_no_fences),
        cmocka_unit_test(final_gives_its_words),
        cmocka_unit_test(final_var_gives_a_name),
        cmocka_unit_test(quotes_around_the_words_go),
        cmocka_unit_test(parentheses_are_balanced),
        cmocka_unit_test(the_last_one_counts),
        cmocka_unit_test(only_the_start_of_a_line_counts),
        cmocka_unit_test(what_is_never_closed_is_no_answer),
        cmocka_unit_test(many_that_are_never_closed_take_no_time),
        cmocka_unit_test(final_in_a_block_is_not_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
