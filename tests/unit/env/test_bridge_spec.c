/* What a bridge's program is told of a sandbox, and which features its greeting declares. */
#include "../test.h"

#include "base/cleanup.h"
#include "env/common/owner_labels.h"
#include "env/remote/bridge_spec.h"

static const char *const words[] = { "python3", "-c", "print(\"é\")", NULL };

/* The message for a specification, as parsed JSON of one line. */
static struct json_object *write_spec(const struct sandbox_spec *spec, bool keeps_volumes)
{
    cleanup_buf struct buf out = { 0 };
    struct json_object *o = NULL;
    bridge_spec_write(&out, 7, spec, words, keeps_volumes);
    assert_int_equal(out.data[out.len - 1], '\n');
    assert_null(memchr(out.data, '\n', out.len - 1));
    assert_ok(json_parse(out.data, out.len - 1, &json_limits_large, &o, err));
    return o;
}

static void assert_member(struct json_object *o, const char *name, const char *json)
{
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(o, name, &value))
        fail_msg("there is no %s", name);
    assert_string_equal(json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN), json);
}

static bool has(struct json_object *o, const char *name)
{
    return json_object_object_get_ex(o, name, NULL);
}

static uint64_t bit(enum feature feature)
{
    return (uint64_t)1 << feature;
}

/* Without settings: the words, the limits, and the labels by which it is found again. */
static void a_plain_sandbox_is_its_words(void **state)
{
    const struct sandbox_spec spec = { .limits = { .memory = 1 << 20, .processes = 5 } };
    cleanup_json struct json_object *o = write_spec(&spec, true);
    assert_member(o, "open", "7");
    assert_member(o, "words", "[\"python3\",\"-c\",\"print(\\\"é\\\")\"]");
    assert_member(o, "memory", "1048576");
    assert_member(o, "processes", "5");
    struct json_object *labels = json_get_typed(o, "labels", json_type_object);
    assert_true(has(labels, LABEL_OWNER) && has(labels, LABEL_MACHINE));
    assert_int_equal(json_object_object_length(o), 5);
}

/* Only what was asked for is sent; a default of the settings is not. */
static void only_what_was_asked_is_sent(void **state)
{
    char image[] = "python:3.12", region[] = "eu";
    const struct container_spec c = { .image = image, .region = region, .disk = 4096 };
    struct sandbox_spec spec = { .container = &c, .asked = bit(FEATURE_IMAGE) };
    cleanup_json struct json_object *o = write_spec(&spec, false);
    assert_member(o, "image", "\"python:3.12\"");
    assert_false(has(o, "region") || has(o, "disk-size") || has(o, "cpus"));
    spec.asked = bit(FEATURE_REGION) | bit(FEATURE_DISK);
    spec.limits.cpus = 1.5;
    cleanup_json struct json_object *other = write_spec(&spec, false);
    assert_member(other, "region", "\"eu\"");
    assert_member(other, "disk-size", "4096");
    assert_member(other, "cpus", "1.5");
    assert_false(has(other, "image"));
}

/* A label of the user's is sent; one with the name of ours does not replace ours. */
static void our_labels_take_precedence(void **state)
{
    struct list labels = { 0 };
    assert_ok(list_add(&labels, "team=a=b", err));
    assert_ok(list_add(&labels, "no value", err));
    assert_ok(list_add(&labels, LABEL_OWNER "=somebody else", err));
    const struct container_spec c = { .labels = &labels };
    const struct sandbox_spec spec = { .container = &c };
    cleanup_json struct json_object *o = write_spec(&spec, false);
    struct json_object *sent = json_get_typed(o, "labels", json_type_object);
    assert_string_equal(json_get_string(sent, "team", ""), "a=b");
    assert_string_not_equal(json_get_string(sent, LABEL_OWNER, ""), "somebody else");
    assert_int_equal(json_object_object_length(sent), 3);
    list_clear(&labels);
}

/* A volume is named only to a provider that keeps volumes. */
static void a_volume_is_named_where_it_is_kept(void **state)
{
    char name[] = "data";
    const struct container_spec c = { .volume = name };
    const struct sandbox_spec spec = { .container = &c };
    cleanup_json struct json_object *kept = write_spec(&spec, true),
                                    *not = write_spec(&spec, false);
    assert_member(kept, "volume-name", "\"data\"");
    assert_true(has(kept, "directories"));
    assert_false(has(not, "volume-name") || has(not, "directories"));
}

/* What the program must declare: of what was asked, the optional features; a limit of processors is
 * one, too. */
static void needs_are_the_optional_features(void **state)
{
    struct sandbox_spec spec = { .asked = bit(FEATURE_IMAGE) | bit(FEATURE_MEMORY) };
    assert_int_equal(bridge_spec_needs(&spec), bit(FEATURE_IMAGE));
    spec.limits.cpus = 2;
    assert_int_equal(bridge_spec_needs(&spec), bit(FEATURE_IMAGE) | bit(FEATURE_CPUS));
}

/* A greeting declares features by names of settings; what it does not declare, or with false or
 * null, is not supported. What is not optional stays, and unknown names are passed over. */
static void a_greeting_declares_features(void **state)
{
    static const char reply[] =
        "{\"image\":true,\"gpus\":[\"T4\"],\"region\":false,\"app-name\":null,"
        "\"memory\":false,\"no such setting\":true}";
    struct feature_state table[FEATURE_COUNT];
    cleanup_json struct json_object *o = NULL;
    assert_ok(json_parse(reply, strlen(reply), &json_limits_small, &o, err));
    memcpy(table, bridge_features, sizeof table);
    bridge_spec_take_features(table, o);
    assert_ptr_equal(table[FEATURE_IMAGE].text, bridge_features[FEATURE_IMAGE].text);
    assert_ptr_equal(table[FEATURE_GPUS].text, bridge_features[FEATURE_GPUS].text);
    assert_ptr_equal(table[FEATURE_MEMORY].text, bridge_features[FEATURE_MEMORY].text);
    static const enum feature absent[] = { FEATURE_REGION, FEATURE_APP, FEATURE_DISK };
    for (size_t i = 0; i < array_length(absent); i++)
        assert_non_null(strstr(table[absent[i]].text, "does not declare support"));
}

/* A program that greets with nothing, or not with an object, supports nothing optional. */
static void a_silent_program_supports_nothing(void **state)
{
    struct feature_state table[FEATURE_COUNT];
    struct json_object *list = json_object_new_array();
    for (int i = 0; i < 2; i++) {
        memcpy(table, bridge_features, sizeof table);
        bridge_spec_take_features(table, i ? list : NULL);
        assert_non_null(strstr(table[FEATURE_IMAGE].text, "does not declare support"));
        assert_ptr_equal(table[FEATURE_STREAM].text, bridge_features[FEATURE_STREAM].text);
    }
    json_object_put(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_sandbox_is_its_words),
        cmocka_unit_test(only_what_was_asked_is_sent),
        cmocka_unit_test(our_labels_take_precedence),
        cmocka_unit_test(a_volume_is_named_where_it_is_kept),
        cmocka_unit_test(needs_are_the_optional_features),
        cmocka_unit_test(a_greeting_declares_features),
        cmocka_unit_test(a_silent_program_supports_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
