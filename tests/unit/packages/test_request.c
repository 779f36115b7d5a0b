/* Which packages are asked for: what is a requirement, and what would read or reach more. */
#include "../test.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/os/tree.h"
#include "packages/request.h"

static char place[64];

static int make_place(void **state)
{
    snprintf(place, sizeof place, "/tmp/droste-request-XXXXXX");
    return mkdtemp(place) ? 0 : -1;
}

static int remove_place(void **state)
{
    return tree_remove(AT_FDCWD, place) ? 0 : -1;
}

#define request_test(f) cmocka_unit_test_setup_teardown(f, make_place, remove_place)

/* The path of a file with this text. */
static const char *written(const char *name, const char *text, size_t len)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", place, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
    return path;
}

static const char *written_text(const char *name, const char *text)
{
    return written(name, text, strlen(text));
}

static void expect_lines(const char *value, const char *lines)
{
    struct package_request r = { 0 };
    assert_ok(package_request_add(&r, value, err));
    assert_string_equal(buf_text(&r.requirements), lines);
    package_request_free(&r);
}

static void expect_file(const char *text, const char *lines)
{
    struct package_request r = { 0 };
    assert_ok(package_request_add_file(&r, written_text("r.txt", text), err));
    assert_string_equal(buf_text(&r.requirements), lines);
    package_request_free(&r);
}

static void expect_refused(const char *text, const char *words)
{
    struct package_request r = { 0 };
    const char *path = written_text("r.txt", text);
    assert_fails_saying(ERROR_ARGUMENT, words, package_request_add_file(&r, path, err));
    package_request_free(&r);
}

static void a_comma_separates_requirements_but_not_versions_extras_or_markers(void **state)
{
    expect_lines("", "");
    expect_lines("numpy", "numpy\n");
    expect_lines("numpy, pandas", "numpy\npandas\n");
    expect_lines("pandas>=2,<3,numpy", "pandas>=2,<3\nnumpy\n");
    expect_lines("pandas>=2, !=2.1", "pandas>=2, !=2.1\n");
    expect_lines("a[b,c]>1,d", "a[b,c]>1\nd\n");
    expect_lines("a; python_version > '3', d", "a; python_version > '3', d\n");
}

static void a_value_that_is_no_requirement_is_refused(void **state)
{
    static const char *const values[] = { "-r file", "--index-url=x", "./a", "/a", "a @ b",
        "git+https://a", "a\n-r b", "a -r b", "a --hash=sha256:0", "_a", "a, -b", " , ", ">=2",
        "dir/a" };
    for (size_t i = 0; i < array_length(values); i++) {
        struct package_request r = { 0 };
        assert_fails(ERROR_ARGUMENT, package_request_add(&r, values[i], err));
        package_request_free(&r);
    }
    expect_lines("a-r_b.c", "a-r_b.c\n");
}

static void comments_and_joined_lines_are_those_of_pip(void **state)
{
    expect_file("# all\n\n a>1 # why\n\tb\r\nc#d\n", "a>1\nb\nc#d\n");
    expect_file("a==1 \\\n  --hash=sha256:00 \\\r\n  --hash=sha256:11", /* no newline at the end */
        "a==1     --hash=sha256:00      --hash=sha256:11\n");
    expect_file("--require-hashes\na", "--require-hashes\na\n");
    expect_file("a\\", "a\\\n");
}

static void an_option_or_path_in_a_file_is_refused(void **state)
{
    expect_refused("-e .", "-e .");
    expect_refused("a\n--extra-index-url x", "--extra-index-url");
    expect_refused("--require-hashes=no", "--require-hashes");
    expect_refused("-r", "-r");
    expect_refused("./a.whl", "./a.whl");
    expect_refused("wheels/a.whl", "wheels/a.whl");
    expect_refused("a\\\n@ file:///etc/passwd", "@ file");
    expect_refused("a\xff", "UTF-8");
}

