/* A process counts as dead only if that is certain. */
#include "../store/fixture.h"

#include <signal.h>

#include "base/os/owner.h"

/* This process knows all about itself, and lives. */
static void this_process_is_not_gone(void **state)
{
    struct owner self;
    owner_self(&self);
    assert_int_equal(self.pid, getpid());
    assert_true(self.start > 0);
    assert_true(self.space > 0);
    assert_int_equal(strlen(self.boot), 36);
    assert_false(owner_is_gone(&self, &self));
}

/* The same pid with another start time is another process; another boot ends everything. */
static void a_reused_pid_is_another_process(void **state)
{
    struct owner self, other;
    owner_self(&self);
    other = self;
    other.start--;
    assert_true(owner_is_gone(&other, &self));
    other = self;
    other.boot[0] = self.boot[0] == 'f' ? '0' : 'f';
    assert_true(owner_is_gone(&other, &self));
}

/* Where a part is not known, or the pid means something elsewhere, nobody is declared dead. */
static void doubt_is_no_death(void **state)
{
    struct owner self, other;
    owner_self(&self);
    other = (struct owner){ .pid = 1 << 30, .start = 1, .space = self.space + 1 };
    memcpy(other.boot, self.boot, sizeof other.boot);
    assert_false(owner_is_gone(&other, &self)); /* another pid namespace */
    other.space = self.space;
    assert_true(owner_is_gone(&other, &self)); /* the same: no such pid */
    other.start = 0;
    assert_false(owner_is_gone(&other, &self));
    other.start = 1;
    other.boot[0] = '\0';
    assert_false(owner_is_gone(&other, &self));
}

/* A child lives until it is killed, and is gone before its parent has waited for it. */
static void a_zombie_is_gone(void **state)
{
    struct owner self, child;
    siginfo_t info;
    int ends[2];
    owner_self(&self);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        owner_self(&child);
        if (write(ends[1], &child, sizeof child) != (ssize_t)sizeof child)
            _exit(1);
        pause();
        _exit(1);
    }
    assert_int_equal(read(ends[0], &child, sizeof child), sizeof child);
    assert_int_equal(child.pid, pid);
    assert_false(owner_is_gone(&child, &self));
    kill(pid, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_true(owner_is_gone(&child, &self));
    assert_int_equal(wait_for(pid), -SIGKILL);
    assert_true(owner_is_gone(&child, &self));
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_process_is_not_gone),
        cmocka_unit_test(a_reused_pid_is_another_process),
        cmocka_unit_test(doubt_is_no_death),
        cmocka_unit_test(a_zombie_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
