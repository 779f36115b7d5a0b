/* What `droste doctor` finds, through the public interface. */
#include "../test.h"

#include <stdbool.h>

#include "droste.h"

static droste *d;
static droste_error error;

#define API_ERROR error
#include "assert_fine.h"

struct found {
    const char *name;
    unsigned count;
    char state[16], text[512];
};

static void note(void *arg, const droste_finding *finding)
{
    struct found *found = arg;
    assert_true(strlen(finding->text) == finding->len && finding->len > 0);
    if (strcmp(finding->name, found->name) != 0)
        return;
    found->count++;
    snprintf(found->state, sizeof found->state, "%s", finding->state);
    snprintf(found->text, sizeof found->text, "%.500s", finding->text);
}

static struct found find(const char *name)
{
    struct found found = { .name = name };
    droste_diagnose(d, note, &found);
    assert_int_equal(found.count, 1);
    return found;
}

static int setup(void **state)
{
    unsetenv("OPENAI_API_KEY");
    assert_fine(droste_new(&d, &error));
    assert_fine(droste_set(d, "database", "none", &error));
    return 0;
}

static int teardown(void **state)
{
    droste_free(d);
    return 0;
}

static void a_level_that_works_is_named_with_its_interpreter(void **state)
{
    struct found found = find("process");
    assert_string_equal(found.state, "ok");
    found = find("kernel");
    assert_string_equal(found.state, "ok");
    assert_non_null(strstr(found.text, "Linux"));
}

static void a_missing_interpreter_is_found(void **state)
{
    assert_fine(droste_set(d, "python", "/nowhere/python3", &error));
    struct found found = find("process");
    assert_string_equal(found.state, "missing");
    assert_non_null(strstr(found.text, "/nowhere/python3"));
    found.name = "python";
    assert_false(droste_diagnose(d, note, &found));
}

/* The key itself is in no finding. */
static void a_key_is_found_and_not_printed(void **state)
{
    assert_fine(droste_set(d, "model", "openai/gpt-5-mini", &error));
    struct found found = find("model");
    assert_string_not_equal(found.state, "ok");
    assert_non_null(strstr(found.text, "OPENAI_API_KEY"));
    assert_fine(droste_set(d, "api-key", "sk-canary-7c1f", &error));
    found = find("model");
    assert_string_equal(found.state, "ok");
    assert_null(strstr(found.text, "canary"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_level_that_works_is_named_with_its_interpreter, setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_interpreter_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(a_key_is_found_and_not_printed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
