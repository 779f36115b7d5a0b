/* Patterns: what they match, character by character, what is refused, and that time is bounded. */
#include "../test.h"

#include "base/pattern.h"

static int search(const char *pattern, const char *text, uint64_t work)
{
    struct pattern *p = NULL;
    assert_ok(pattern_compile(pattern, strlen(pattern), &p, err));
    int found = pattern_search(p, text, strlen(text), &work);
    pattern_free(p);
    return found;
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
        { "(?=a)", "looking ahead" },
        { "(?!a)", "looking ahead" },
        { "(?<=a)", "looking ahead" },
        { "(?<n>a)", "names" },
        { "(?i)a", "flags" },
        { "(a)\\1", "backreferences" },
        { "\\p{L}", "\\p" },
        { "\\Aa", "escape" },
        { "\\k<n>", "escape" },
        { "(a", "without )" },
        { "a)", "without (" },
        { "[a", "without ]" },
        { "a]", "\\]" },
        { "*a", "quantifier" },
        { "a**", "quantifier" },
        { "^*", "assertion" },
        { "a{2,1}", "{n,m}" },
        { "a{,1}", "{n,m}" },
        { "a{1", "{n,m}" },
        { "[b-a]", "range" },
        { "a\\", "backslash" },
        { "\\xg0", "\\x" },
        { "\\u{110000}", "\\u{}" },
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

/* The pattern on which backtracking takes 2^n steps takes n times its size. */
static void a_bad_pattern_takes_no_longer(void **state)
{
    char text[2001];
    memset(text, 'a', 2000);
    text[2000] = '\0';
    assert_int_equal(search("^(a+)+$", text, 100000), 1);
    text[1999] = 'b';
    assert_int_equal(search("^(a+)+$", text, 100000), 0);
}

static void too_much_work_is_given_up(void **state)
{
    assert_int_equal(search("(a|b){500}c", "abababababababababababab", 100), -1);
    assert_int_equal(search("(a|b){500}c", "abababababababababababab", 1000000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_what_they_mean),
        cmocka_unit_test(what_is_not_supported_is_refused),
        cmocka_unit_test(a_bad_pattern_takes_no_longer),
        cmocka_unit_test(too_much_work_is_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
