/* A process that is killed leaves exactly the steps that had returned, and its run is known to be
 * nobody's. */
#include "fixture.h"

#include <signal.h>

enum { STEPS = 8 };

/* One step of a small run; each is one transaction. */
static void take_step(struct store *store, int n, int64_t *id)
{
    switch (n) {
    case 0:
        begin_run(store, "a");
        return;
    case 1:
        assert_ok(store_turn_begin(store, "a", 1, err));
        return;
    case 2:
    case 4:
        *id = begin_call(store, "a", "prompt");
        return;
    case 3:
    case 5:
        end_call(store, *id, "reply");
        return;
    case 6:
        *id = begin_cell(store, "a", store_text("code"));
        return;
    default:
        end_cell(store, *id, store_text("output"));
    }
}

/* Takes n steps in a process that is then killed, without a chance to tidy up. */
static void die_after(const char *file, int n)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct store *store = open_store(file);
        int64_t id = 0;
        for (int i = 0; i < n; i++)
            take_step(store, i, &id);
        raise(SIGKILL);
    }
    assert_int_equal(wait_for(pid), -SIGKILL);
}

static int64_t count_steps(const char *file)
{
    return ask(file, "SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM turns)"
                     " + (SELECT count(*) + count(ended_ms) FROM calls)"
                     " + (SELECT count(*) + count(ended_ms) FROM cells)");
}

/* After n steps and a SIGKILL there are n steps, for every n, and the file is sound. */
static void a_killed_process_leaves_what_it_did(void **state)
{
    struct place *place = *state;
    for (int n = 1; n <= STEPS; n++) {
        char file[sizeof place->file + 4];
        snprintf(file, sizeof file, "%s.%d", place->file, n);
        die_after(file, n);
        assert_int_equal(count_steps(file), n);
        assert_intact(file);
    }
}

/* A process killed at any moment whatever leaves whole steps in their order, and no half one. */
static void a_kill_at_any_moment_leaves_whole_steps(void **state)
{
    struct place *place = *state;
    for (int i = 0; i < 20; i++) {
        char file[sizeof place->file + 4];
        snprintf(file, sizeof file, "%s.%d", place->file, i);
        pid_t pid = fork();
        if (pid == 0) {
            struct store *store = open_store(file);
            int64_t id = 0;
            take_step(store, 0, &id);
            take_step(store, 1, &id);
            for (int n = 2;; n = n == STEPS - 1 ? 2 : n + 1)
                take_step(store, n, &id);
        }
        usleep(20000 + 3100 * (unsigned)i);
        kill(pid, SIGKILL);
        assert_int_equal(wait_for(pid), -SIGKILL);
        store_close(open_store(file));
        assert_intact(file);
        /* Steps are taken one after the other: at most the newest has not ended. */
        assert_true(ask(file, "SELECT (SELECT count(*) FROM calls WHERE ended_ms IS NULL)"
                              " + (SELECT count(*) FROM cells WHERE ended_ms IS NULL)") <= 1);
    }
}

struct statuses {
    const char *run, *call, *cell; /* expected */
    int seen;
};

static int check_run(void *arg, const droste_record_run *run, struct error *err)
{
    struct statuses *statuses = arg;
    assert_string_equal(run->status, statuses->run);
    statuses->seen++;
    return 0;
}

static int check_call(void *arg, const droste_record_call *call, struct error *err)
{
    struct statuses *statuses = arg;
    assert_string_equal(call->status, statuses->call);
    statuses->seen++;
    return 0;
}

static int check_cell(void *arg, const droste_record_cell *cell, struct error *err)
{
    struct statuses *statuses = arg;
    assert_string_equal(cell->status, statuses->cell);
    statuses->seen++;
    return 0;
}

static void assert_reads(struct store *store, struct statuses statuses, int steps)
{
    struct store_visitor visitor = { .run = check_run, .call = check_call, .cell = check_cell };
    droste_record_filter all = { .children = true };
    assert_ok(store_run_visit(store, "a", &visitor, &statuses, err));
    assert_int_equal(statuses.seen, steps);
    assert_ok(store_run_list(store, &all, check_run, &statuses, err));
    assert_int_equal(statuses.seen, steps + 1);
}

/* The run of a dead process is interrupted, and its open steps with it; those that ended are as
 * they were. */
static void a_dead_process_has_interrupted_its_run(void **state)
{
    struct place *place = *state;
    die_after(place->file, STEPS - 1);
    struct store *store = open_store(place->file);
    assert_reads(store, (struct statuses){ "interrupted", "ok", "interrupted", 0 }, 4);
    store_close(store);
}

/* The run of a process that lives is running, whoever asks. */
static void a_living_process_is_running_its_run(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    begin_run(store, "a");
    pid_t pid = fork();
    if (pid == 0) {
        struct store *other = open_store(place->file);
        assert_reads(other, (struct statuses){ .run = "running" }, 1);
        assert_fails(ERROR_ARGUMENT, store_run_adopt(other, "a", err));
        store_close(other);
        _exit(0);
    }
    assert_int_equal(wait_for(pid), 0);
    store_close(store);
}

/* A run that was interrupted can be taken over, goes on, and ends; but only once. */
static void an_interrupted_run_can_be_adopted(void **state)
{
    struct place *place = *state;
    die_after(place->file, STEPS - 1);
    struct store *store = open_store(place->file);
    assert_fails(ERROR_NOT_FOUND, store_run_adopt(store, "b", err));
    assert_ok(store_run_adopt(store, "a", err));
    assert_reads(store, (struct statuses){ "running", "ok", "running", 0 }, 4);
    assert_fails(ERROR_ARGUMENT, store_run_adopt(store, "a", err));
    end_run(store, "a");
    assert_reads(store, (struct statuses){ "done", "ok", "interrupted", 0 }, 4);
    assert_fails(ERROR_ARGUMENT, store_run_adopt(store, "a", err));
    store_close(store);
}

/* A run that was taken over and given back is interrupted, and can be taken over again; a call that
 * was under way can be made once more until it has ended. */
static void a_run_can_be_released(void **state)
{
    struct place *place = *state;
    die_after(place->file, STEPS - 1);
    struct store *store = open_store(place->file);
    assert_ok(store_run_adopt(store, "a", err));
    int64_t call = begin_call(store, "a", "more?");
    assert_ok(store_run_release(store, "a", err));
    assert_int_equal(ask(place->file, "SELECT count(*) FROM runs WHERE status = 'interrupted'"), 1);
    assert_ok(store_run_adopt(store, "a", err));
    assert_ok(store_call_repeat(store, call, err));
    end_call(store, call, "yes");
    assert_fails(ERROR_ARGUMENT, store_call_repeat(store, call, err));
    end_run(store, "a");
    store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        store_test(a_killed_process_leaves_what_it_did),
        store_test(a_kill_at_any_moment_leaves_whole_steps),
        store_test(a_dead_process_has_interrupted_its_run),
        store_test(a_living_process_is_running_its_run),
        store_test(an_interrupted_run_can_be_adopted),
        store_test(a_run_can_be_released),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
