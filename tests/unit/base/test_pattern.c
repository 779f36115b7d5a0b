/* Patterns: matches, refused syntax, and bounded time. */
#include "../test.h"

#include "base/pattern.h"

static int search_saying(
    const char *pattern, const char *text, size_t len, uint64_t work, struct error *why)
{
    struct pattern *p = NULL;
    assert_ok(pattern_compile(pattern, strlen(pattern), &p, err));
    int found = pattern_search(p, text, len, &work, why);
    pattern_free(p);
    return found;
}

static int search(const char *pattern, const char *text, uint64_t work)
{
    return search_saying(pattern, text, strlen(text), work, NULL);
}

/* Each pattern with a text that it matches and one that it does not. */
static void patterns_match_what_they_mean(void **state)
{
    static const struct {
        const char *pattern, *matches, *not ;
    } cases[] = {
        { "b", "abc", "ac" },
        { "^b", "bc", "abc" },
        { "b$", "ab", "b\n" },
        { "^$", "", "a" },
        { "^a|b$", "ax", "xax" },
        { "^(a|b)c$", "bc", "abc" },
        { "^(?:ab)*c$", "ababc", "abac" },
        { "^a+b?$", "aa", "b" },
        { "^a*?b+?$", "aabb", "aa" },
        { "^a{3}$", "aaa", "aaaa" },
        { "^a{2,}$", "aaaaa", "a" },
        { "^a{1,2}$", "aa", "aaa" },
        { "^(a{2}){2}$", "aaaa", "aaa" },
        { "^(a*)*$", "aaa", "aab" },
        { "^(|a)b$", "b", "aab" },
        { "^.$", "\xC3\xA9", "\xC3\xA9\xC3\xA9" },
        { "^.$", "\xF0\x9F\x99\x82", "\n" },
        { "^[\xC3\xA0-\xC3\xBF]$", "\xC3\xA9", "e" },
        { "^[^a-c]$", "d", "b" },
        { "^[^]$", "\n", "" },
        { "[]", "", NULL },
        { "^\\d{4}-\\d\\d$", "2026-11", "2026-1x" },
        { "^\\D+$", "ab", "a1" },
        { "^\\w+$", "a_1", "a-1" },
        { "^\\W$", "-", "_" },
        { "^\\s\\S$", "\xC2\xA0x", "xx" },
        { "^[\\d.]+$", "1.5", "1,5" },
        { "^[^\\d\\s]+$", "ab", "a b" },
        { "^[\\D]$", "x", "7" },
        { "^[a\\-z]$", "-", "b" },
        { "^[a-]$", "-", "b" },
        { "^[\\]\\\\]$", "]", "[" },
        { "^\\.\\/\\-\\$\\{$", "./-${", "x/-${" },
        { "^\\x41\\u0042\\u{43}$", "ABC", "abc" },
        { "^\\ud83d\\ude42$", "\xF0\x9F\x99\x82", "x" },
        { "^\\t\\n$", "\t\n", "tn" },
        { "\\bcat\\b", "a cat!", "concat" },
        { "\\Bcat", "concat", "cat" },
        { "^[\\b]$", "\b", "b" },
        { "^a(?=b)", "ab", "ac" },
        { "^a(?!b)", "ac", "ab" },
        { "(?<=a)b", "ab", "cb" },
        { "(?<!a)b", "cb", "ab" },
        { "^(.)\\1$", "aa", "ab" },
        { "^(?<n>.)\\k<n>$", "aa", "ab" },
        { "^(?:\\1b|(a))$", "b", "ab" }, /* a group that has not matched is empty */
        { "^\\p{Lu}\\P{Lu}$", "\xC3\x89\xC3\xA9", "ee" },
        { "^\\d$", "7", "\xD9\xA3" }, /* digits are ASCII, and so are words */
        { "^\\w$", "e", "\xC3\xA9" },
        { "^.$", "\v", "\xE2\x80\xA8" },
        { "^[[:alpha:]$", "p", "x" }, /* no class of a name */
        { "^\\v$", "\v", "\n" },
        { "^\\cJ$", "\n", "J" },
        { "^[^\\S\\n]$", " ", "\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].not &&search(cases[i].pattern, cases[i].matches, 1000000) != 1)
            fail_msg("'%s' does not match '%s'", cases[i].pattern, cases[i].matches);
        if (search(cases[i].pattern, cases[i].not ? cases[i].not : "x", 1000000) != 0)
            fail_msg("'%s' matches '%s'", cases[i].pattern, cases[i].not );
    }
}

/* What would mean something else here than in ECMA-262, or nothing, is refused with its name. */
static void what_is_not_supported_is_refused(void **state)
{
    static const struct {
        const char *pattern, *why;
    } cases[] = {
        { "(?i)a", "flags" },
        { "(?P<n>a)", "flags" },
        { "(?>a)", "flags" },
        { "(?R)", "flags" },
        { "(*UCP)a", "flags" },
        { "\\Aa", "no escape \\A" },
        { "\\Qa", "no escape \\Q" },
        { "\\K", "no escape \\K" },
        { "[\\1]", "no escape \\1" },
        { "\\01", "no escape \\0" },
        { "\\k<n>", "non-existent" },
        { "\\p{Nothing}", "unknown property" },
        { "(a", "parenthesis" },
        { "a)", "parenthesis" },
        { "[a", "terminating ]" },
        { "a]", "\\]" },
        { "*a", "quantifier" },
        { "a**", "quantifier" },
        { "a++", "quantifier" },
        { "a{2}+", "quantifier" },
        { "a{2,1}", "{} quantifier" },
        { "a{,1}", "{n,m}" },
        { "a{1", "{n,m}" },
        { "[b-a]", "range" },
        { "[[:alpha:]]", "\\]" },
        { "a\\", "no escape \\" },
        { "\\xg0", "no escape \\x" },
        { "\\u{110000}", "too large" },
        { "\\ud83d", "code point" },
        { "((a{1000}){1000}){1000}", "too large" },
        { "((){1000}){1000}", "too large" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pattern *p = NULL;
        struct error err = { 0 };
        int rc = pattern_compile(cases[i].pattern, strlen(cases[i].pattern), &p, &err);
        pattern_free(p);
        if (rc != -(int)ERROR_ARGUMENT || !strstr(err.text, cases[i].why))
            fail_msg("'%s' gave %d: %s", cases[i].pattern, rc, err.text);
    }
}

/* A zero byte is a character of the text like others; in a pattern it is written \\0. */
static void texts_may_have_zero_bytes(void **state)
{
    struct pattern *p = NULL;
    struct error err = { 0 };
    assert_int_equal(search_saying("^a\\0b$", "a\0b", 3, 1000, NULL), 1);
    assert_int_equal(search_saying("^a$", "a\0b", 3, 1000, NULL), 0);
    assert_int_equal(pattern_compile("a\0b", 3, &p, &err), -(int)ERROR_ARGUMENT);
    assert_null(p);
}

/* Whether a text matches whose search was stopped is not known: an error says that, and names the
 * limit. A text that the same pattern matches at once is not an error. */
static void a_search_that_is_stopped_is_an_error(void **state)
{
    char text[2001];
    struct error why = { 0 };
    memset(text, 'a', 2000);
    text[2000] = '\0';
    assert_int_equal(search("^(a+)+$", text, 100000), 1);
    text[1999] = 'b';
    assert_int_equal(search_saying("^(a+)+$", text, 2000, 100000, &why), -(int)ERROR_ARGUMENT);
    assert_non_null(strstr(why.text, "limit of steps"));
    assert_int_equal(search("(a|b){5}[cd]", "abababababababababababab", 100), -(int)ERROR_ARGUMENT);
    assert_int_equal(search("(a|b){5}[cd]", "abababababababababababab", 100000), 0);
}

/* PCRE2 counts anew at each place where a match could begin; the work is counted over all of them,
 * and the same pattern with an anchor, or with a match, is fast enough. */
static void steps_are_counted_over_all_beginnings(void **state)
{
    enum { LONG = 1 << 20 };
    char *text = malloc(LONG);
    struct error why = { 0 };
    assert_non_null(text);
    memset(text, 'a', LONG);
    assert_int_equal(search_saying("a+[bc]", text, LONG, 1000000, &why), -(int)ERROR_ARGUMENT);
    assert_non_null(strstr(why.text, "limit of steps"));
    assert_int_equal(search_saying("^a+[bc]", text, LONG, 1000000, NULL), 0);
    text[LONG - 1] = 'c';
    assert_int_equal(search_saying("a+[bc]", text, LONG, 1000000, NULL), 1);
    assert_int_equal(
        search_saying("^(a*)\\1[bc]$", text, LONG, 1000000, &why), -(int)ERROR_ARGUMENT);
    free(text);
}

/* Each repetition of a group is kept for going back to it. */
static void memory_is_limited(void **state)
{
    enum { LONG = 900000 };
    char *text = malloc(LONG);
    struct error why = { 0 };
    assert_non_null(text);
    for (size_t i = 0; i < LONG; i++)
        text[i] = "ab"[i % 2];
    assert_int_equal(
        search_saying("^(ab|c)*$", text, LONG, UINT64_MAX, &why), -(int)ERROR_ARGUMENT);
    assert_non_null(strstr(why.text, "limit of memory"));
    assert_int_equal(search_saying("^(ab|c)*$", text, 10000, UINT64_MAX, NULL), 1);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_what_they_mean),
        cmocka_unit_test(what_is_not_supported_is_refused),
        cmocka_unit_test(texts_may_have_zero_bytes),
        cmocka_unit_test(a_search_that_is_stopped_is_an_error),
        cmocka_unit_test(steps_are_counted_over_all_beginnings),
        cmocka_unit_test(memory_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
