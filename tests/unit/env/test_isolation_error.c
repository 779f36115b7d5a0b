/* Why there is no isolation: every reason once, within one line, and what to do. */
#include "../test.h"

#include "base/text.h"
#include "env/common/isolation_error.h"

static const char cure[] = " See `droste doctor`; for trusted code: --isolation process";

static void explain(const char *a, const char *b, const char *c, struct error *err)
{
    struct error why[ISOLATION_AUTO_LEVELS] = { 0 };
    error_set(&why[0], ERROR_UNSUPPORTED, "%s", a);
    error_set(&why[1], ERROR_UNSUPPORTED, "%s", b);
    error_set(&why[2], ERROR_UNSUPPORTED, "%s", c);
    assert_int_equal(isolation_error_all(why, err), -(int)ERROR_UNSUPPORTED);
    assert_true(text_is_utf8(err->text, strlen(err->text), NULL));
    size_t len = strlen(err->text);
    assert_true(len > strlen(cure));
    assert_string_equal(err->text + len - strlen(cure), cure);
}

/* Levels that share a reason share a sentence. */
static void a_shared_reason_is_reported_once(void **state)
{
    struct error err = { 0 };
    explain("no namespaces", "no namespaces", "no Landlock", &err);
    assert_non_null(
        strstr(err.text, "here. full, light: no namespaces. landlock: no Landlock. See `droste"));
    explain("x", "y", "x", &err);
    assert_non_null(strstr(err.text, "here. full, landlock: x. light: y. See"));
    explain("x", "x", "x", &err);
    assert_non_null(strstr(err.text, "here. full, light, landlock: x. See"));
}

/* Reasons that do not fit are cut, each with its level; what to do is always there, and no
 * character is cut apart. */
static void long_reasons_are_cut(void **state)
{
    char a[ERROR_TEXT_SIZE], b[ERROR_TEXT_SIZE];
    struct error err = { 0 };
    for (size_t len = 1; len < sizeof a - 1; len++) {
        a[0] = 'a'; /* so that the limit falls on each byte of a character */
        for (size_t i = 1; i < sizeof a; i++)
            a[i] = "\xC3\xA9"[(i - 1) % 2];
        a[len % 2 ? len : len + 1] = '\0';
        memset(b, 'b', len);
        b[len] = '\0';
        explain(a, b, "short", &err);
        assert_non_null(strstr(err.text, " full: a"));
        assert_non_null(strstr(err.text, " light: b"));
        assert_non_null(strstr(err.text, " landlock: short."));
        assert_true(
            strstr(err.text, "\xE2\x80\xA6") || (strstr(err.text, a) && strstr(err.text, b)));
    }
}

/* For a level by name, the reason comes first; the cure only where it fits whole. */
static void one_level_has_its_reason(void **state)
{
    char text[ERROR_TEXT_SIZE];
    for (size_t len = 1; len < sizeof text; len++) {
        struct error err = { 0 };
        memset(text, 'r', len);
        text[len < sizeof text - 1 ? len : sizeof text - 1] = '\0';
        error_set(&err, ERROR_UNSUPPORTED, "%s", text);
        assert_int_equal(isolation_error(ISOLATION_LIGHT, &err), -(int)ERROR_UNSUPPORTED);
        assert_non_null(strstr(err.text, "isolation 'light' is not available here: r"));
        const char *doctor = strstr(err.text, ". `droste doctor`");
        assert_true(!doctor || strstr(doctor, "--isolation process"));
        assert_true(doctor || len > 100);
    }
    assert_int_equal(isolation_error(ISOLATION_FULL, NULL), -(int)ERROR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shared_reason_is_reported_once),
        cmocka_unit_test(long_reasons_are_cut),
        cmocka_unit_test(one_level_has_its_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
