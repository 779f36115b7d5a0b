/* Following a run by its numbered events, and lists of one account. */
#include "fixture.h"

/* What a visit saw, one word a step. */
struct seen {
    char steps[512];
    int64_t stop_at; /* the last run's number in the record */
};

static int see_status(void *arg, const char *what, int64_t number, const char *status)
{
    struct seen *seen = arg;
    size_t used = strlen(seen->steps);
    snprintf(seen->steps + used, sizeof seen->steps - used, "%s%s%lld:%s", used ? " " : "", what,
        (long long)number, status);
    return 0;
}

static int follow_run(void *arg, const droste_record_run *run, struct error *err)
{
    return see_status(arg, "run", run->depth, run->isolation ? run->isolation : run->status);
}

static int follow_turn(void *arg, const droste_record_turn *turn, struct error *err)
{
    return see_status(arg, "turn", turn->turn, turn->kept ? turn->reason : "-");
}

static int follow_call(void *arg, const droste_record_call *call, struct error *err)
{
    bool has_reply = call->reply.data != NULL;
    assert_int_equal(has_reply, strcmp(call->status, "ok") == 0);
    assert_int_equal(has_reply, call->ended_ms != 0);
    return see_status(arg, "call", call->id, call->status);
}

static int follow_cell(void *arg, const droste_record_cell *cell, struct error *err)
{
    assert_int_equal(cell->standard_output.data != NULL, cell->ended_ms != 0);
    return see_status(arg, "cell", cell->id, cell->status);
}

static int follow_end(void *arg, const droste_record_run *run, struct error *err)
{
    return see_status(arg, "end", run->depth, run->status);
}

static const struct store_visitor following = { .run = follow_run,
    .turn = follow_turn,
    .call = follow_call,
    .cell = follow_cell,
    .end = follow_end,
    .children = true };

static void assert_follows(
    struct store *store, const char *run, int64_t *at, int64_t most, const char *expected)
{
    struct seen seen = { 0 };
    assert_ok(store_run_follow(store, run, at, most, &following, &seen, err));
    assert_string_equal(seen.steps, expected);
}

/* A run with a turn, a cell with a call in it, and a child run of another store's process. */
static void write_followed(struct store *store)
{
    char id[STORE_RUN_ID_SIZE];
    droste_record_cell cell_end = { .status = "ok", .standard_output = store_text("x") };
    droste_record_turn kept = { .run = "a", .turn = 1, .kept = 1, .reason = "first" };
    begin_run(store, "a");
    assert_ok(store_run_note_isolation(store, "a", "full", err));
    assert_ok(store_turn_begin(store, "a", 1, err));
    int64_t cell = begin_cell(store, "a", store_text("1"));
    int64_t one = begin_call(store, "a", "p"), two = begin_call(store, "a", "q");
    end_call(store, two, "late");
    droste_record_run child = plain_run("b");
    child.parent = "a";
    child.parent_cell = cell;
    child.depth = 1;
    assert_ok(store_run_begin(store, &child, id, err));
    end_run(store, "b");
    end_call(store, one, "later");
    assert_ok(store_cell_end(store, cell, &cell_end, err));
    assert_ok(store_turn_keep(store, &kept, err));
    end_run(store, "a");
}

static const char followed[] = "run0:running run0:full turn1:- cell1:running call2:running "
                               "call3:running call3:ok run1:running end1:done call2:ok cell1:ok "
                               "turn1:first end0:done";

/* A reader that looks once, or again and again, sees the same events in the same order, and each
 * step's beginning as it was then, whether it looks in time or after the end. */
static void events_are_the_same_whenever_they_are_read(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file), *reader = open_store(place->file);
    int64_t at = 0, last = -1;
    struct seen seen = { 0 };
    write_followed(store);
    assert_follows(reader, "a", &at, 0, followed);
    assert_follows(reader, "a", &at, 0, "");
    for (at = 0; at != last;) {
        last = at;
        assert_ok(store_run_follow(reader, "a", &at, 1, &following, &seen, err));
        assert_true(at >= last);
    }
    assert_string_equal(seen.steps, followed);
    store_close(reader);
    store_close(store);
}

