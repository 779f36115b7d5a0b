/* Finding the recorded call that answers a call of a replayed cell. */
#include "../store/stored_run.h"

#include "base/cleanup.h"
#include "broker/replay/replay_log.h"

/* One turn of run "a" with two cells. */
struct log_fixture {
    struct stored_run_file file;
    struct replay_log *recorded;
    int64_t cells[2];
};

static int64_t add_call(
    struct log_fixture *p, int cell, const char *model, const char *text, const char *reply)
{
    int64_t call = stored_run_begin_call(&p->file, p->cells[cell], model, text);
    if (reply)
        end_call(p->file.store, call, reply);
    return call;
}

static int log_setup(void **state)
{
    static struct log_fixture fixture;
    fixture = (struct log_fixture){ 0 };
    if (stored_run_make(&fixture.file) < 0)
        return -1;
    for (int i = 0; i < 2; i++)
        fixture.cells[i] = begin_cell(fixture.file.store, "a", store_text("code"));
    *state = &fixture;
    return 0;
}

static int log_teardown(void **state)
{
    struct log_fixture *p = *state;
    replay_log_free(p->recorded);
    return stored_run_remove(&p->file);
}

#define log_test(f) cmocka_unit_test_setup_teardown(f, log_setup, log_teardown)

static void load(struct log_fixture *p)
{
    assert_ok(replay_log_load(p->file.store, "a", &p->recorded, err));
}

/* The id of the call that answers, which is taken; 0: none does. */
static int64_t asks(struct log_fixture *p, int cell, const char *model, const char *text)
{
    char hash[HASH_TEXT_SIZE];
    assert_ok(hash_sha256(text, strlen(text), hash, err));
    const struct replay_place at = { .cell = p->cells[cell] };
    struct recorded_call *call = replay_log_find(p->recorded, &at, false, model, "m", hash);
    if (call)
        replay_log_take(p->recorded, call);
    return call ? call->id : 0;
}

/* Calls may come in any order; the same request gets its calls in the order of the record. */
static void the_order_of_a_batch_does_not_matter(void **state)
{
    struct log_fixture *p = *state;
    int64_t a = add_call(p, 0, "m", "a", "A"), b = add_call(p, 0, "m", "b", "B"),
            again = add_call(p, 0, "m", "a", "A2");
    load(p);
    assert_int_equal(asks(p, 0, NULL, "b"), b);
    assert_int_equal(asks(p, 0, NULL, "a"), a);
    assert_int_equal(asks(p, 0, NULL, "a"), again);
    assert_int_equal(asks(p, 0, NULL, "a"), 0);
    assert_int_equal(asks(p, 0, NULL, "c"), 0);
}

/* A cell's own call comes before an older one of another cell, which is taken where there is
 * none. */
static void a_cell_gets_its_own_calls_first(void **state)
{
    struct log_fixture *p = *state;
    int64_t other = add_call(p, 0, "m", "a", "A"), own = add_call(p, 1, "m", "a", "A2");
    load(p);
    assert_int_equal(asks(p, 1, NULL, "a"), own);
    assert_int_equal(asks(p, 1, NULL, "a"), other);
}

static int64_t candidate_asks(struct log_fixture *p, const struct replay_place *at)
{
    char hash[HASH_TEXT_SIZE];
    assert_ok(hash_sha256("a", 1, hash, err));
    struct recorded_call *call = replay_log_find(p->recorded, at, false, NULL, "m", hash);
    if (call)
        replay_log_take(p->recorded, call);
    return call ? call->id : 0;
}

/* Candidates of a turn run at once, and each needs what it was given; a thread that the kept one
 * left may ask in a later turn. */
static void a_candidate_gets_no_call_of_another(void **state)
{
    struct log_fixture *p = *state;
    droste_record_cell begin = {
        .run = "a", .turn = 1, .candidate = 1, .code = store_text("code")
    };
    assert_ok(store_cell_begin(p->file.store, &begin, &p->cells[0], err));
    int64_t first = add_call(p, 0, "m", "a", "A"), second = add_call(p, 0, "m", "a", "A");
    load(p);
    struct replay_place at = { .cell = p->cells[1], .turn = 1, .candidate = 2 };
    assert_int_equal(candidate_asks(p, &at), 0);
    at.candidate = 1;
    assert_int_equal(candidate_asks(p, &at), first);
    at = (struct replay_place){ .cell = p->cells[1], .turn = 2, .candidate = 2 };
    assert_int_equal(candidate_asks(p, &at), second);
}

/* A model that the guest named is part of what it asked; where it named none, that of the run comes
 * first. */
