/* Finding the Python interpreter: PATH, a virtual environment, wrapper scripts, and invalid
 * ones. */
#include "../test.h"

#include "base/cleanup.h"
#include "env/local/interpreter.h"

#include <sys/stat.h>

struct fixture {
    char dir[64];
    char *old_path;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/droste-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->old_path = strdup(getenv("PATH") ? getenv("PATH") : "");
    unsetenv("VIRTUAL_ENV");
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char command[96];
    setenv("PATH", f->old_path, 1);
    unsetenv("VIRTUAL_ENV");
    snprintf(command, sizeof command, "rm -r %s", f->dir);
    assert_int_equal(system(command), 0);
    free(f->old_path);
    free(f);
    return 0;
}

/* Makes a file in the fixture's directory; its path is valid until the next call. */
static const char *make(struct fixture *f, const char *name, const char *text, mode_t mode)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
    return path;
}

static void a_name_is_looked_up_in_path_in_order(void **state)
{
    struct fixture *f = *state;
    cleanup_free char *found = NULL;
    char path[300];
    const char *made = make(f, "snake",
        "\x7F"
        "ELF",
        0755);
    snprintf(path, sizeof path, "/nonexistent::relative:%s:/usr/bin", f->dir);
    setenv("PATH", path, 1);
    assert_ok(interpreter_find("snake", &found, err));
    assert_string_equal(found, made);
}

static void the_default_is_python3_in_path(void **state)
{
    struct fixture *f = *state;
    cleanup_free char *found = NULL;
    const char *made = make(f, "python3",
        "\x7F"
        "ELF",
        0755);
    setenv("PATH", f->dir, 1);
    assert_ok(interpreter_find(NULL, &found, err));
    assert_string_equal(found, made);
}

static void a_name_that_is_not_in_path_is_not_found(void **state)
{
    struct fixture *f = *state;
    char *found = NULL;
    make(f, "not-executable",
        "\x7F"
        "ELF",
        0644);
    setenv("PATH", f->dir, 1);
    assert_fails(ERROR_NOT_FOUND, interpreter_find("no-such-python", &found, err));
    assert_fails(ERROR_NOT_FOUND, interpreter_find("not-executable", &found, err));
    assert_fails(ERROR_NOT_FOUND, interpreter_find(NULL, &found, err));
    setenv("PATH", "", 1);
    assert_fails(ERROR_NOT_FOUND, interpreter_find("python3", &found, err));
    assert_null(found);
}

static void a_virtual_environment_comes_first(void **state)
{
    struct fixture *f = *state;
    cleanup_free char *found = NULL;
    char path[128];
    snprintf(path, sizeof path, "%s/bin", f->dir);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof path, "%s/bin/python3", f->dir);
    assert_int_equal(symlink("/usr/bin/python3", path), 0);
    setenv("VIRTUAL_ENV", f->dir, 1);
    assert_ok(interpreter_find(NULL, &found, err));
    assert_string_equal(found, path); /* the link itself: the venv is found by its place */
    free(steal(&found));
    assert_ok(interpreter_find("/usr/bin/python3", &found, err)); /* unless another is named */
    assert_string_equal(found, "/usr/bin/python3");
}

static void a_virtual_environment_without_python_is_passed_over(void **state)
{
    struct fixture *f = *state;
    cleanup_free char *found = NULL;
    setenv("VIRTUAL_ENV", f->dir, 1);
    setenv("PATH", "/usr/bin", 1);
    assert_ok(interpreter_find(NULL, &found, err));
    assert_string_equal(found, "/usr/bin/python3");
}

static void a_wrapper_script_says_which_it_stands_for(void **state)
{
    struct fixture *f = *state;
    cleanup_free char *found = NULL;
    const char *script =
        make(f, "python3", "#!/bin/sh\nexec ${DROSTE_TEST_PYTHON:-/nonexistent} \"$@\"\n", 0755);
    setenv("DROSTE_TEST_PYTHON", "/usr/bin/python3", 1); /* it may need the environment */
    assert_ok(interpreter_find(script, &found, err));
    unsetenv("DROSTE_TEST_PYTHON");
    assert_string_equal(found, "/usr/bin/python3");
}

static void a_relative_path_becomes_absolute(void **state)
{
    struct fixture *f = *state;
    cleanup_free char *found = NULL, *here = getcwd(NULL, 0);
    char expected[128];
    make(f, "snake",
        "\x7F"
        "ELF",
        0755);
    assert_int_equal(chdir(f->dir), 0);
    assert_ok(interpreter_find("./snake", &found, err));
    assert_int_equal(chdir(here), 0);
    snprintf(expected, sizeof expected, "%s/./snake", f->dir);
    assert_string_equal(found, expected);
}

static void what_is_no_executable_file_is_not_found(void **state)
{
    struct fixture *f = *state;
    char *found = NULL;
    assert_fails(ERROR_NOT_FOUND, interpreter_find("/nonexistent/python3", &found, err));
    assert_fails(ERROR_NOT_FOUND, interpreter_find(f->dir, &found, err));
    assert_fails(ERROR_NOT_FOUND, interpreter_find(make(f, "x", "", 0644), &found, err));
}

/* Each is refused, and none of them makes the host wait. */
static void scripts_that_are_no_python_are_refused(void **state)
{
    static const char *const bodies[] = {
        "#!/bin/sh\necho garbage\n",
        "#!/bin/sh\n",
        "#!/bin/sh\nexit 3\n",
        "#!/bin/sh\nkill -9 $$\n",
        "#!/bin/sh\necho /nonexistent/python\n",
        "#!/bin/sh\necho /etc/passwd\n",
        "#!/bin/sh\nexec yes /usr/bin/python3\n",
        "#!/bin/sh\nexec cat /dev/urandom\n",
        "#!/nonexistent-interpreter\n",
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < array_length(bodies); i++) {
        char *found = NULL;
        struct error err = { 0 };
        int rc = interpreter_find(make(f, "python3", bodies[i], 0755), &found, &err);
        if (rc != -(int)ERROR_ENVIRONMENT || !strstr(err.text, "--python PATH"))
            fail_msg("%s gave %d: %s", bodies[i], rc, err.text);
    }
}

static void a_scripts_complaint_is_in_the_error(void **state)
{
    struct fixture *f = *state;
    char *found = NULL;
    struct error err = { 0 };
    const char *script = make(f, "python3",
        "#!/bin/sh\necho first >&2\necho 'pyenv: version 3.99 is not installed' >&2\nexit 1\n",
        0755);
    assert_int_equal(interpreter_find(script, &found, &err), -(int)ERROR_ENVIRONMENT);
    assert_non_null(strstr(err.text, ": pyenv: version 3.99 is not installed;"));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_name_is_looked_up_in_path_in_order),
        T(the_default_is_python3_in_path),
        T(a_name_that_is_not_in_path_is_not_found),
        T(a_virtual_environment_comes_first),
        T(a_virtual_environment_without_python_is_passed_over),
        T(a_wrapper_script_says_which_it_stands_for),
        T(a_relative_path_becomes_absolute),
        T(what_is_no_executable_file_is_not_found),
        T(scripts_that_are_no_python_are_refused),
        T(a_scripts_complaint_is_in_the_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
