/* Limits by name, and the mechanism that enforces each, as reported from the plan. */
#include "../test.h"

#include "base/cleanup.h"
#include "jail/jail.h"

#include <sys/resource.h>

static const struct jail_limits limits = { .memory = 64 << 20,
    .processes = 12,
    .cpus = 0.5,
    .cpu_time = 3,
    .open_files = 13,
    .file_size = 1000,
    .tmp_size = 15 << 20,
    .volume_size = 1 << 20,
    .volume_files = 99,
    .workspace_size = 2 << 20,
    .workspace_files = 88 };

static struct jail_plan *plan_of(enum isolation isolation, const struct jail_limits *l)
{
    static const struct jail_host host = { .uid = 1000, .gid = 1000 };
    cleanup_free struct jail_plan *zygote = NULL;
    struct jail_plan *plan = NULL;
    assert_ok(jail_compile_zygote(isolation, &host, &zygote, err));
    static const struct jail_mount place = { .workdir = "/work" };
    assert_ok(jail_compile_sandbox(isolation, zygote, l, &place, &plan, err));
    return plan;
}

static void every_limit_says_what_enforces_it(void **state)
{
    static const struct {
        enum limit limit;
        enum limit_means full, process, full_cgroup, process_cgroup;
    } rows[] = {
        { LIMIT_MEMORY, LIMIT_BY_HOST, LIMIT_BY_HOST, LIMIT_BY_CGROUP, LIMIT_BY_CGROUP },
        { LIMIT_PROCESSES, LIMIT_BY_RLIMIT, LIMIT_BY_NOTHING, LIMIT_BY_CGROUP, LIMIT_BY_CGROUP },
        { LIMIT_CPUS, LIMIT_BY_NOTHING, LIMIT_BY_NOTHING, LIMIT_BY_CGROUP, LIMIT_BY_CGROUP },
        { LIMIT_CPU_TIME, LIMIT_BY_RLIMIT, LIMIT_BY_RLIMIT, LIMIT_BY_RLIMIT, LIMIT_BY_RLIMIT },
        { LIMIT_OPEN_FILES, LIMIT_BY_RLIMIT, LIMIT_BY_RLIMIT, LIMIT_BY_RLIMIT, LIMIT_BY_RLIMIT },
        { LIMIT_FILE_SIZE, LIMIT_BY_RLIMIT, LIMIT_BY_RLIMIT, LIMIT_BY_RLIMIT, LIMIT_BY_RLIMIT },
        { LIMIT_TMP_SIZE, LIMIT_BY_MOUNT, LIMIT_BY_NOTHING, LIMIT_BY_MOUNT, LIMIT_BY_NOTHING },
        { LIMIT_VOLUME_SIZE, LIMIT_BY_HOST, LIMIT_BY_HOST, LIMIT_BY_HOST, LIMIT_BY_HOST },
        { LIMIT_VOLUME_FILES, LIMIT_BY_HOST, LIMIT_BY_HOST, LIMIT_BY_HOST, LIMIT_BY_HOST },
        { LIMIT_WORKSPACE_SIZE, LIMIT_BY_HOST, LIMIT_BY_HOST, LIMIT_BY_HOST, LIMIT_BY_HOST },
        { LIMIT_WORKSPACE_FILES, LIMIT_BY_HOST, LIMIT_BY_HOST, LIMIT_BY_HOST, LIMIT_BY_HOST },
    };
    cleanup_free struct jail_plan *full = plan_of(ISOLATION_FULL, &limits);
    cleanup_free struct jail_plan *process = plan_of(ISOLATION_PROCESS, &limits);
    assert_int_equal(array_length(rows), LIMIT_COUNT - 1);
    for (size_t i = 0; i < array_length(rows); i++) {
        enum limit l = rows[i].limit;
        assert_int_equal(limit_means(l, &limits, full, false), rows[i].full);
        assert_int_equal(limit_means(l, &limits, process, false), rows[i].process);
        assert_int_equal(limit_means(l, &limits, full, true), rows[i].full_cgroup);
        assert_int_equal(limit_means(l, &limits, process, true), rows[i].process_cgroup);
    }
}

static void a_limit_that_is_not_set_is_enforced_by_nothing(void **state)
{
    struct jail_limits none = jail_default_limits;
    none.cpus = none.cpu_time = 0;
    cleanup_free struct jail_plan *plan = plan_of(ISOLATION_FULL, &none);
    assert_int_equal(limit_means(LIMIT_CPUS, &none, plan, true), LIMIT_BY_NOTHING);
    assert_int_equal(limit_means(LIMIT_CPU_TIME, &none, plan, true), LIMIT_BY_NOTHING);
}

static void values_are_printed_as_settings_take_them(void **state)
{
    static const struct {
        enum limit limit;
        const char *text;
    } rows[] = {
        { LIMIT_MEMORY, "64M" },
        { LIMIT_PROCESSES, "12" },
        { LIMIT_CPUS, "0.5" },
        { LIMIT_CPU_TIME, "3 s" },
        { LIMIT_FILE_SIZE, "1000 bytes" },
    };
    for (size_t i = 0; i < array_length(rows); i++) {
        cleanup_buf struct buf out = { 0 };
        limit_print(rows[i].limit, &limits, &out);
        assert_string_equal(buf_text(&out), rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_limit_says_what_enforces_it),
        cmocka_unit_test(a_limit_that_is_not_set_is_enforced_by_nothing),
        cmocka_unit_test(values_are_printed_as_settings_take_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
