/* A run whose process has ended, as the loop takes it over from its record. */
#include "../store/stored_run.h"

#include "base/cleanup.h"
#include "rlm/resume.h"

/* One turn of run "a": a call of the loop, and a cell with a call of its own. */
struct resume_fixture {
    struct stored_run_file file;
    struct resume *resume;
    int64_t root, cell, sub;
};

static int resume_setup(void **state)
{
    static struct resume_fixture fixture;
    fixture = (struct resume_fixture){ 0 };
    if (stored_run_make(&fixture.file) < 0)
        return -1;
    struct store *store = fixture.file.store;
    fixture.root = begin_call(store, "a", "[]");
    end_call(store, fixture.root, "reply");
    fixture.cell = begin_cell(store, "a", store_text("x = 1"));
    fixture.sub = stored_run_begin_call(&fixture.file, fixture.cell, "m", "prompt");
    *state = &fixture;
    return 0;
}

static int resume_teardown(void **state)
{
    struct resume_fixture *p = *state;
    resume_free(p->resume);
    return stored_run_remove(&p->file);
}

#define resume_test(f) cmocka_unit_test_setup_teardown(f, resume_setup, resume_teardown)

/* As by another process, later: this one releases the run first, because it is alive. */
static void take_over(struct resume_fixture *p)
{
    assert_ok(store_run_release(p->file.store, "a", err));
    store_close(p->file.store);
    p->file.store = open_store(p->file.place->file);
    assert_ok(resume_open(p->file.store, "a", false, &p->resume, err));
}

static struct recorded_cell *take_cell(struct resume_fixture *p, const char *code)
{
    struct recorded_cell *cell = NULL;
    assert_ok(resume_next_cell(p->resume, 1, 0, code, strlen(code), &cell, err));
    return cell;
}

static void recorded_steps_come_once_and_then_new_ones(void **state)
{
    struct resume_fixture *p = *state;
    struct recorded_call *call = NULL;
    take_over(p);
    assert_true(resume_is_behind(p->resume));
    assert_true(resume_has_turn(p->resume, 1));
    assert_false(resume_has_turn(p->resume, 2));
    assert_ok(resume_next_call(p->resume, 1, 0, &call, err));
    assert_int_equal(call->id, p->root);
    assert_int_equal(take_cell(p, "x = 1")->id, p->cell);
    assert_false(resume_is_behind(p->resume));
    assert_ok(resume_next_call(p->resume, 2, 0, &call, err));
    assert_null(call);
    assert_null(take_cell(p, "anything"));
}

static void other_code_than_recorded_is_refused(void **state)
{
    struct resume_fixture *p = *state;
    struct recorded_cell *cell = NULL;
    take_over(p);
    assert_fails(ERROR_MODEL_REPLAY, resume_next_cell(p->resume, 1, 0, "x = 2", 5, &cell, err));
    assert_fails(ERROR_MODEL_REPLAY, resume_next_cell(p->resume, 2, 0, "x = 1", 5, &cell, err));
    assert_int_equal(take_cell(p, "x = 1")->id, p->cell);
}

static void a_call_of_another_turn_is_refused(void **state)
{
    struct resume_fixture *p = *state;
    struct recorded_call *call = NULL;
    take_over(p);
    assert_fails(ERROR_MODEL_REPLAY, resume_next_call(p->resume, 2, 0, &call, err));
    assert_ok(resume_next_call(p->resume, 1, 0, &call, err));
    assert_int_equal(call->id, p->root);
}

/* A cell that runs again must ask what it asked. A dead sandbox leaves nothing to compare. */
static void a_cell_that_asks_less_than_recorded_is_refused(void **state)
{
    struct resume_fixture *p = *state;
    struct recorded_call *call;
    char hash[HASH_TEXT_SIZE];
    const struct cell_result alive = { .status = CELL_OK, .alive = true };
    const struct cell_result dead = { .status = CELL_OK };
    end_call(p->file.store, p->sub, "answer");
    take_over(p);
    struct recorded_cell *cell = take_cell(p, "x = 1");
    assert_fails(ERROR_MODEL_REPLAY, resume_check_cell(p->resume, cell, &alive, err));
    assert_ok(resume_check_cell(p->resume, cell, &dead, err));
    assert_ok(hash_sha256("prompt", strlen("prompt"), hash, err));
    call = replay_log_find(resume_recorded(p->resume), &(struct replay_place){ .cell = p->cell },
        false, NULL, "m", hash);
    assert_non_null(call);
    replay_log_take(resume_recorded(p->resume), call);
    assert_ok(resume_check_cell(p->resume, cell, &alive, err));
}

