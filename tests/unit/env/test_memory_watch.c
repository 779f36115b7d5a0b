/* Measuring the memory of a whole sandbox without a cgroup. Here, a keeper is a process whose child
 * holds memory of some kind; all are idle, like sandboxes between cells. */
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

/* One mapping, which all forks inherit. */
static void hold_shared_in_many(void)
{
    char *p = mmap(NULL, HELD, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(p, 1, HELD);
    for (int i = 0; i < 3; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
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
        loop_turn(f->loop, 1000);
    assert_true(*over);
}

/* Memory of every kind: a limit below it is exceeded, and one above it is not. */
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

static pid_t child_of(pid_t parent)
{
    char path[64];
    int child = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *list = fopen(path, "re");
    assert_non_null(list);
    assert_int_equal(fscanf(list, "%d", &child), 1);
    fclose(list);
    return child;
}

/* A fork has a watch and a limit of its own: what is below its keeper does not count for the first
 * sandbox. The watch that knows of no forks counts it, and shows that all of them were measured. */
static void a_forks_memory_is_its_own(void **state)
{
    struct fixture f;
    bool first_over = false, fork_over = false, whole_over = false;
    const unsigned forks = 1;
    const struct memory_watch_options options = {
        .limit = HELD - 8 * MIB, .forks = &forks, .over = is_over, .arg = &first_over
    };
    struct memory_watch *first = NULL;
    set_up(&f);
    /* The newest is measured first, so `whole` tells that the others were. */
    struct memory_watch *whole = watch_new_one(&f, HELD - 8 * MIB, &whole_over);
    struct memory_watch *fork = watch_new_one(&f, HELD - 8 * MIB, &fork_over);
    assert_ok(memory_watch_open(f.all, &options, &first, err));
    start_keeper(&f, hold_in_many);
    memory_watch_begin(first, f.keeper);
    memory_watch_begin(fork, child_of(f.keeper));
    memory_watch_begin(whole, f.keeper);
    wait_for(&f, &whole_over);
    wait_for(&f, &fork_over);
    assert_false(first_over);
    memory_watch_close(whole);
    memory_watch_close(fork);
    memory_watch_close(first);
    tear_down(&f);
}

/* Forks share a mapping, so it counts once for all of them, also while the shared memory of other
 * programs grows. An ordinary user's host sees only the extent of the mapping. */
static void a_shared_mapping_counts_once_for_all_forks(void **state)
{
    struct fixture f;
    bool over = false, above = false;
    set_up(&f);
    /* The first in the queue is measured first. */
    struct memory_watch *high = watch_new_one(&f, 2 * HELD, &above);
    struct memory_watch *low = watch_new_one(&f, HELD - 8 * MIB, &over);
    start_keeper(&f, hold_shared_in_many);
    int others = memfd_create("others", 0);
    for (int i = 0; i < 3; i++)
        fill(others);
    memory_watch_begin(high, f.keeper);
    memory_watch_begin(low, f.keeper);
    wait_for(&f, &over);
    assert_false(above);
    memory_watch_close(low);
    memory_watch_close(high);
    tear_down(&f);
    close(others);
}

static int context = -1;

static void hold_context(void)
{
    mmap(NULL, HELD, PROT_READ, MAP_SHARED | MAP_POPULATE, context, 0);
}

/* A context that the host has sent is not the guest's memory; without memory_watch_exclude() it
 * would be. */
static void a_context_from_the_host_does_not_count(void **state)
{
    struct fixture f;
    bool over = false, own = false;
    set_up(&f);
    struct memory_watch *excluded = watch_new_one(&f, HELD - 8 * MIB, &over);
    struct memory_watch *counted = watch_new_one(&f, HELD - 8 * MIB, &own);
    context = memfd_create("context", 0);
    fill(context);
    memory_watch_exclude(excluded, context);
    start_keeper(&f, hold_context);
    memory_watch_begin(excluded, f.keeper);
    memory_watch_begin(counted, f.keeper);
    wait_for(&f, &own);
    assert_false(over);
    memory_watch_close(excluded);
    memory_watch_close(counted);
    tear_down(&f);
    close(context);
}

/* A sandbox that does not run yet is left alone, and so is one that holds nothing. */
static void a_small_sandbox_goes_on(void **state)
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

/* The environment and its loop may close while a sandbox is being measured, in a thread. */
static void closing_waits_for_no_measurement(void **state)
{
    struct fixture f;
    bool over = false;
    set_up(&f);
    struct memory_watch *w = watch_new_one(&f, HELD - 8 * MIB, &over);
    start_keeper(&f, hold_private);
    memory_watch_begin(w, f.keeper);
    while (f.loop->held == 0 && !over) /* it may be measured within one turn */
        loop_turn(f.loop, 1000);
    bool before = over;
    memory_watch_close(w);
    tear_down(&f);
    assert_true(over == before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_counts),
        cmocka_unit_test(a_forks_memory_is_its_own),
        cmocka_unit_test(a_shared_mapping_counts_once_for_all_forks),
        cmocka_unit_test(a_context_from_the_host_does_not_count),
        cmocka_unit_test(a_small_sandbox_goes_on),
        cmocka_unit_test(closing_waits_for_no_measurement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
