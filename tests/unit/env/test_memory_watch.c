/* The memory of a whole sandbox, where no cgroup counts it. A keeper here is a process whose child holds memory in
 * one way or another; nothing is busy, so that these are sandboxes between their cells. */
#include "../test.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "env/local/memory_watch.h"

enum { PATIENCE_S = 60 };
static const size_t MIB = 1 << 20, HELD = 48 << 20;

struct fixture {
    struct loop *loop;
    struct memory_watches *all;
    pid_t keeper;
};

static void hold_private(void)
{
    memset(malloc(HELD), 1, HELD);
}

static void hold_shared(void)
{
    char *p = mmap(NULL, HELD, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(p, 1, HELD);
    madvise(p, HELD, MADV_DONTNEED);
}

static void fill(int fd)
{
    char data[4096] = { 1 };
    for (size_t n = 0; n < HELD; n += sizeof data)
        if (write(fd, data, sizeof data) != sizeof data)
            _exit(1);
}

static void hold_file(void)
{
    fill(memfd_create("held", 0));
}

static void hold_tables(void)
{
    size_t size = HELD / 4096 * 2 * MIB;
    volatile char *p = mmap(
        NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    madvise((void *)p, size, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < size; at += 2 * MIB)
        (void)p[at];
}

static void hold_in_many(void)
{
    for (int i = 0; i < 6; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            memset(malloc(HELD / 6), 1, HELD / 6);
            for (;;)
                pause();
        }
}

static void hold_nothing(void)
{
}

/* When this returns the worker holds what it holds. */
static void start_keeper(struct fixture *f, void (*hold)(void))
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    f->keeper = fork();
    if (f->keeper == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            hold();
            (void)!write(ends[1], "", 1);
        }
        for (;;)
            pause();
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
}

static void set_up(struct fixture *f)
{
    *f = (struct fixture){ 0 };
    assert_ok(loop_open(&f->loop, err));
    assert_ok(memory_watches_open(f->loop, &f->all, err));
}

static void tear_down(struct fixture *f)
{
    kill(f->keeper, SIGKILL);
    waitpid(f->keeper, NULL, 0);
    memory_watches_close(f->all);
    loop_close(f->loop);
}

static void is_over(void *arg)
{
    *(bool *)arg = true;
}

/* As of a sandbox that is about to start. */
static struct memory_watch *watch_new_one(struct fixture *f, size_t limit, bool *over)
{
    const struct memory_watch_options options = { .limit = limit, .over = is_over, .arg = over };
    struct memory_watch *w = NULL;
    assert_ok(memory_watch_open(f->all, &options, &w, err));
    return w;
}

static void wait_for(struct fixture *f, const bool *over)
{
    uint64_t begun = clock_ns();
    while (!*over && clock_seconds_since(begun) < PATIENCE_S)
        assert_true(loop_turn(f->loop, 1000, NULL) >= 0);
    assert_true(*over);
}

/* Whatever it is that is held: a limit below it is exceeded, and one above it is not. */
static void everything_counts(void **state)
{
    static void (*const kinds[])(
        void) = { hold_private, hold_shared, hold_file, hold_tables, hold_in_many };
    for (size_t i = 0; i < array_length(kinds); i++) {
        struct fixture f;
        bool over = false, above = false;
        set_up(&f);
        struct memory_watch *high = watch_new_one(&f, 2 * HELD, &above);
        struct memory_watch *low = watch_new_one(&f, HELD - 8 * MIB, &over);
        start_keeper(&f, kinds[i]);
        memory_watch_begin(high, f.keeper);
        memory_watch_begin(low, f.keeper);
        wait_for(&f, &over);
        assert_false(above);
        memory_watch_close(low);
        memory_watch_close(high);
        tear_down(&f);
    }
}

static int given = -1;

static void hold_what_was_given(void)
{
    mmap(NULL, HELD, PROT_READ, MAP_SHARED | MAP_POPULATE, given, 0);
}

/* A context that the host has sent is not the guest's memory; to a watch that was not told it is. */
static void what_the_host_gave_does_not_count(void **state)
{
    struct fixture f;
    bool over = false, own = false;
    set_up(&f);
    struct memory_watch *told = watch_new_one(&f, HELD - 8 * MIB, &over);
    struct memory_watch *untold = watch_new_one(&f, HELD - 8 * MIB, &own);
    given = memfd_create("given", 0);
    fill(given);
    memory_watch_exclude(told, given);
    start_keeper(&f, hold_what_was_given);
    memory_watch_begin(told, f.keeper);
    memory_watch_begin(untold, f.keeper);
    wait_for(&f, &own);
    assert_false(over);
    memory_watch_close(told);
    memory_watch_close(untold);
    tear_down(&f);
    close(given);
}

/* One that does not run yet is left alone, and so is one without anything. */
static void what_is_small_goes_on(void **state)
{
    struct fixture f;
    bool small = false, over = false, waits = false;
    set_up(&f);
    struct memory_watch *w[] = { watch_new_one(&f, HELD - 8 * MIB, &small),
        watch_new_one(&f, 1, &waits), watch_new_one(&f, HELD - 8 * MIB, &over) };
    start_keeper(&f, hold_nothing);
    pid_t idle = f.keeper;
    memory_watch_begin(w[0], idle);
    memory_watch_busy(w[0], true);
    start_keeper(&f, hold_private);
    memory_watch_begin(w[2], f.keeper);
    wait_for(&f, &over);
    assert_false(small);
    assert_false(waits);
    for (size_t i = 0; i < array_length(w); i++)
        memory_watch_close(w[i]);
    kill(idle, SIGKILL);
    waitpid(idle, NULL, 0);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_counts),
        cmocka_unit_test(what_the_host_gave_does_not_count),
        cmocka_unit_test(what_is_small_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
