/* The built-in environments by name, and what they declare: layouts, and names of volumes. */
#include "../test.h"

#include <stdlib.h>

#include "env/common/environment.h"

static void each_environment_is_found_by_its_name(void **state)
{
    size_t count = 0;
    for (const struct environment_kind *kind; (kind = environment_at(count)); count++)
        assert_ptr_equal(environment_named(kind->name), kind);
    assert_true(count >= 6);
    assert_string_equal(environment_at(0)->name, "local");
    assert_null(environment_named("other"));
}

static void without_a_name_the_layout_is_the_default(void **state)
{
    const struct layout *layout = NULL;
    assert_ok(environment_layout(NULL, &layout, err));
    assert_ptr_equal(layout, &default_layout);
    assert_ok(environment_layout("droste", &layout, err));
    assert_ptr_equal(layout, &default_layout);
    assert_null(layout->directories);
}

static void a_provider_declares_a_layout(void **state)
{
    const struct layout *layout = NULL;
    assert_ok(environment_layout("daytona", &layout, err));
    assert_ptr_equal(layout, daytona_environment.layout);
    assert_string_equal(layout->volume[1], "/home/daytona/memory");
    assert_string_equal(layout->directories[0], "artifacts");
}

static void another_layout_is_refused_with_the_names(void **state)
{
    const struct layout *layout = NULL;
    struct error err = { 0 };
    assert_int_equal(environment_layout("other", &layout, &err), -ERROR_ARGUMENT);
    assert_string_equal(err.text, "layout 'other' is not one of droste, daytona");
}

/* A volume's path has the same meaning under each name that a guest may have for it. */
static void a_volume_path_may_have_each_layouts_name(void **state)
{
    assert_string_equal(environment_volume_path("/data/a/b"), "a/b");
    assert_string_equal(environment_volume_path("/data"), "");
    assert_string_equal(environment_volume_path("/home/daytona/memory/a"), "a");
    assert_string_equal(environment_volume_path("/home/daytona/memory//a"), "a");
    assert_string_equal(environment_volume_path("a"), "a");
    assert_string_equal(environment_volume_path("/database"), "/database");
    assert_string_equal(environment_volume_path("/home/daytona/memoryx"), "/home/daytona/memoryx");
}

/* What an open environment reads of the process decides whether it can be used again. */
static void a_changed_variable_changes_the_circumstances(void **state)
{
    char before[ENVIRONMENT_CIRCUMSTANCES_SIZE], after[ENVIRONMENT_CIRCUMSTANCES_SIZE];
    assert_ok(environment_circumstances("e2b", before, err));
    assert_ok(environment_circumstances("e2b", after, err));
    assert_string_equal(before, after);
    setenv("E2B_DOMAIN", "example.org", 1);
    assert_ok(environment_circumstances("e2b", after, err));
    unsetenv("E2B_DOMAIN");
    assert_string_not_equal(before, after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_environment_is_found_by_its_name),
        cmocka_unit_test(without_a_name_the_layout_is_the_default),
        cmocka_unit_test(a_provider_declares_a_layout),
        cmocka_unit_test(another_layout_is_refused_with_the_names),
        cmocka_unit_test(a_volume_path_may_have_each_layouts_name),
        cmocka_unit_test(a_changed_variable_changes_the_circumstances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