static void a_cell_that_ends_otherwise_is_refused(void **state)
{
    struct resume_fixture *p = *state;
    const struct cell_result fine = { .status = CELL_OK }, failed = { .status = CELL_ERROR };
    end_cell(p->file.store, p->cell, store_text("1\n"));
    take_over(p);
    struct recorded_cell *cell = take_cell(p, "x = 1");
    assert_fails(ERROR_MODEL_REPLAY, resume_check_cell(p->resume, cell, &failed, err));
    assert_ok(resume_check_cell(p->resume, cell, &fine, err));
}

/* The cells up to one whose sandbox died are not repeated; their results come from the record. */
static void a_dead_sandbox_leaves_its_results_only(void **state)
{
    struct resume_fixture *p = *state;
    struct cell_result result = { 0 };
    droste_record_cell end = {
        .status = "lost", .killed = "memory", .standard_output = store_text("before\n")
    };
    assert_ok(store_cell_end(p->file.store, p->cell, &end, err));
    int64_t next = begin_cell(p->file.store, "a", store_text("y"));
    take_over(p);
    assert_true(resume_is_gone_cell(p->resume, p->cell));
    assert_false(resume_is_gone_cell(p->resume, next));
    struct recorded_cell *cell = take_cell(p, "x = 1");
    assert_true(resume_is_gone(p->resume, cell));
    assert_ok(resume_cell_result(p->resume, cell, &result, err));
    assert_int_equal(result.status, CELL_LOST);
    assert_false(result.alive);
    assert_string_equal(result.killed, "memory");
    assert_memory_equal(result.out.data, "before\n", 7);
    cell_result_free(&result);
}

/* The loop's own call is not a guest's; the open call counts as one and costs nothing yet. */
static void spending_is_counted_from_the_record(void **state)
{
    struct resume_fixture *p = *state;
    struct budget budget;
    struct account account = { 0 };
    const struct budget_limits limits = { .calls = 3 };
    int64_t second = stored_run_begin_call(&p->file, p->cell, "m", "another");
    droste_record_call end = {
        .status = "ok", .reply = store_text("r"), .input_tokens = 7, .output_tokens = 2
    };
    assert_ok(store_call_end(p->file.store, second, &end, err));
    take_over(p);
    budget_init(&budget, &limits);
    assert_ok(resume_count(p->resume, &budget, &account, err));
    assert_int_equal(budget.guest_calls, 2);
    assert_fails(ERROR_BUDGET_CALLS, budget_reserve(&budget, 2, err));
    assert_ok(budget_reserve(&budget, 1, err));
    assert_int_equal(account.spent.input_tokens, 7);
    budget_free(&budget);
}

/* A call that was in flight is made again, and reported; an answered one only counts. */
static void repeated_calls_are_reported(void **state)
{
    struct resume_fixture *p = *state;
    struct recorded_call *call;
    cleanup_buf struct buf repeated = { 0 };
    char hash[HASH_TEXT_SIZE];
    size_t replayed = 0;
    take_over(p);
    assert_ok(resume_next_call(p->resume, 1, 0, &call, err));
    take_cell(p, "x = 1");
    assert_ok(hash_sha256("prompt", strlen("prompt"), hash, err));
    call = replay_log_find(resume_recorded(p->resume), &(struct replay_place){ .cell = p->cell },
        false, NULL, "m", hash);
    replay_log_take(resume_recorded(p->resume), call);
    resume_tell(p->resume, "a", &replayed, &repeated);
    assert_int_equal(replayed, 1);
    assert_string_equal(buf_text(&repeated), "{\"run\":\"a\",\"turn\":1,\"cell\":1,\"call\":1}");
}

/* Begins the loop's call for a candidate, as the model gets it. */
static int64_t ask_candidate(struct store *store, unsigned candidate)
{
    int64_t call = 0;
    droste_record_call begin = { .run = "a",
        .turn = 2,
        .kind = "root",
        .candidate = candidate,
        .model = "m",
        .request = store_text("[]") };
    assert_ok(store_call_begin(store, &begin, &call, err));
    return call;
}

/* Two of them in a second turn; returns the second one's call. */
static int64_t begin_candidates(struct resume_fixture *p)
{
    struct store *store = p->file.store;
    end_call(store, p->sub, "yes");
    end_cell(store, p->cell, store_text(""));
    assert_ok(store_turn_begin(store, "a", 2, err));
    ask_candidate(store, 1);
    return ask_candidate(store, 2);
}

