/* The public interface: descriptions of environments and of this machine, and staged workspaces. */
#include "../test.h"

#include <stdlib.h>
#include <unistd.h>

#include "droste.h"

#define API_ERROR fixture.err
#include "assert_fine.h"

struct fixture {
    droste *d;
    char file[64];
    droste_error err;
};

static struct fixture fixture;

static int setup(void **state)
{
    fixture = (struct fixture){ .file = "/tmp/droste-environment-api-XXXXXX" };
    int fd = mkstemp(fixture.file);
    assert_int_equal(write(fd, "staged", 6), 6);
    close(fd);
    assert_fine(droste_new(&fixture.d, &fixture.err));
    assert_fine(droste_set(fixture.d, "database", "none", &fixture.err));
    return 0;
}

static int teardown(void **state)
{
    droste_free(fixture.d);
    return unlink(fixture.file);
}

static void note_gpus(void *arg, const droste_feature *feature)
{
    if (strcmp(feature->settings, "gpus") == 0)
        *(int *)arg = feature->supported;
}

/* Each environment has a description, and the features of each say yes or no to a setting. */
static void environments_say_what_they_can_do(void **state)
{
    const char *name, *about = NULL;
    int local = -1, docker = -1;
    size_t count = 0;
    for (; (name = droste_environment_at(count, &about)); count++)
        assert_true(about[0]);
    assert_true(count >= 6);
    assert_fine(droste_environment_features(fixture.d, NULL, note_gpus, &local, &fixture.err));
    assert_fine(droste_environment_features(fixture.d, "docker", note_gpus, &docker, &fixture.err));
    assert_int_equal(local, 0);
    assert_int_equal(docker, 1);
    assert_true(
        droste_environment_features(fixture.d, "nowhere", note_gpus, &local, &fixture.err) < 0);
    assert_string_equal(droste_get(fixture.d, "env"), "local");
}

/* Where sandboxes end with their hosts, nothing is collected: that is said, and is not a number. */
static void local_sandboxes_are_not_collected(void **state)
{
    int removed = 0;
    assert_fine(droste_set(fixture.d, "env", "local", &fixture.err));
    assert_int_equal(
        droste_environment_collect(fixture.d, &removed, &fixture.err), -DROSTE_ERROR_UNSUPPORTED);
    assert_int_equal(removed, -1);
}

/* The settings are checked without a sandbox: an interpreter that exists, a URL that could be
 * one. */
static void settings_are_checked_before_a_session(void **state)
{
    assert_fine(droste_check(fixture.d, &fixture.err));
    assert_int_equal(droste_python(fixture.d, &fixture.err)[0], '/');
    assert_fine(droste_set(fixture.d, "python", "/nowhere/python", &fixture.err));
    assert_null(droste_python(fixture.d, &fixture.err));
    assert_fine(droste_set(fixture.d, "repo-url", "ext::sh -c true", &fixture.err));
    assert_true(droste_check(fixture.d, &fixture.err) < 0);
}

/* Times are read as settings have them. */
static void times_have_units(void **state)
{
    double seconds = 0;
    assert_true(droste_parse_seconds("1.5h", &seconds));
    assert_true(seconds == 5400);
    assert_false(droste_parse_seconds("1.5 fortnights", &seconds));
}

/* A workspace that was staged is the session's, also after its handle is freed. */
static void a_staged_workspace_is_the_sessions(void **state)
{
    char code[256];
    droste_workspace *w = NULL;
    droste_session *s = NULL;
    droste_result *r = NULL;
    size_t len;
    assert_fine(droste_workspace_stage(fixture.d, &w, &fixture.err));
    assert_null(w);
    assert_fine(droste_set(fixture.d, "isolation", "process", &fixture.err));
    assert_fine(droste_set(fixture.d, "context-path", fixture.file, &fixture.err));
    assert_fine(droste_workspace_stage(fixture.d, &w, &fixture.err));
    assert_null(droste_workspace_repo(w));
    assert_null(droste_workspace_commit(w));
    assert_fine(droste_session_open_in(fixture.d, w, &s, &fixture.err));
    droste_workspace_free(w);
    snprintf(code, sizeof code, "print(open('%s/context/%s').read())", droste_session_workspace(s),
        strrchr(fixture.file, '/') + 1);
    assert_fine(droste_session_exec(s, code, strlen(code), 0, &r, &fixture.err));
    assert_string_equal(droste_result_stdout(r, &len), "staged\n");
    droste_result_free(r);
    assert_non_null(droste_session_plan(s, &len));
    droste_session_close(s);
}

/* Contexts that were added are counted, and one may be standard input. */
static void contexts_are_counted(void **state)
{
    assert_fine(droste_context_add(fixture.d, fixture.file, &fixture.err));
    assert_int_equal(droste_context_count(fixture.d), 1);
    assert_false(droste_context_reads_input(fixture.d));
    assert_fine(droste_context_add(fixture.d, "-", &fixture.err));
    assert_true(droste_context_reads_input(fixture.d));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(environments_say_what_they_can_do, setup, teardown),
        cmocka_unit_test_setup_teardown(local_sandboxes_are_not_collected, setup, teardown),
        cmocka_unit_test_setup_teardown(settings_are_checked_before_a_session, setup, teardown),
        cmocka_unit_test_setup_teardown(times_have_units, setup, teardown),
        cmocka_unit_test_setup_teardown(a_staged_workspace_is_the_sessions, setup, teardown),
        cmocka_unit_test_setup_teardown(contexts_are_counted, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
