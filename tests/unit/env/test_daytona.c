/* What Daytona is asked for: each part of a specification is in the request or refused by name, and
 * a key goes to no address without TLS. */
#include "../test.h"

#include <unistd.h>

#include "base/cleanup.h"
#include "env/clouds/daytona/account.h"
#include "env/clouds/daytona/create.h"

static struct json_object *body_of(const struct sandbox_spec *spec, const char *volume_id)
{
    struct daytona_create create = {
        .spec = spec, .name = "droste-1", .target = "eu", .volume_id = volume_id
    };
    struct json_object *body = NULL;
    assert_ok(daytona_create_body(&create, &body, err));
    return body;
}

static void has(struct json_object *body, const char *member, const char *text)
{
    struct json_object *found = json_object_object_get(body, member);
    if (!found || strcmp(json_text(found, NULL), text) != 0)
        fail_msg("%s is %s, not %s", member, found ? json_text(found, NULL) : "missing", text);
}

/* A host that dies leaves nothing that is paid for without an end. */
static void each_sandbox_has_an_end_and_no_network(void **state)
{
    struct sandbox_spec spec = { 0 };
    cleanup_json struct json_object *body = body_of(&spec, NULL);
    has(body, "networkBlockAll", "true");
    has(body, "autoStopInterval", "15");
    has(body, "autoDeleteInterval", "0");
    has(body, "ttlMinutes", "1445");
    has(body, "target", "\"eu\"");
    has(body, "name", "\"droste-1\"");
    assert_null(json_object_object_get(body, "buildInfo"));
    assert_null(json_object_object_get(body, "snapshot"));
    assert_null(json_object_object_get(body, "volumes"));
}

static void times_are_whole_minutes_rounded_up(void **state)
{
    struct container_spec c = { .life = 61, .idle = 1 };
    struct sandbox_spec spec = { .container = &c };
    cleanup_json struct json_object *body = body_of(&spec, NULL);
    has(body, "autoStopInterval", "1");
    has(body, "ttlMinutes", "7"); /* two, and five behind the session's deadline */
    c.keep = true;
    cleanup_json struct json_object *kept = body_of(&spec, NULL);
    has(kept, "autoDeleteInterval", "10080");
    assert_null(json_object_object_get(kept, "ttlMinutes"));
}

static void addresses_and_domains_are_distinguished(void **state)
{
    struct list allow = { 0 };
    struct container_spec c = { .allow = &allow };
    struct sandbox_spec spec = { .container = &c };
    static const char *const items[] = { "10.0.0.0/8", "pypi.org", "::1", "1.2.3.4",
        "*.example.org" };
    for (size_t i = 0; i < array_length(items); i++)
        assert_ok(list_add(&allow, items[i], err));
    cleanup_json struct json_object *body = body_of(&spec, NULL);
    has(body, "networkBlockAll", "false");
    has(body, "networkAllowList", "\"10.0.0.0/8,::1,1.2.3.4\"");
    has(body, "domainAllowList", "\"pypi.org,*.example.org\"");
    list_clear(&allow);
    c.network = "open";
    cleanup_json struct json_object *open = body_of(&spec, NULL);
    has(open, "networkBlockAll", "false");
    assert_null(json_object_object_get(open, "networkAllowList"));
}

static void an_image_has_its_resources(void **state)
{
    struct container_spec c = { .image = "python:3.12", .disk = (3ull << 30) + 1, .gpus = "2" };
    struct sandbox_spec spec = { .container = &c, .asked = (uint64_t)1 << FEATURE_MEMORY };
    spec.limits.memory = 1ull << 30;
    spec.limits.cpus = 1.5;
    cleanup_json struct json_object *body = body_of(&spec, "v-1");
    has(body, "buildInfo", "{\"dockerfileContent\":\"FROM python:3.12\\n\"}");
    has(body, "memory", "1");
    has(body, "cpu", "2");
    has(body, "disk", "4");
    has(body, "gpu", "2");
    has(body, "volumes", "[{\"volumeId\":\"v-1\",\"mountPath\":\"" DAYTONA_MEMORY "\"}]");
    assert_ok(daytona_check(&spec, err));
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    struct list allow = { 0 };
    assert_ok(list_add(&allow, "pypi.org", err));
    const struct {
        struct container_spec c;
        uint64_t asked;
        enum error_code code;
        const char *words;
    } rows[] = {
        { { .image = "a", .snapshot = "b" }, 0, ERROR_ARGUMENT, "not both" },
        { { .image = "a\nRUN b" }, 0, ERROR_ARGUMENT, "not the name of an image" },
        { { .network = "host" }, 0, ERROR_ARGUMENT, "none and open" },
        { { .network = "open", .allow = &allow }, 0, ERROR_ARGUMENT, "exclude each other" },
        { { .volume_subpath = "a" }, 0, ERROR_ARGUMENT, "--volume-name" },
        { { .image = "a", .gpus = "all" }, 0, ERROR_ARGUMENT, "number of GPUs" },
        { { .image = "a", .gpus = "0" }, 0, ERROR_ARGUMENT, "number of GPUs" },
        { { .snapshot = "a" }, 1ull << FEATURE_DISK, ERROR_UNSUPPORTED, "--disk-size" },
        { { .snapshot = "a" }, 1ull << FEATURE_CPUS, ERROR_UNSUPPORTED, "--cpus" },
    };
    for (size_t i = 0; i < array_length(rows); i++) {
        struct sandbox_spec spec = { .container = &rows[i].c, .asked = rows[i].asked };
        assert_fails_saying(rows[i].code, rows[i].words, daytona_check(&spec, err));
    }
    struct container_spec fine = {
        .snapshot = "a", .network = "open", .volume = "v", .volume_subpath = "s"
    };
    struct sandbox_spec spec = { .container = &fine };
    assert_ok(daytona_check(&spec, err));
    list_clear(&allow);
}

