/* Features of environments: every setting needs one feature, and missing features are refused. */
#include "../test.h"

#include "base/cleanup.h"
#include "env/common/features.h"

static uint64_t bit(enum feature feature)
{
    return (uint64_t)1 << feature;
}

/* Each feature has a name of its own, and each of its settings finds it again. */
static void every_setting_finds_its_feature(void **state)
{
    unsigned settings_seen = 0;
    for (enum feature f = 0; f < FEATURE_COUNT; f++) {
        char settings[200], *rest = NULL;
        assert_non_null(feature_name(f));
        for (enum feature other = 0; other < f; other++)
            assert_string_not_equal(feature_name(f), feature_name(other));
        assert_true(strlen(feature_settings(f)) < sizeof settings);
        strcpy(settings, feature_settings(f));
        for (char *one = strtok_r(settings, " ", &rest); one; one = strtok_r(NULL, " ", &rest)) {
            assert_int_equal(feature_of_setting(one), f);
            settings_seen++;
        }
    }
    assert_true(settings_seen > 20);
}

/* A setting is found by its whole name: "network" is not "network-allow". */
static void parts_of_names_find_nothing(void **state)
{
    assert_int_equal(feature_of_setting("network"), FEATURE_NETWORK);
    assert_int_equal(feature_of_setting("network-allow"), FEATURE_ALLOW);
    assert_int_equal(feature_of_setting("on-close"), FEATURE_RESUME);
    assert_int_equal(feature_of_setting("allow"), FEATURE_COUNT);
    assert_int_equal(feature_of_setting("close"), FEATURE_COUNT);
    assert_int_equal(feature_of_setting("model"), FEATURE_COUNT);
}

/* What was not asked for may be missing, and what is there may be asked for. */
static void supported_features_may_be_requested(void **state)
{
    struct feature_state some[FEATURE_COUNT] = { 0 };
    some[FEATURE_IMAGE] = (struct feature_state)FEATURE_YES("any image");
    assert_ok(features_check(some, "x", 0, err));
    assert_ok(features_check(some, "x", bit(FEATURE_IMAGE), err));
}

/* What is missing is refused by the names of environment, feature and all its settings, with the
 * reason where there is one. */
static void what_is_missing_is_refused_by_name(void **state)
{
    struct feature_state some[FEATURE_COUNT] = { 0 };
    struct error err = { 0 };
    some[FEATURE_IMAGE] = (struct feature_state)FEATURE_YES("any image");
    some[FEATURE_GPUS] = (struct feature_state)FEATURE_NO("it has none");
    uint64_t asked = bit(FEATURE_IMAGE) | bit(FEATURE_RESUME);
    assert_int_equal(features_check(some, "cloudy", asked, &err), -ERROR_UNSUPPORTED);
    assert_string_equal(
        err.text, "the environment 'cloudy' does not support resume (--sandbox, --on-close)");
    assert_int_equal(features_check(some, "cloudy", bit(FEATURE_GPUS), &err), -ERROR_UNSUPPORTED);
    assert_string_equal(
        err.text, "the environment 'cloudy' does not support GPU (--gpus): it has none");
    asked = bit(FEATURE_PRELOAD); /* the last one, too */
    assert_int_equal(features_check(some, "cloudy", asked, &err), -ERROR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_finds_its_feature),
        cmocka_unit_test(parts_of_names_find_nothing),
        cmocka_unit_test(supported_features_may_be_requested),
        cmocka_unit_test(what_is_missing_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