static void files_include_others_relative_to_themselves(void **state)
{
    struct package_request r = { 0 };
    char path[160];
    snprintf(path, sizeof path, "%s/more", place);
    assert_int_equal(mkdir(path, 0700), 0);
    written_text("more/b.txt", "b\n--constraint=c.txt\n");
    written_text("more/c.txt", "c<2\n");
    assert_ok(package_request_add_file(&r, written_text("a.txt", "-rmore/b.txt\na\n"), err));
    assert_string_equal(buf_text(&r.requirements), "b\na\n");
    assert_string_equal(buf_text(&r.constraints), "c<2\n");
    package_request_free(&r);
}

static void files_that_include_themselves_or_too_many_others_are_refused(void **state)
{
    struct package_request r = { 0 };
    cleanup_buf struct buf many = { 0 };
    expect_refused("-r r.txt\n", "too many");
    written_text("one.txt", "a\n");
    for (int i = 0; i < 40; i++)
        buf_puts(&many, "-r one.txt\n");
    expect_refused(buf_text(&many), "too many");
    assert_fails(ERROR_NOT_FOUND,
        package_request_add_file(&r, written_text("r.txt", "-r missing.txt"), err));
    package_request_free(&r);
}

static void a_zero_byte_is_refused(void **state)
{
    struct package_request r = { 0 };
    const char *path = written("r.txt", "a\0-r b", 7);
    assert_fails_saying(ERROR_ARGUMENT, "zero byte", package_request_add_file(&r, path, err));
    package_request_free(&r);
    expect_file("a", "a\n");
}

static void toml_is_passed_on_as_a_text_of_json(void **state)
{
    struct package_request r = { 0 };
    assert_ok(package_request_add_file(&r, written_text("pyproject.toml", "a=\"\"\n"), err));
    assert_ok(package_request_add_file(&r, written_text("pylock.x.toml", "b"), err));
    assert_string_equal(buf_text(&r.documents),
        "{\"kind\":\"pyproject\",\"name\":\"pyproject.toml\",\"text\":\"a=\\\"\\\"\\n\"},"
        "{\"kind\":\"pylock\",\"name\":\"pylock.x.toml\",\"text\":\"b\"}");
    assert_int_equal(r.requirements.len, 0);
    package_request_free(&r);
}

static void toml_that_is_not_utf8_is_refused(void **state)
{
    struct package_request r = { 0 };
    const char *path = written_text("pylock.toml", "\xff");
    assert_fails_saying(ERROR_ARGUMENT, "UTF-8", package_request_add_file(&r, path, err));
    package_request_free(&r);
}

static void a_lock_of_uv_needs_the_project_beside_it(void **state)
{
    struct package_request r = { 0 };
    char lock[160];
    snprintf(lock, sizeof lock, "%s", written_text("uv.lock", "version = 1"));
    assert_fails(ERROR_NOT_FOUND, package_request_add_file(&r, lock, err));
    written_text("pyproject.toml", "x");
    assert_ok(package_request_add_file(&r, lock, err));
    assert_non_null(strstr(buf_text(&r.documents), "\"uv-project\""));
    assert_non_null(strstr(buf_text(&r.documents), "\"uv-lock\""));
    package_request_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_comma_separates_requirements_but_not_versions_extras_or_markers),
        cmocka_unit_test(a_value_that_is_no_requirement_is_refused),
        request_test(comments_and_joined_lines_are_those_of_pip),
        request_test(an_option_or_path_in_a_file_is_refused),
        request_test(files_include_others_relative_to_themselves),
        request_test(files_that_include_themselves_or_too_many_others_are_refused),
        request_test(a_zero_byte_is_refused),
        request_test(toml_is_passed_on_as_a_text_of_json),
        request_test(toml_that_is_not_utf8_is_refused),
        request_test(a_lock_of_uv_needs_the_project_beside_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
