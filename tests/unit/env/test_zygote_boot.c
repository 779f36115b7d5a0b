/* Starting a zygote: what it has of this program and its environment, and how one that cannot start
 * is named. */
#include "../processes.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "env/local/zygote.h"

struct fixture {
    struct loop *loop;
    struct sandbox_spec spec;
    struct zygote *zygote;
};

static const struct zygote_groups no_groups;

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    assert_ok(loop_open(&f->loop, err));
    /* What it starts with is the same in all isolations. */
    f->spec =
        (struct sandbox_spec){ .isolation = ISOLATION_PROCESS, .limits = jail_default_limits };
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    if (f->zygote)
        zygote_stop(f->zygote);
    loop_close(f->loop);
    free(f);
    return 0;
}

#define zygote_test(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

static void start(struct fixture *f)
{
    assert_ok(zygote_start(f->loop, &f->spec, &no_groups, &f->zygote, err));
}

static void assert_not_started(struct fixture *f, enum error_code code, const char *words)
{
    assert_fails_saying(code, words, zygote_start(f->loop, &f->spec, &no_groups, &f->zygote, err));
    assert_null(f->zygote);
}

/* A file of the zygote in /proc; its bytes may be zero. */
static void read_proc(const char *name, struct buf *out)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)zygote_pid(), name);
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        skip(); /* this user may not look into it */
    char part[4096];
    for (ssize_t n; (n = read(fd, part, sizeof part)) > 0;)
        buf_append(out, part, (size_t)n);
}

static bool has_variable(const struct buf *all, const char *variable)
{
    for (const char *v = all->data; v < all->data + all->len; v += strlen(v) + 1)
        if (strcmp(v, variable) == 0)
            return true;
    return false;
}

static void it_says_which_python_it_is(void **state)
{
    struct fixture *f = *state;
    start(f);
    assert_int_equal(strncmp(zygote_python(f->zygote), "CPython 3.", 10), 0);
    assert_int_equal(zygote_executable(f->zygote)[0], '/');
    assert_int_equal(zygote_isolation(f->zygote), ISOLATION_PROCESS);
    assert_false(zygote_is_gone(f->zygote));
}

/* It may hold keys. */
static void it_has_nothing_of_the_environment(void **state)
{
    struct fixture *f = *state;
    cleanup_buf struct buf all = { 0 };
    setenv("DROSTE_TEST_API_KEY", "secret", 1);
    start(f);
    unsetenv("DROSTE_TEST_API_KEY");
    read_proc("environ", &all);
    buf_append(&all, "", 1);
    assert_false(has_variable(&all, "DROSTE_TEST_API_KEY=secret"));
    assert_true(has_variable(&all, "HOME=/tmp"));
    assert_true(has_variable(&all, "OMP_NUM_THREADS=1"));
}

/* Also of one that another library left open to programs. */
static void it_has_no_descriptor_of_this_program(void **state)
{
    struct fixture *f = *state;
    char path[] = "/tmp/droste-inherited-XXXXXX", place[64], target[128];
    cleanup_fd int first = mkstemp(path);
    cleanup_fd int left = fcntl(first, F_DUPFD, 40);
    assert_int_equal(left, 40);
    assert_int_equal(unlink(path), 0);
    start(f);
    snprintf(place, sizeof place, "/proc/%d/fd", (int)zygote_pid());
    DIR *dir = opendir(place);
    if (!dir)
        skip();
    size_t count = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        ssize_t n = readlinkat(dirfd(dir), e->d_name, target, sizeof target - 1);
        target[n < 0 ? 0 : n] = '\0';
        assert_null(strstr(target, "droste-inherited"));
        count += n > 0;
    }
    closedir(dir);
    assert_true(count > 3);
}

static void it_comes_after_this_program(void **state)
{
    struct fixture *f = *state;
    start(f);
    int own = getpriority(PRIO_PROCESS, 0);
    int its = getpriority(PRIO_PROCESS, (id_t)zygote_pid());
    assert_int_equal(its, own + 10 > 19 ? 19 : own + 10);
}

/* Its last words are those of the program that was started instead. */
static void what_is_no_python_is_named_with_its_last_words(void **state)
{
    struct fixture *f = *state;
    f->spec.python = "/bin/cat";
    assert_not_started(f, ERROR_ENVIRONMENT,
        "'/bin/cat' did not start as a Python interpreter: Try '/bin/cat --help' for more "
        "information.; give CPython 3.8 or newer");
    f->spec.python = "/bin/true";
    assert_not_started(
        f, ERROR_ENVIRONMENT, "'/bin/true' did not start as a Python interpreter; give CPython");
    f->spec.python = "/nowhere/python";
    assert_not_started(f, ERROR_NOT_FOUND, "/nowhere/python");
}

static void a_module_that_cannot_be_preloaded_is_named(void **state)
{
    struct fixture *f = *state;
    const char *modules[] = { "json", "no_such_module" };
    f->spec.preload = modules;
    f->spec.preload_count = 2;
    assert_not_started(f, ERROR_ENVIRONMENT, "preload 'no_such_module'");
    f->spec.preload_count = 1;
    start(f);
}

static void a_root_that_is_none_is_refused(void **state)
{
    struct fixture *f = *state;
    f->spec.isolation = ISOLATION_FULL;
    f->spec.rootfs = "/nowhere/root";
    assert_not_started(f, ERROR_NOT_FOUND, "opening the root file system '/nowhere/root'");
    f->spec.rootfs = "/usr/..";
    assert_not_started(f, ERROR_ARGUMENT, "--rootfs / is this machine's own root");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        zygote_test(it_says_which_python_it_is),
        zygote_test(it_has_nothing_of_the_environment),
        zygote_test(it_has_no_descriptor_of_this_program),
        zygote_test(it_comes_after_this_program),
        zygote_test(what_is_no_python_is_named_with_its_last_words),
        zygote_test(a_module_that_cannot_be_preloaded_is_named),
        zygote_test(a_root_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