/* They have the same turn, and differ by their numbers. */
static void repeated_calls_of_candidates_are_distinguished(void **state)
{
    struct resume_fixture *p = *state;
    struct recorded_call *call;
    cleanup_buf struct buf repeated = { 0 };
    size_t replayed = 0;
    unsigned kept = 0;
    begin_candidates(p);
    take_over(p);
    assert_ok(resume_next_call(p->resume, 1, 0, &call, err));
    assert_int_equal(resume_candidates(p->resume, 2, &kept), RESUME_TURN_NEW);
    for (unsigned candidate = 1; candidate <= 2; candidate++) {
        assert_ok(resume_next_call(p->resume, 2, candidate, &call, err));
        assert_int_equal(call->candidate, candidate);
    }
    resume_tell(p->resume, NULL, &replayed, &repeated);
    assert_string_equal(buf_text(&repeated), "{\"candidate\":1,\"turn\":2,\"cell\":0,\"call\":0},"
                                             "{\"candidate\":2,\"turn\":2,\"cell\":0,\"call\":0}");
}

/* Killed after one was kept, and before the other's call was cancelled: it is not made again. */
static void calls_of_other_candidates_are_not_repeated(void **state)
{
    struct resume_fixture *p = *state;
    struct recorded_call *call;
    cleanup_buf struct buf repeated = { 0 };
    size_t replayed = 0;
    unsigned kept = 0;
    end_call(p->file.store, begin_candidates(p), "reply");
    const droste_record_turn turn = {
        .run = "a", .turn = 2, .kept = 2, .reason = "first", .session = "kept"
    };
    assert_ok(store_turn_keep(p->file.store, &turn, err));
    take_over(p);
    assert_ok(resume_next_call(p->resume, 1, 0, &call, err));
    assert_int_equal(resume_candidates(p->resume, 2, &kept), RESUME_TURN_KEPT);
    assert_ok(resume_next_call(p->resume, 2, kept, &call, err));
    resume_tell(p->resume, NULL, &replayed, &repeated);
    assert_string_equal(buf_text(&repeated), "");
    assert_int_equal(replayed, 2);
}

/* Killed between the last cell and the end of the run: the submission is in the record. */
static void a_submission_before_the_end_is_kept(void **state)
{
    struct resume_fixture *p = *state;
    cleanup_buf struct buf fields = { 0 };
    droste_record_cell end = { .status = "submitted", .submit = store_text("{\"x\":1}") };
    assert_ok(store_cell_end(p->file.store, p->cell, &end, err));
    take_over(p);
    assert_true(resume_submitted(p->resume, &fields, NULL));
    assert_string_equal(buf_text(&fields), "{\"x\":1}");
}

static void without_a_submission_the_run_goes_on(void **state)
{
    struct resume_fixture *p = *state;
    cleanup_buf struct buf fields = { 0 };
    end_cell(p->file.store, p->cell, store_text("1\n"));
    take_over(p);
    assert_false(resume_submitted(p->resume, &fields, NULL));
}

static void a_run_that_ended_is_not_taken_over(void **state)
{
    struct resume_fixture *p = *state;
    end_cell(p->file.store, p->cell, store_text(""));
    end_run(p->file.store, "a");
    struct error why = { 0 };
    assert_true(resume_open(p->file.store, "a", false, &p->resume, &why) < 0);
    assert_null(p->resume);
    assert_ok(resume_open(p->file.store, "a", true, &p->resume, err)); /* it may be read again */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        resume_test(recorded_steps_come_once_and_then_new_ones),
        resume_test(other_code_than_recorded_is_refused),
        resume_test(a_call_of_another_turn_is_refused),
        resume_test(a_cell_that_asks_less_than_recorded_is_refused),
        resume_test(a_cell_that_ends_otherwise_is_refused),
        resume_test(a_dead_sandbox_leaves_its_results_only),
        resume_test(spending_is_counted_from_the_record),
        resume_test(repeated_calls_are_reported),
        resume_test(repeated_calls_of_candidates_are_distinguished),
        resume_test(calls_of_other_candidates_are_not_repeated),
        resume_test(a_submission_before_the_end_is_kept),
        resume_test(without_a_submission_the_run_goes_on),
        resume_test(a_run_that_ended_is_not_taken_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