static void a_named_model_is_part_of_the_call(void **state)
{
    struct log_fixture *p = *state;
    int64_t named = add_call(p, 0, "x", "a", "A"), plain = add_call(p, 0, "m", "a", "A");
    load(p);
    assert_int_equal(asks(p, 0, "y", "a"), 0);
    assert_int_equal(asks(p, 0, NULL, "a"), plain);
    assert_int_equal(asks(p, 0, "x", "a"), named);
}

/* What is taken back is there again. */
static void what_is_taken_back_can_be_asked_again(void **state)
{
    struct log_fixture *p = *state;
    int64_t a = add_call(p, 0, "m", "a", "A");
    load(p);
    assert_int_equal(asks(p, 0, NULL, "a"), a);
    replay_log_untake(p->recorded, replay_log_call_at(p->recorded, 0));
    assert_int_equal(asks(p, 0, NULL, "a"), a);
}

/* The first call that nobody asked for is named by its number in the cell. */
static void unasked_calls_are_found(void **state)
{
    struct log_fixture *p = *state;
    add_call(p, 0, "m", "a", "A");
    int64_t b = add_call(p, 0, "m", "b", NULL);
    load(p);
    asks(p, 0, NULL, "a");
    struct recorded_call *left = replay_log_unasked(p->recorded, p->cells[0]);
    assert_non_null(left);
    assert_int_equal(left->id, b);
    assert_int_equal(left->number, 2);
    assert_false(left->ended);
    assert_string_equal(left->key, "00112233445566778899aabbccddeeff");
    assert_int_equal(replay_log_asked(p->recorded, p->cells[0]), 1);
    assert_null(replay_log_unasked(p->recorded, p->cells[1]));
}

/* What is still to come tells how long it took to come, from the beginning of its cell; what was
 * asked does not count any more, and neither does a clock that went back. */
static void a_recorded_call_has_its_time_in_the_cell(void **state)
{
    struct log_fixture *p = *state;
    add_call(p, 0, "m", "a", "A");
    add_call(p, 0, "m", "b", "B");
    ask(p->file.place->file, "UPDATE cells SET started_ms = 10000");
    ask(p->file.place->file, "UPDATE calls SET started_ms = 10500");
    ask(p->file.place->file,
        "UPDATE calls SET started_ms = 13000 WHERE id = (SELECT max(id) FROM calls)");
    load(p);
    assert_int_equal(replay_log_unasked_ms(p->recorded, p->cells[0]), 3000);
    asks(p, 0, NULL, "b");
    assert_int_equal(replay_log_unasked_ms(p->recorded, p->cells[0]), 500);
    asks(p, 0, NULL, "a");
    assert_int_equal(replay_log_unasked_ms(p->recorded, p->cells[0]), 0);
    assert_int_equal(replay_log_unasked_ms(p->recorded, p->cells[1]), 0);
    replay_log_free(p->recorded);
    ask(p->file.place->file, "UPDATE cells SET started_ms = 20000");
    load(p);
    assert_int_equal(replay_log_unasked_ms(p->recorded, p->cells[0]), 0);
}

/* Replies come back as they were, a reply of nothing included. */
static void replies_are_read_back(void **state)
{
    struct log_fixture *p = *state;
    cleanup_buf struct buf text = { 0 };
    add_call(p, 0, "m", "a", "the answer");
    add_call(p, 0, "m", "b", "");
    load(p);
    assert_ok(replay_log_read(p->recorded, &replay_log_call_at(p->recorded, 0)->reply, &text, err));
    assert_string_equal(buf_text(&text), "the answer");
    buf_clear(&text);
    assert_ok(replay_log_read(p->recorded, &replay_log_call_at(p->recorded, 1)->reply, &text, err));
    assert_int_equal(text.len, 0);
}

/* ---- child runs ---- */

/* A child of the run, begun in this cell; `hash` is of its context, or NULL. */
static void add_run(struct log_fixture *p, int cell, const char *id, const char *parent,
    const char *question, const char *hash)
{
    char kept[STORE_RUN_ID_SIZE], context[128];
    droste_record_run begin = plain_run(id);
    snprintf(context, sizeof context, "{\"sha256\":\"%s\"}", hash ? hash : "");
    begin.parent = parent;
    begin.parent_cell = p->cells[cell];
    begin.depth = 1;
    begin.question = store_text(question);
    begin.context = store_text(hash ? context : NULL);
    assert_ok(store_run_begin(p->file.store, &begin, kept, err));
}

static void close_run(struct log_fixture *p, const char *id, const char *status, const char *code)
{
    droste_record_run end = {
        .status = status, .error = code ? "why" : NULL, .code = code, .answer = store_text("[1]")
    };
    assert_ok(store_run_end(p->file.store, id, &end, err));
}

