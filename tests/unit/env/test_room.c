/* What is missing for another sandbox, by name, and the queue of those that wait for it: in a mount
 * namespace where files of the test's own are what the kernel says of memory and processes. */
#include "../test.h"
#include "wait.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "env/local/room.h"

enum { MANY = 100, WAITING = 3 };

static const char plenty[] = "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n";
static const char scarce[] = "MemTotal: 1000000 kB\nMemAvailable: 15000 kB\n";

/* Sandboxes are only compared by the queue. */
static char waiting[WAITING];

static struct {
    struct loop *loop;
    struct room *room;
    char dir[32];
    bool is_apart;
    const void *started[WAITING];
    struct error why[WAITING];
    int count;
} all = { .dir = "/tmp/droste-room-XXXXXX" };

static struct sandbox *sandbox_of(int n)
{
    return (struct sandbox *)(void *)&waiting[n];
}

static void start_one(struct sandbox *s, const struct error *why)
{
    all.started[all.count] = s;
    all.why[all.count++] = why ? *why : (struct error){ 0 };
}

static void say(const char *name, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", all.dir, name);
    cleanup_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

/* The file `name` is what the kernel says at `path` from now on. */
static bool stands_for(const char *name, const char *path, const char *text)
{
    char own[64];
    snprintf(own, sizeof own, "%s/%s", all.dir, name);
    say(name, text);
    return mount(own, path, NULL, MS_BIND, NULL) == 0;
}

static int setup_machine(void **state)
{
    char box[64], pids[64];
    assert_non_null(mkdtemp(all.dir));
    snprintf(box, sizeof box, "%s/group", all.dir);
    snprintf(pids, sizeof pids, "%s/group/box", all.dir);
    assert_int_equal(mkdir(box, 0755) | mkdir(pids, 0755), 0);
    say("group/box/pids.max", "max\n");
    say("group/box/pids.current", "10\n");
    all.is_apart = unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)) == 0 &&
                   mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                   stands_for("meminfo", "/proc/meminfo", plenty) &&
                   stands_for("loadavg", "/proc/loadavg", "0.1 0.1 0.1 1/300 4000\n") &&
                   stands_for("threads", "/proc/sys/kernel/threads-max", "10000\n") &&
                   stands_for("cgroup", "/proc/self/cgroup", "0::/box\n") &&
                   mount(box, "/sys/fs/cgroup", NULL, MS_BIND, NULL) == 0;
    return 0;
}

static int teardown_machine(void **state)
{
    static const char *const names[] = { "meminfo", "loadavg", "threads", "cgroup",
        "group/box/pids.max", "group/box/pids.current", "group/box", "group", "" };
    static const char *const mounted[] = { "/proc/meminfo", "/proc/loadavg",
        "/proc/sys/kernel/threads-max", "/proc/self/cgroup", "/sys/fs/cgroup" };
    for (size_t i = 0; all.is_apart && i < array_length(mounted); i++)
        umount2(mounted[i], MNT_DETACH);
    for (size_t i = 0; i < array_length(names); i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", all.dir, names[i]);
        remove(path);
    }
    return 0;
}

static int setup(void **state)
{
    all.count = 0;
    assert_ok(loop_open(&all.loop, err));
    assert_ok(room_open(all.loop, start_one, &all.room, err));
    return 0;
}

static int teardown(void **state)
{
    if (all.is_apart) {
        say("meminfo", plenty);
        say("loadavg", "0.1 0.1 0.1 1/300 4000\n");
        say("group/box/pids.max", "max\n");
    }
    room_close(all.room);
    loop_close(all.loop);
    return 0;
}

static void needs_a_machine(void)
{
    if (all.is_apart)
        return;
    print_message("skipped: needs a mount namespace\n");
    skip();
}

/* The machine is looked at again after 10 ms. */
static void assert_no_room(const char *what, const char *to_do)
{
    struct error why = { 0 };
    wait_until(&all, room_check(all.room, MANY, &why) < 0);
    assert_int_equal(why.code, ERROR_ENVIRONMENT);
    if (!strstr(why.text, what) || !strstr(why.text, to_do))
        fail_msg("it says: %s", why.text);
    assert_int_equal(room_check(all.room, 1, NULL), 0); /* the first ones start in any case */
}

static void missing_memory_is_named(void **state)
{
    needs_a_machine();
    assert_int_equal(room_check(all.room, MANY, NULL), 0);
    say("meminfo", scarce);
    assert_no_room("14 MB of the machine's 976 MB of memory", "close sessions");
}

static void missing_processes_of_the_machine_are_named(void **state)
{
    needs_a_machine();
    assert_int_equal(room_check(all.room, MANY, NULL), 0);
    say("loadavg", "0.1 0.1 0.1 1/9900 40000\n");
    assert_no_room("9900 of at most 10000 threads", "kernel.threads-max");
}

static void missing_processes_of_the_container_are_named(void **state)
{
    needs_a_machine();
    assert_int_equal(room_check(all.room, MANY, NULL), 0);
    say("group/box/pids.max", "30\n");
    assert_no_room("10 of at most 30 processes", "--pids-limit");
}

/* In the order in which they came, as soon as the machine has memory again. */
static void those_that_wait_start_when_there_is_memory(void **state)
{
    needs_a_machine();
    say("meminfo", scarce);
    assert_no_room("memory", "close sessions");
    room_changed(all.room, MANY);
    for (int i = 0; i < WAITING; i++)
        assert_ok(room_wait(all.room, sandbox_of(i), 1000, err));
    for (int i = 0; i < 10; i++)
        loop_turn(all.loop, 1);
    assert_int_equal(all.count, 0);
    assert_true(room_is_awaited(all.room));
    say("meminfo", plenty);
    wait_until(&all, all.count == WAITING);
    for (int i = 0; i < WAITING; i++) {
        assert_ptr_equal(all.started[i], sandbox_of(i));
        assert_int_equal(all.why[i].code, ERROR_NONE);
    }
    assert_false(room_is_awaited(all.room));
}

static void a_wait_that_is_over_says_for_what(void **state)
{
    needs_a_machine();
    say("meminfo", scarce);
    assert_no_room("memory", "close sessions");
    room_changed(all.room, MANY);
    assert_ok(room_wait(all.room, sandbox_of(0), 0.02, err));
    wait_until(&all, all.count == 1);
    assert_int_equal(all.why[0].code, ERROR_ENVIRONMENT);
    assert_non_null(strstr(all.why[0].text, "start-wait"));
    assert_non_null(strstr(all.why[0].text, "memory are available"));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(missing_memory_is_named),
        T(missing_processes_of_the_machine_are_named),
        T(missing_processes_of_the_container_are_named),
        T(those_that_wait_start_when_there_is_memory),
        T(a_wait_that_is_over_says_for_what),
    };
    return cmocka_run_group_tests(tests, setup_machine, teardown_machine);
}
