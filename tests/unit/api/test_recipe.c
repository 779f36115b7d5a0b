/* Recipes of templates: which texts are refused, and how they are kept on the disk. */
#include "../test.h"

#include <ftw.h>
#include <unistd.h>

#include "api/recipe.h"
#include "base/cleanup.h"

/* ---- texts ---- */

static void refused(const char *text, const char *words)
{
    struct recipe r = { 0 };
    assert_fails_saying(ERROR_ARGUMENT, words, recipe_parse("t", text, strlen(text), &r, err));
    assert_null(r.json);
}

static void a_text_that_is_no_recipe_is_refused(void **state)
{
    refused("[]", "expected a JSON object");
    refused("{}", "version 1");
    refused("{\"version\":2}", "version 1");
    refused("{\"version\":1,\"cell\":[]}", "its members are");
    refused("{\"version\":1,\"cells\":{}}", "its members are");
    refused("{\"version\":1,\"cells\":[1]}", "a list of at most 1000 texts");
    refused("{\"version\":1,\"cells\":null}", "its members are");
}

/* One with an absolute path is not: a_recipe_is_read_back. */
static void a_context_depends_on_no_directory(void **state)
{
    refused("{\"version\":1,\"contexts\":[\"a.txt\"]}", "absolute PATH");
    refused("{\"version\":1,\"contexts\":[\"name=a.txt\"]}", "absolute PATH");
    refused("{\"version\":1,\"contexts\":[\"\"]}", "absolute PATH");
}

/* A template shapes a sandbox: it has no models, keys or budgets. */
static void a_setting_that_is_no_sandboxs_is_refused(void **state)
{
    refused("{\"version\":1,\"settings\":{\"model\":\"m\"}}", "templates have no setting 'model'");
    refused("{\"version\":1,\"settings\":{\"api-key\":\"k\"}}", "templates have no setting");
    refused("{\"version\":1,\"settings\":{\"no-such\":\"k\"}}", "templates have no setting");
    refused("{\"version\":1,\"settings\":{\"memory\":\"much\"}}", "the template 't'");
}

static void more_cells_than_fit_are_refused(void **state)
{
    cleanup_buf struct buf text = { 0 };
    struct recipe r = { 0 };
    buf_puts(&text, "{\"version\":1,\"cells\":[\"\"");
    for (int i = 1; i < 1000; i++)
        buf_puts(&text, ",\"\"");
    size_t len = text.len;
    buf_puts(&text, "]}");
    assert_ok(recipe_parse("t", text.data, text.len, &r, err));
    recipe_free(&r);
    text.len = len;
    buf_puts(&text, ",\"\"]}");
    refused(buf_text(&text), "at most 1000");
}

/* ---- settings ---- */

static void build(struct buf *out, const char *settings, const char *context, const char *cell)
{
    struct list contexts = { 0 };
    const char *cells[] = { cell, NULL };
    if (context)
        assert_ok(list_add(&contexts, context, err));
    assert_ok(recipe_build(settings, &contexts, cells, out, err));
    list_clear(&contexts);
}

static void a_recipe_is_read_back(void **state)
{
    cleanup_buf struct buf text = { 0 };
    struct recipe r = { 0 };
    build(&text, "{\"memory\":\"64M\"}", "notes=/tmp/a=b", "x = 1");
    assert_ok(recipe_parse("t", text.data, text.len, &r, err));
    assert_string_equal(
        json_object_get_string(json_object_array_get_idx(r.contexts, 0)), "notes=/tmp/a=b");
    assert_string_equal(json_object_get_string(json_object_array_get_idx(r.cells, 0)), "x = 1");
    assert_string_equal(json_get_string(r.settings, "memory", ""), "64M");
    recipe_free(&r);
}

static void relative_contexts_become_absolute(void **state)
{
    cleanup_buf struct buf text = { 0 };
    cleanup_free char *directory = getcwd(NULL, 0), *expected = NULL;
    struct recipe r = { 0 };
    build(&text, "{}", "a=b.txt", NULL);
    assert_true(asprintf(&expected, "a=%s/b.txt", directory) > 0);
    assert_ok(recipe_parse("t", text.data, text.len, &r, err));
    assert_string_equal(json_object_get_string(json_object_array_get_idx(r.contexts, 0)), expected);
    recipe_free(&r);
}

static void standard_input_is_no_context(void **state)
{
    char text_of_dash[] = "name=-", *dash = text_of_dash;
    const struct list contexts = { &dash, 1 };
    cleanup_buf struct buf text = { 0 };
    assert_fails(ERROR_ARGUMENT, recipe_build("{}", &contexts, NULL, &text, err));
}

static void parse(struct recipe *r, const char *text)
{
    assert_ok(recipe_parse("t", text, strlen(text), r, err));
}

/* What a session sets comes first; what the recipe's execution has used up is not applied. */
static void a_session_takes_what_it_does_not_set(void **state)
{
    struct recipe r = { 0 };
    struct settings s = { 0 };
    parse(&r, "{\"version\":1,\"settings\":{\"memory\":\"64M\",\"processes\":\"7\","
              "\"setup-code\":\"x = 1\"}}");
    assert_ok(settings_init(&s, err));
    assert_ok(settings_set(&s, "memory", "128M", "--memory", err));
    assert_ok(recipe_apply(&r, &s, err));
    double value = 0;
    assert_true(settings_number(&s, "processes", &value) && value == 7);
    assert_false(settings_is_set(&s, "setup-code"));
    assert_true(settings_number(&s, "memory", &value) && value == 128 << 20);
    settings_free(&s);
    recipe_free(&r);
}

