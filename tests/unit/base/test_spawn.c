/* base/os/spawn.c: how a program of the user's ended. */
#include "../test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/spawn.h"

static int status_of(const char *path)
{
    int ends[3] = { 0, 1, 2 };
    pid_t pid = 0;
    siginfo_t gone;
    const char *words[] = { path, NULL };
    assert_ok(spawn_program(words, "program ", ends, &pid, err));
    waitid(P_PID, (id_t)pid, &gone, WEXITED | WNOWAIT);
    return spawn_end(pid);
}

/* A program that ended by itself has its own status. */
static void a_status_is_the_programs(void **state)
{
    assert_int_equal(status_of("/bin/true"), 0);
    assert_int_equal(WEXITSTATUS(status_of("/bin/false")), 1);
}

/* Where the kernel keeps no status, because SIGCHLD is ignored, nothing is said to have gone
 * well. */
static void an_unknown_exit_status_is_no_success(void **state)
{
    signal(SIGCHLD, SIG_IGN);
    int status = status_of("/bin/true");
    signal(SIGCHLD, SIG_DFL);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 255);
}

/* What is not there is said by its name. */
static void a_missing_program_is_an_error(void **state)
{
    int ends[3] = { 0, 1, 2 };
    pid_t pid = 0;
    const char *words[] = { "/bin/not-there", NULL };
    assert_fails(ERROR_NOT_FOUND, spawn_program(words, "program ", ends, &pid, err));
    assert_int_equal(pid, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_status_is_the_programs),
        cmocka_unit_test(an_unknown_exit_status_is_no_success),
        cmocka_unit_test(a_missing_program_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