/* A reader keeps its place while the run goes on, and when another process resumes it. */
static void events_go_on_after_an_interruption(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    int64_t at = 0;
    begin_run(store, "a");
    assert_ok(store_turn_begin(store, "a", 1, err));
    int64_t call = begin_call(store, "a", "p");
    assert_follows(store, "a", &at, 0, "run0:running turn1:- call1:running");
    assert_ok(store_run_release(store, "a", err));
    assert_follows(store, "a", &at, 0, "");
    assert_ok(store_run_adopt(store, "a", err));
    assert_ok(store_call_repeat(store, call, err));
    end_call(store, call, "yes");
    end_run(store, "a");
    assert_follows(store, "a", &at, 0, "call1:ok end0:done");
    store_close(store);
}

/* Without children a run's own events only; none of a run that was removed, or never was. */
static void events_are_those_of_their_run(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    struct store_visitor alone = following;
    struct seen seen = { 0 };
    droste_record_freed freed = { 0 };
    int64_t at = 0;
    write_followed(store);
    alone.children = false;
    assert_follows(store, "b", &at, 0, "run1:running end1:done");
    at = 0;
    assert_ok(store_run_follow(store, "a", &at, 2, &alone, &seen, err));
    assert_string_equal(seen.steps, "run0:running run0:full");
    assert_ok(store_run_follow(store, "a", &at, 0, &alone, &seen, err));
    assert_null(strstr(seen.steps, "run1"));
    assert_non_null(strstr(seen.steps, "end0:done"));
    assert_ok(store_run_remove(store, "a", &freed, err));
    at = 0;
    assert_follows(store, "a", &at, 0, "");
    store_close(store);
}

/* One run by its whole id; not by a part of it. */
static void a_run_is_got_by_its_id(void **state)
{
    struct place *place = *state;
    struct store *store = open_store(place->file);
    struct seen seen = { 0 };
    begin_run(store, "ab");
    assert_ok(store_run_get(store, "ab", follow_run, &seen, err));
    assert_string_equal(seen.steps, "run0:running");
    assert_fails(ERROR_NOT_FOUND, store_run_get(store, "a", follow_run, &seen, err));
    store_close(store);
}

static int see_account(void *arg, const droste_record_run *run, struct error *err)
{
    struct seen *seen = arg;
    size_t used = strlen(seen->steps);
    snprintf(seen->steps + used, sizeof seen->steps - used, "%s%s", used ? " " : "", run->id);
    seen->stop_at = run->seq;
    return 0;
}

static void assert_pages(
    struct store *store, droste_record_filter filter, struct seen *seen, const char *expected)
{
    *seen = (struct seen){ 0 };
    assert_ok(store_run_list(store, &filter, see_account, seen, err));
    assert_string_equal(seen->steps, expected);
}

/* An account sees its own runs; pages follow each other by `before`. */
static void lists_are_filtered_by_account_and_page(void **state)
{
    static const char *const accounts[] = { "x", NULL, "y", "x", "x" };
    struct place *place = *state;
    struct store *store = open_store(place->file);
    struct seen seen;
    for (size_t i = 0; i < 5; i++) {
        char id[] = { (char)('a' + i), '\0' }, made[STORE_RUN_ID_SIZE];
        droste_record_run begin = plain_run(id);
        begin.account = accounts[i];
        assert_ok(store_run_begin(store, &begin, made, err));
    }
    assert_pages(store, (droste_record_filter){ .account = "y" }, &seen, "c");
    assert_pages(store, (droste_record_filter){ .account = "z" }, &seen, "");
    assert_pages(store, (droste_record_filter){ .account = "" }, &seen, "e d c a");
    assert_pages(store, (droste_record_filter){ 0 }, &seen, "e d c b a");
    assert_pages(store, (droste_record_filter){ .account = "x", .limit = 2 }, &seen, "e d");
    int64_t before = seen.stop_at;
    assert_pages(
        store, (droste_record_filter){ .account = "x", .limit = 2, .before = before }, &seen, "a");
    assert_pages(store, (droste_record_filter){ .since_ms = 1 }, &seen, "e d c b a");
    assert_pages(store, (droste_record_filter){ .since_ms = INT64_MAX }, &seen, "");
    store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        store_test(events_are_the_same_whenever_they_are_read),
        store_test(events_go_on_after_an_interruption),
        store_test(events_are_those_of_their_run),
        store_test(a_run_is_got_by_its_id),
        store_test(lists_are_filtered_by_account_and_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