/* The run that answers, which is taken; NULL: none does. */
static struct recorded_run *asks_run(
    struct log_fixture *p, int cell, const char *question, const char *context)
{
    char hash[HASH_TEXT_SIZE];
    assert_ok(hash_sha256(question, strlen(question), hash, err));
    const struct replay_place at = { .cell = p->cells[cell] };
    struct recorded_run *run =
        replay_log_find_run(p->recorded, &at, NULL, plain_run("x").model, hash, context);
    if (run)
        replay_log_take_run(p->recorded, run);
    return run;
}

static void assert_is_run(const struct recorded_run *run, const char *id)
{
    assert_non_null(run);
    assert_string_equal(run->id, id);
}

/* Question and context tell children apart; the same ones come in the order in which they began. */
static void children_are_found_by_what_they_are_asked(void **state)
{
    struct log_fixture *p = *state;
    add_run(p, 0, "one", "a", "q", NULL);
    add_run(p, 0, "two", "a", "q", NULL);
    add_run(p, 0, "with", "a", "q", "00ff");
    load(p);
    assert_is_run(asks_run(p, 0, "q", "00ff"), "with");
    assert_null(asks_run(p, 0, "q", "11ff"));
    assert_null(asks_run(p, 0, "p", ""));
    assert_is_run(asks_run(p, 0, "q", ""), "one");
    assert_is_run(asks_run(p, 0, "q", ""), "two");
    assert_null(asks_run(p, 0, "q", ""));
}

/* A run below a child is its child's, not one that this run's code can ask for. */
static void runs_further_down_are_not_asked_for(void **state)
{
    struct log_fixture *p = *state;
    add_run(p, 0, "child", "a", "q", NULL);
    add_run(p, 0, "grandchild", "child", "g", NULL);
    load(p);
    assert_null(asks_run(p, 0, "g", ""));
    struct recorded_run *child = asks_run(p, 0, "q", "");
    assert_is_run(child, "child");
    assert_true(child->own);
    struct recorded_run *below = replay_log_run_at(p->recorded, 1);
    assert_is_run(below, "grandchild");
    assert_ptr_equal(replay_log_run_at(p->recorded, below->top), child);
}

/* What had ended has its answer or its error, under its name; what had not goes on. */
static void a_recorded_child_ends_as_it_did(void **state)
{
    struct log_fixture *p = *state;
    add_run(p, 0, "well", "a", "1", NULL);
    add_run(p, 0, "badly", "a", "2", NULL);
    add_run(p, 0, "older", "a", "3", NULL);
    add_run(p, 0, "never", "a", "4", NULL);
    close_run(p, "well", "answered", NULL);
    close_run(p, "badly", "error", "model_rate");
    close_run(p, "older", "exhausted", NULL);
    load(p);
    struct recorded_run *well = asks_run(p, 0, "1", ""), *badly = asks_run(p, 0, "2", "");
    assert_true(well->ended);
    assert_int_equal(well->error.code, ERROR_NONE);
    assert_int_equal(well->answer.len, 3);
    assert_int_equal(badly->error.code, ERROR_MODEL_RATE);
    assert_string_equal(badly->error.text, "child run badly: why");
    assert_false(asks_run(p, 0, "4", "")->ended);
}

/* A child that nobody asked for is named, and can be asked for again when it is taken back. */
static void unasked_children_are_found(void **state)
{
    struct log_fixture *p = *state;
    add_run(p, 0, "child", "a", "q", NULL);
    load(p);
    assert_is_run(replay_log_unasked_run(p->recorded, p->cells[0]), "child");
    assert_null(replay_log_unasked_run(p->recorded, p->cells[1]));
    struct recorded_run *child = asks_run(p, 0, "q", "");
    assert_null(replay_log_unasked_run(p->recorded, p->cells[0]));
    assert_int_equal(replay_log_cell_at(p->recorded, 0)->calls, 0);
    replay_log_untake_run(p->recorded, child);
    assert_int_equal(replay_log_cell_at(p->recorded, 0)->calls, 1);
    assert_is_run(asks_run(p, 0, "q", ""), "child");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        log_test(the_order_of_a_batch_does_not_matter),
        log_test(a_cell_gets_its_own_calls_first),
        log_test(a_candidate_gets_no_call_of_another),
        log_test(a_named_model_is_part_of_the_call),
        log_test(what_is_taken_back_can_be_asked_again),
        log_test(unasked_calls_are_found),
        log_test(a_recorded_call_has_its_time_in_the_cell),
        log_test(replies_are_read_back),
        log_test(children_are_found_by_what_they_are_asked),
        log_test(runs_further_down_are_not_asked_for),
        log_test(a_recorded_child_ends_as_it_did),
        log_test(unasked_children_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
