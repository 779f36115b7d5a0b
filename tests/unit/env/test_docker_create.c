/* Requests to a Docker daemon: each part of a specification is in them, or refused by name. Only
 * these tests cover what test machines lack, such as GPUs; tests/docker uses a real daemon for the
 * rest. */
#include "../test.h"

#include <unistd.h>

#include "base/cleanup.h"
#include "env/docker/create.h"
#include "env/common/owner_labels.h"

static struct json_object *body_of(const struct sandbox_spec *spec)
{
    struct docker_create create = {
        .spec = spec, .loader = "LOADER", .volume = "/volumes/v", .input_once = true
    };
    struct json_object *body = NULL;
    assert_ok(docker_create_body(&create, &body, err));
    return body;
}

static struct json_object *host_of(struct json_object *body)
{
    return json_get_typed(body, "HostConfig", json_type_object);
}

static void test_without_wishes_nothing_is_open(void **state)
{
    struct sandbox_spec spec = { .limits = jail_default_limits };
    cleanup_json struct json_object *body = body_of(&spec);
    struct json_object *host = host_of(body);
    assert_string_equal(json_get_string(body, "Image", ""), "python:3.12-slim");
    assert_true(json_get_bool(body, "NetworkDisabled", false));
    assert_string_equal(json_get_string(host, "NetworkMode", ""), "none");
    assert_true(json_get_bool(host, "ReadonlyRootfs", false));
    assert_true(json_get_bool(host, "AutoRemove", false));
    assert_false(json_get_bool(host, "Privileged", false));
    assert_string_equal(
        json_text(json_get_typed(host, "CapDrop", json_type_array), NULL), "[\"ALL\"]");
    assert_true(docker_has_profile(body));
    assert_int_equal(json_get_int(host, "Memory", 0), jail_default_limits.memory);
    assert_int_equal(json_get_int(host, "MemorySwap", 0), jail_default_limits.memory);
    assert_true(json_get_int(host, "PidsLimit", 0) >= (int64_t)jail_default_limits.processes);
    assert_null(json_get_typed(host, "DeviceRequests", json_type_array));
    assert_non_null(strstr(json_text(host, NULL), "size=268435456"));
}

static const char *security_options(struct json_object *body)
{
    return json_text(json_get_typed(host_of(body), "SecurityOpt", json_type_array), NULL);
}

/* By default the list is Droste's; the daemon's own where it is asked for, and with GPUs. */
static void test_the_filter_of_system_calls_is_chosen(void **state)
{
    static const struct {
        enum container_seccomp seccomp;
        const char *gpus;
        bool own;
    } rows[] = {
        { SECCOMP_AUTO, NULL, true },
        { SECCOMP_DROSTE, NULL, true },
        { SECCOMP_DAEMON, NULL, false },
        { SECCOMP_AUTO, "all", false },
        { SECCOMP_DROSTE, "all", true },
    };
    for (size_t i = 0; i < array_length(rows); i++) {
        struct container_spec container = { .seccomp = rows[i].seccomp, .gpus = rows[i].gpus };
        struct sandbox_spec spec = { .container = &container };
        cleanup_json struct json_object *body = body_of(&spec);
        assert_int_equal(docker_has_profile(body), rows[i].own);
        assert_int_equal(strstr(security_options(body), "io_uring_setup") != NULL, rows[i].own);
        if (!rows[i].own)
            continue;
        docker_drop_profile(body);
        assert_string_equal(security_options(body), "[\"no-new-privileges\"]");
    }
}

