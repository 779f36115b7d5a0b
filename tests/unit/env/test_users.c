/* Each sandbox runs as a user of its own: which id it gets, and that no two hosts use the same one.
 * The locks are real and need root; without root the tests are skipped. */
#include "../test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "env/common/users.h"

/* Ids that no sandbox has: beside the usual ones. */
static const struct user_range three = { 1900070001, 1900070003 };

static void needs_root(void)
{
    if (geteuid() == 0)
        return;
    print_message("skipped: needs root\n");
    skip();
}

static void a_range_is_two_ids(void **state)
{
    static const char *const wrong[] = { "1900070000", "1900070003-1900070001", "0-70000",
        "500-70000", "2000-3000x", "-", "a-b", "2000-99999999999", "2000--3000", "share" };
    struct user_range range;
    assert_ok(user_range_parse("shared", &range, err));
    assert_int_equal(range.first, 0);
    for (size_t i = 0; i < array_length(wrong); i++)
        assert_fails(ERROR_ARGUMENT, user_range_parse(wrong[i], &range, err));
    assert_ok(user_range_parse("2000-3000", &range, err));
    assert_int_equal(range.first, geteuid() == 0 ? 2000 : 0);
    assert_ok(user_range_parse("auto", &range, err));
    assert_int_equal(range.last != 0, geteuid() == 0);
}

/* No range: all sandboxes are one user, and nothing is locked. */
static void without_a_range_there_is_no_user(void **state)
{
    const struct user_range none = { 0 };
    uint32_t id = 7;
    struct users *u = users_new();
    assert_ok(users_take(u, &none, &id, err));
    assert_int_equal(id, 0);
    users_give_back(u, 0);
    users_free(u);
}

/* Two hosts at once, as two open files: three ids are given to them together, once each, and a
 * fourth is refused; one that is given back can be had by the other. */
static void two_hosts_never_give_the_same(void **state)
{
    needs_root();
    struct users *hosts[2] = { users_new(), users_new() };
    uint32_t id[3], more;
    for (int i = 0; i < 3; i++) {
        assert_ok(users_take(hosts[i % 2], &three, &id[i], err));
        assert_in_range(id[i], three.first, three.last);
        for (int j = 0; j < i; j++)
            assert_int_not_equal(id[i], id[j]);
    }
    assert_fails(ERROR_ENVIRONMENT, users_take(hosts[0], &three, &more, err));
    assert_fails(ERROR_ENVIRONMENT, users_take(hosts[1], &three, &more, err));
    users_give_back(hosts[0], id[0]);
    assert_ok(users_take(hosts[1], &three, &more, err));
    assert_int_equal(more, id[0]);
    users_free(hosts[0]);
    users_free(hosts[1]);
}

/* The ids of a host that is killed can be had again, and those of one that lives cannot. */
static void a_killed_host_gives_its_users_back(void **state)
{
    needs_root();
    int ready[2];
    char byte;
    struct users *u = users_new();
    uint32_t id;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct users *other = users_new();
        for (int i = 0; i < 3; i++)
            if (users_take(other, &three, &id, NULL) < 0)
                _exit(1);
        (void)!write(ready[1], "x", 1);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_fails(ERROR_ENVIRONMENT, users_take(u, &three, &id, err));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (int i = 0; i < 3; i++)
        assert_ok(users_take(u, &three, &id, err));
    users_free(u);
    close(ready[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_is_two_ids),
        cmocka_unit_test(without_a_range_there_is_no_user),
        cmocka_unit_test(two_hosts_never_give_the_same),
        cmocka_unit_test(a_killed_host_gives_its_users_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