/* ---- the account ---- */

static const char *const variables[] = { "DAYTONA_API_KEY", "DAYTONA_JWT_TOKEN",
    "DAYTONA_ORGANIZATION_ID", "DAYTONA_API_URL", "DAYTONA_API_BASE_URL", "DAYTONA_TARGET" };

static int account_setup(void **state)
{
    for (size_t i = 0; i < array_length(variables); i++)
        unsetenv(variables[i]);
    return loop_open((struct loop **)state, &(struct error){ 0 });
}

static int account_teardown(void **state)
{
    for (size_t i = 0; i < array_length(variables); i++)
        unsetenv(variables[i]);
    loop_close(*state);
    return 0;
}

static void an_account_has_a_key_or_a_token_of_an_organization(void **state)
{
    struct daytona_account a;
    assert_fails_saying(ERROR_CONFIG, "set DAYTONA_API_KEY", daytona_account_check(err));
    setenv("DAYTONA_JWT_TOKEN", "t", 1);
    assert_fails_saying(ERROR_CONFIG, "DAYTONA_ORGANIZATION_ID", daytona_account_check(err));
    setenv("DAYTONA_ORGANIZATION_ID", "o", 1);
    assert_ok(daytona_account_open(*state, NULL, &a, err));
    assert_string_equal(a.key_variable, "DAYTONA_JWT_TOKEN");
    assert_int_equal(a.headers.count, 2);
    assert_string_equal(a.headers.items[1], "X-Daytona-Organization-ID: o");
    daytona_account_close(&a);
    setenv("DAYTONA_API_KEY", "k", 1);
    assert_ok(daytona_account_open(*state, NULL, &a, err));
    assert_string_equal(a.headers.items[0], "Authorization: Bearer k");
    assert_int_equal(a.headers.count, 1);
    daytona_account_close(&a);
    setenv("DAYTONA_API_BASE_URL", "http://x", 1);
    assert_fails_saying(ERROR_CONFIG, "DAYTONA_API_URL", daytona_account_check(err));
}

/* The API names further addresses; the key follows to none that is less protected. */
static void a_key_goes_to_no_address_without_tls(void **state)
{
    struct daytona_account a;
    struct rest *rest = NULL;
    setenv("DAYTONA_API_KEY", "k", 1);
    assert_ok(daytona_account_open(*state, NULL, &a, err));
    assert_fails_saying(ERROR_PROTOCOL, "without TLS",
        daytona_account_reach(&a, "http://proxy.example", &rest, err));
    assert_ok(daytona_account_reach(&a, "https://proxy.example", &rest, err));
    rest_close(rest);
    daytona_account_close(&a);
    setenv("DAYTONA_API_URL", "http://127.0.0.1:1/api", 1); /* an installation without TLS */
    assert_ok(daytona_account_open(*state, NULL, &a, err));
    assert_ok(daytona_account_reach(&a, "http://127.0.0.1:2", &rest, err));
    rest_close(rest);
    daytona_account_close(&a);
}

int main(void)
{
#define OF_ACCOUNT(name) cmocka_unit_test_setup_teardown(name, account_setup, account_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sandbox_has_an_end_and_no_network),
        cmocka_unit_test(times_are_whole_minutes_rounded_up),
        cmocka_unit_test(addresses_and_domains_are_distinguished),
        cmocka_unit_test(an_image_has_its_resources),
        cmocka_unit_test(what_cannot_be_is_refused_by_name),
        OF_ACCOUNT(an_account_has_a_key_or_a_token_of_an_organization),
        OF_ACCOUNT(a_key_goes_to_no_address_without_tls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