static void test_every_option_is_sent(void **state)
{
    char label[] = "team=blue=2", *labels[] = { label };
    const char *paths[] = { "/shared" };
    struct list list = { labels, 1 };
    struct container_spec container = { .image = "mine:1",
        .network = "bridge",
        .user = "7:8",
        .labels = &list,
        .disk = 1 << 30,
        .writable_root = true };
    struct sandbox_spec spec = { .python = "pypy3",
        .read_paths = paths,
        .read_path_count = 1,
        .container = &container,
        .limits = { .cpus = 1.5 } };
    cleanup_json struct json_object *body = body_of(&spec);
    struct json_object *host = host_of(body);
    struct json_object *set = json_get_typed(body, "Labels", json_type_object);
    assert_string_equal(json_get_string(body, "Image", ""), "mine:1");
    assert_string_equal(json_get_string(body, "User", ""), "7:8");
    assert_false(json_get_bool(body, "NetworkDisabled", true));
    assert_string_equal(json_get_string(host, "NetworkMode", ""), "bridge");
    assert_false(json_get_bool(host, "ReadonlyRootfs", true));
    assert_int_equal(json_get_int(host, "NanoCpus", 0), 1500000000);
    assert_string_equal(json_get_string(set, "team", ""), "blue=2");
    char self[32];
    snprintf(self, sizeof self, "%d ", (int)getpid());
    assert_int_equal(strncmp(json_get_string(set, LABEL_OWNER, ""), self, strlen(self)), 0);
    assert_true(json_get_string(set, LABEL_MACHINE, "")[0]);
    assert_string_equal(
        json_text(json_get_typed(body, "Entrypoint", json_type_array), NULL), "[\"pypy3\"]");
    const char *mounts = json_text(json_get_typed(host, "Mounts", json_type_array), NULL);
    assert_non_null(strstr(mounts, "\"Target\":\"/data\",\"ReadOnly\":false"));
    assert_null(strstr(mounts, "daytona"));
    assert_non_null(strstr(mounts, "\"Target\":\"/shared\",\"ReadOnly\":true"));
    struct json_object *storage = json_get_typed(host, "StorageOpt", json_type_object);
    assert_string_equal(json_get_string(storage, "size", ""), "1073741824");
}

static void test_gpus_are_asked_for_as_docker_run_does(void **state)
{
    static const struct {
        const char *gpus, *expected;
    } rows[] = {
        { "all", "[{\"Driver\":\"\",\"Capabilities\":[[\"gpu\"]],\"Count\":-1}]" },
        { "2", "[{\"Driver\":\"\",\"Capabilities\":[[\"gpu\"]],\"Count\":2}]" },
        { "device=0,GPU-3a",
            "[{\"Driver\":\"\",\"Capabilities\":[[\"gpu\"]],\"DeviceIDs\":[\"0\",\"GPU-3a\"]}]" },
    };
    for (size_t i = 0; i < array_length(rows); i++) {
        struct container_spec container = { .gpus = rows[i].gpus };
        struct sandbox_spec spec = { .container = &container };
        cleanup_json struct json_object *body = body_of(&spec);
        struct json_object *requests =
            json_get_typed(host_of(body), "DeviceRequests", json_type_array);
        assert_string_equal(json_text(requests, NULL), rows[i].expected);
    }
}

static void test_what_cannot_be_had_is_refused_by_name(void **state)
{
    static const char *const paths[] = { "/x" };
    struct error err = { 0 };
    struct sandbox_spec reads = { .read_paths = paths, .read_path_count = 1 };
    assert_int_equal(docker_check(&reads, false, &err), -ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--read"));
    assert_int_equal(docker_check(&reads, true, &err), 0);
    for (const char *const *gpus =
             (const char *const[]){ "some", "0", "-1", "device=", "1x", NULL };
         *gpus; gpus++) {
        struct container_spec container = { .gpus = *gpus };
        struct sandbox_spec wants = { .container = &container };
        assert_int_equal(docker_check(&wants, true, &err), -ERROR_ARGUMENT);
        assert_non_null(strstr(err.text, "gpus"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_wishes_nothing_is_open),
        cmocka_unit_test(test_every_option_is_sent),
        cmocka_unit_test(test_the_filter_of_system_calls_is_chosen),
        cmocka_unit_test(test_gpus_are_asked_for_as_docker_run_does),
        cmocka_unit_test(test_what_cannot_be_had_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