/* Its cells run without models, keys and limits of the session; and with what is used up. */
static void the_execution_has_no_models_and_the_setup(void **state)
{
    struct recipe r = { 0 };
    struct settings s = { 0 };
    parse(&r, "{\"version\":1,\"settings\":{\"helpers\":\"no\",\"context-type\":\"text\"}}");
    assert_ok(settings_init(&s, err));
    assert_ok(settings_set(&s, "model", "replay:x", "--model", err));
    assert_ok(settings_set(&s, "memory", "128M", "--memory", err));
    assert_ok(recipe_prepare(&r, &s, err));
    assert_false(settings_is_set(&s, "model"));
    assert_true(settings_is_set(&s, "memory"));
    assert_string_equal(settings_text(&s, "context-type"), "text");
    assert_false(settings_is_set(&s, "helpers"));
    settings_free(&s);
    recipe_free(&r);
}

/* ---- on disk ---- */

static char home[64];

static int home_make(void **state)
{
    snprintf(home, sizeof home, "/tmp/droste-recipe-XXXXXX");
    return mkdtemp(home) ? setenv("XDG_DATA_HOME", home, 1) : -1;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

static int home_remove(void **state)
{
    return nftw(home, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void write_recipe(const char *name, const char *cell, bool replace)
{
    cleanup_buf struct buf text = { 0 };
    build(&text, "{}", NULL, cell);
    assert_ok(recipe_write(name, &text, replace, err));
}

static void cell_is(const char *name, const char *expected)
{
    struct recipe r = { 0 };
    assert_ok(recipe_read(name, &r, NULL, err));
    assert_string_equal(json_object_get_string(json_object_array_get_idx(r.cells, 0)), expected);
    recipe_free(&r);
}

static void a_recipe_is_replaced_only_if_asked(void **state)
{
    cleanup_buf struct buf text = { 0 };
    write_recipe("t", "first", false);
    build(&text, "{}", NULL, "second");
    assert_fails(ERROR_ARGUMENT, recipe_check_free("t", false, err));
    assert_fails(ERROR_ARGUMENT, recipe_write("t", &text, false, err));
    cell_is("t", "first");
    assert_ok(recipe_check_free("t", true, err));
    assert_ok(recipe_write("t", &text, true, err));
    cell_is("t", "second");
}

static void recipes_are_listed_in_order_and_removed(void **state)
{
    struct list names = { 0 };
    struct recipe r = { 0 };
    assert_ok(recipe_names(&names, err)); /* there is no directory yet */
    assert_int_equal(names.count, 0);
    write_recipe("b", "x", false);
    write_recipe("a", "x", false);
    assert_ok(recipe_names(&names, err));
    assert_int_equal(names.count, 2); /* nothing is left of writing them */
    assert_string_equal(names.items[0], "a");
    assert_string_equal(names.items[1], "b");
    list_clear(&names);
    assert_ok(recipe_remove("a", err));
    assert_fails(ERROR_NOT_FOUND, recipe_remove("a", err));
    assert_fails(ERROR_NOT_FOUND, recipe_read("a", &r, NULL, err));
}

/* A name is one of a file in its directory, and nothing else. */
static void a_name_that_is_a_path_is_refused(void **state)
{
    struct recipe r = { 0 };
    assert_fails(ERROR_ARGUMENT, recipe_read("../t", &r, NULL, err));
    assert_fails(ERROR_ARGUMENT, recipe_remove("a/b", err));
    assert_fails(ERROR_ARGUMENT, recipe_check_free("", true, err));
}

/* Another program may have written the file: links are not followed, and its text is checked. */
static void a_damaged_file_is_refused(void **state)
{
    cleanup_free char *path = NULL, *other = NULL;
    struct recipe r = { 0 };
    write_recipe("t", "x", false);
    struct list names = { 0 };
    assert_ok(recipe_names(&names, err));
    list_clear(&names);
    assert_true(asprintf(&path, "%s/droste/templates/t.json", home) > 0);
    assert_true(asprintf(&other, "%s/droste/templates/link.json", home) > 0);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(symlink(path, other), 0);
    struct error why = { 0 };
    assert_true(recipe_read("link", &r, NULL, &why) < 0);
    assert_int_equal(truncate(path, 10), 0);
    assert_fails(ERROR_ARGUMENT, recipe_read("t", &r, NULL, err));
    assert_null(r.json);
}

int main(void)
{
#define DISK(name) cmocka_unit_test_setup_teardown(name, home_make, home_remove)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_that_is_no_recipe_is_refused),
        cmocka_unit_test(a_context_depends_on_no_directory),
        cmocka_unit_test(a_setting_that_is_no_sandboxs_is_refused),
        cmocka_unit_test(more_cells_than_fit_are_refused),
        cmocka_unit_test(a_recipe_is_read_back),
        cmocka_unit_test(relative_contexts_become_absolute),
        cmocka_unit_test(standard_input_is_no_context),
        cmocka_unit_test(a_session_takes_what_it_does_not_set),
        cmocka_unit_test(the_execution_has_no_models_and_the_setup),
        DISK(a_recipe_is_replaced_only_if_asked),
        DISK(recipes_are_listed_in_order_and_removed),
        DISK(a_name_that_is_a_path_is_refused),
        DISK(a_damaged_file_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
