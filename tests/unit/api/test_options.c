/* From settings to options of a session: limits of rules, imports, the setup code. */
#include "../test.h"

#include <unistd.h>

#include "api/api.h"
#include "api/options.h"
#include "base/cleanup.h"
#include "base/os/file.h"

static droste *d;
static struct session_parts parts;

static int setup(void **state)
{
    droste_error why;
    assert_int_equal(droste_new(&d, &why), 0);
    return 0;
}

static int teardown(void **state)
{
    session_parts_free(&parts);
    droste_free(d);
    return 0;
}

static void set(const char *name, const char *value)
{
    droste_error why;
    if (droste_set(d, name, value, &why) < 0)
        fail_msg("%s", why.text);
}

static struct session_options options(void)
{
    struct session_options o;
    session_parts_free(&parts);
    assert_ok(api_session_options(d, &d->settings, &parts, &o, err));
    return o;
}

static void assert_refused(const char *words)
{
    struct session_options o;
    struct error why = { 0 };
    session_parts_free(&parts);
    assert_int_equal(api_session_options(d, &d->settings, &parts, &o, &why), -(int)ERROR_ARGUMENT);
    if (!strstr(why.text, words))
        fail_msg("the error does not say '%s': %s", words, why.text);
}

static void without_rules_nothing_is_limited(void **state)
{
    struct session_options o = options();
    assert_false(o.rules);
    assert_null(o.setup);
    assert_true(o.execute_timeout == 0 && o.execute_timeout_cap == 0 &&
                api_broker_timeout(&d->settings) == 0);
}

static void rules_bring_limits_of_their_own(void **state)
{
    set("rules", "yes");
    struct session_options o = options();
    assert_true(o.rules);
    assert_true(o.execute_timeout == 30 && o.execute_timeout_cap == 300);
    assert_true(api_broker_timeout(&d->settings) == 30);
}

static void explicit_settings_win_over_the_rules(void **state)
{
    set("rules", "yes");
    set("execute-timeout", "7");
    set("execute-timeout-cap", "8");
    set("broker-timeout", "0");
    struct session_options o = options();
    assert_true(o.execute_timeout == 7 && o.execute_timeout_cap == 8);
    assert_true(api_broker_timeout(&d->settings) == 0);
    set("execute-timeout", "0");
    set("execute-timeout-cap", "0");
    o = options();
    assert_true(o.execute_timeout == 0 && o.execute_timeout_cap == 0);
}

static void a_default_bows_to_the_cap(void **state)
{
    set("execute-timeout-cap", "20");
    assert_true(options().execute_timeout == 20);
    set("rules", "yes");
    assert_true(options().execute_timeout == 20);
    set("execute-timeout-cap", "40");
    assert_true(options().execute_timeout == 30);
}

static void more_than_the_cap_is_refused_with_both_names(void **state)
{
    set("execute-timeout-cap", "20");
    set("execute-timeout", "21");
    assert_refused("execute-timeout is 21 s, but execute-timeout-cap allows at most 20 s");
    set("execute-timeout", "0");
    assert_refused("execute-timeout-cap");
    set("execute-timeout", "20");
    assert_true(options().execute_timeout == 20);
}

static void allowed_directories_are_shown_and_what_is_preloaded_may_be_imported(void **state)
{
    set("read", "/r");
    set("allow-import", "numpy");
    set("allow-import", "/custom/modules");
    set("preload", "heapq");
    struct session_options o = options();
    assert_int_equal(o.spec.read_path_count, 1);
    set("rules", "yes");
    o = options();
    assert_int_equal(o.spec.read_path_count, 2);
    assert_string_equal(o.spec.read_paths[0], "/r");
    assert_string_equal(o.spec.read_paths[1], "/custom/modules");
    assert_int_equal(o.allow_import_count, 3);
    assert_string_equal(o.allow_imports[0], "numpy");
    assert_string_equal(o.allow_imports[2], "heapq");
}

/* A run under way keeps what it was started with, whatever is set meanwhile. */
static void what_was_made_of_settings_does_not_change_with_them(void **state)
{
    struct settings copy;
    set("rules", "yes");
    set("allow-import", "/m");
    set("python", "/p");
    assert_ok(settings_copy(&copy, &d->settings, err));
    struct session_options o;
    assert_ok(api_session_options(d, &copy, &parts, &o, err));
    set("allow-import", "");
    set("python", "/q");
    assert_int_equal(o.allow_import_count, 1);
    assert_string_equal(o.allow_imports[0], "/m");
    assert_string_equal(o.spec.python, "/p");
    assert_true(settings_is_set(&copy, "python"));
    session_parts_free(&parts);
    settings_free(&copy);
}

static void a_relative_directory_is_refused(void **state)
{
    set("rules", "yes");
    set("allow-import", "own/modules");
    assert_refused("'own/modules' is neither a module's name nor an absolute path");
    set("allow-import", "");
    set("allow-import", "own.modules");
    assert_int_equal(options().allow_import_count, 1);
}

static void setup_code_is_a_text_or_a_file(void **state)
{
    char path[] = "/tmp/droste-setup-XXXXXX", at[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    set("setup-code", "x = 1");
    assert_string_equal(options().setup, "x = 1");
    snprintf(at, sizeof at, "@%s", path);
    set("setup-code", at);
    assert_int_equal(file_write_all(fd, "y = 2\n", 6), 0);
    assert_string_equal(options().setup, "y = 2\n");
    assert_int_equal(file_write_all(fd, "\0", 1), 0);
    assert_refused("contains a zero byte");
    close(fd);
    unlink(path);
    struct session_options o;
    session_parts_free(&parts);
    assert_fails(ERROR_NOT_FOUND, api_session_options(d, &d->settings, &parts, &o, err));
    set("setup-code", "");
    assert_null(options().setup);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* In the words of `docker run --gpus`; without the setting there are none. */
static void devices_stand_for_the_gpus_of_a_container(void **state)
{
    set("env", "docker");
    assert_null(options().spec.container->gpus);
    set("device", "nvidia:2");
    set("device", "nvidia:0,1");
    assert_string_equal(options().spec.container->gpus, "device=0,1,2");
    set("device", "nvidia");
    assert_string_equal(options().spec.container->gpus, "all");
    set("device", "disk");
    assert_refused("device 'disk'");
}

/* A label is NAME=VALUE in UTF-8, because daemons and providers receive it as JSON. */
static void a_label_is_a_pair_in_utf8(void **state)
{
    set("env", "docker");
    set("label", "team=\xC3\xA9");
    (void)options();
    set("label", "x=\xC3");
    assert_refused("label 2 is not UTF-8");
    set("label", "");
    set("label", "team");
    assert_refused("label 'team': expected NAME=VALUE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(without_rules_nothing_is_limited),
        T(devices_stand_for_the_gpus_of_a_container),
        T(a_label_is_a_pair_in_utf8),
        T(rules_bring_limits_of_their_own),
        T(explicit_settings_win_over_the_rules),
        T(a_default_bows_to_the_cap),
        T(more_than_the_cap_is_refused_with_both_names),
        T(allowed_directories_are_shown_and_what_is_preloaded_may_be_imported),
        T(what_was_made_of_settings_does_not_change_with_them),
        T(a_relative_directory_is_refused),
        T(setup_code_is_a_text_or_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
