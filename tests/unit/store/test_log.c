/* A log has what is written of a run, and makes the same run in another record; it says when all of
 * it is kept elsewhere, and cannot touch another run. */
#include "fixture.h"

#include "base/buf.h"
#include "store/log.h"

struct kept {
    struct buf units;
    struct store_log *log;
    int wakes;
};

static void on_wake(void *arg)
{
    ((struct kept *)arg)->wakes++;
}

static void keep_all(struct kept *kept)
{
    while (store_log_take(kept->log, &kept->units))
        store_log_kept(kept->log);
    assert_false(buf_failed(&kept->units));
}

static struct store *open_log(struct store *store, const char *run, struct kept *kept)
{
    assert_ok(store_log_open(store, run, on_wake, kept, &kept->log, err));
    return store_log_store(kept->log);
}

static void begin_child(struct store *store, const char *id, const char *parent, int64_t cell)
{
    char made[STORE_RUN_ID_SIZE];
    droste_record_run begin = plain_run(id);
    begin.parent = parent;
    begin.parent_cell = cell;
    begin.depth = 1;
    assert_ok(store_run_begin(store, &begin, made, err));
}

/* A turn with a call, a cell with a rich result, a child, a request to the network, and a call that
 * has not ended. */
static int64_t write_much(struct store *store, const char *run)
{
    static char large[5000];
    const droste_record_media media[] = { { 0, "image/png", "bytes", { "P\0G", 3, NULL } } };
    const droste_record_request request = {
        .run = run, .turn = 1, .method = "GET", .host = "example.org", .port = 443, .seconds = -1
    };
    int64_t number;
    memset(large, 'x', sizeof large - 1);
    begin_run(store, run);
    assert_ok(store_run_note_isolation(store, run, "full", err));
    assert_ok(store_turn_begin(store, run, 1, err));
    end_call(store, begin_call(store, run, "prompt"), large);
    int64_t cell = begin_cell(store, run, store_text("code"));
    begin_child(store, "child", run, cell);
    assert_ok(store_turn_begin(store, "child", 1, err));
    end_call(store, begin_call(store, "child", "below"), "reply below");
    end_run(store, "child");
    assert_ok(store_request_begin(store, &request, &number, err));
    assert_ok(store_request_end(store, number, &request, err));
    const droste_record_cell end = { .status = "ok", .media = media, .media_count = 1 };
    assert_ok(store_cell_end(store, cell, &end, err));
    return begin_call(store, run, "open");
}

static int add_event(void *arg, const droste_record_call *call, struct error *err)
{
    buf_printf(arg, "call %s %s %s %lld %.*s>%.*s;", call->run, call->kind, call->status,
        (long long)call->started_ms, (int)call->request.len,
        call->request.data ? (const char *)call->request.data : "", (int)call->reply.len,
        call->reply.data ? (const char *)call->reply.data : "");
    return 0;
}

static int add_cell(void *arg, const droste_record_cell *cell, struct error *err)
{
    buf_printf(arg, "cell %s %s %lld %zu;", cell->run, cell->status, (long long)cell->ended_ms,
        cell->media_count);
    return 0;
}

static int add_run(void *arg, const droste_record_run *run, struct error *err)
{
    buf_printf(arg, "run %s %s %s %lld %zu;", run->id, run->parent ? run->parent : "-",
        run->isolation ? run->isolation : "-", (long long)run->started_ms, run->request_count);
    return 0;
}

static void read_run(struct store *store, const char *run, struct buf *out)
{
    const struct store_visitor visitor = {
        .run = add_run, .call = add_event, .cell = add_cell, .children = true
    };
    assert_ok(store_run_visit(store, run, &visitor, out, err));
}

/* Another record, whose ids are others, has the same run afterwards; it can be adopted there. */
static void another_record_has_the_same_run(void **state)
{
    struct place *place = *state;
    char other[120];
    cleanup_buf struct buf here = { 0 }, there = { 0 };
    struct kept kept = { 0 };
    struct store *store = open_store(place->file);
    snprintf(other, sizeof other, "%s/other.db", place->directory);
    struct store *second = open_store(other);
    begin_run(second, "unrelated");
    assert_ok(store_turn_begin(second, "unrelated", 1, err));
    end_call(second, begin_call(second, "unrelated", "x"), "y");
    struct store *view = open_log(store, NULL, &kept);
    write_much(view, "a");
    keep_all(&kept);
    assert_ok(store_import(second, "a", kept.units.data, kept.units.len, err));
    read_run(store, "a", &here);
    read_run(second, "a", &there);
    char *open = strstr(here.data, "running"); /* the status of the open call */
    assert_non_null(open);
    assert_non_null(strstr(there.data, "interrupted"));
    size_t until = (size_t)(open - here.data);
    assert_memory_equal(here.data, there.data, until);
    assert_int_equal(ask(other, "SELECT count(*) FROM runs WHERE status = 'interrupted'"), 1);
    assert_ok(store_run_adopt(second, "a", err));
    /* once more replaces it, but not while it is active */
    assert_fails(ERROR_ARGUMENT, store_import(second, "a", kept.units.data, kept.units.len, err));
    assert_ok(store_run_release(second, "a", err));
    assert_ok(store_import(second, "a", kept.units.data, kept.units.len, err));
    assert_int_equal(ask(other, "SELECT count(*) FROM runs"), 3);
    /* or after this process has left it without an end */
    droste_record_freed freed;
    assert_ok(store_run_adopt(second, "a", err));
    assert_fails(ERROR_ARGUMENT, store_run_remove(second, "a", &freed, err));
    assert_ok(store_run_remove_left(second, "a", &freed, err));
    assert_ok(store_import(second, "a", kept.units.data, kept.units.len, err));
    store_log_close(kept.log);
    buf_free(&kept.units);
    store_close(store);
    store_close(second);
}

/* The log goes on where another process left it: its ids are those of neither record. */
static void a_second_process_goes_on_with_the_log(void **state)
{
    struct place *place = *state;
    char second_file[120], third_file[120];
    struct kept kept = { 0 };
    struct store *store = open_store(place->file);
    snprintf(second_file, sizeof second_file, "%s/2.db", place->directory);
    snprintf(third_file, sizeof third_file, "%s/3.db", place->directory);
    struct store *second = open_store(second_file), *third = open_store(third_file);
    begin_run(second, "unrelated");
    assert_ok(store_turn_begin(second, "unrelated", 1, err));
    end_call(second, begin_call(second, "unrelated", "x"), "y");
    write_much(open_log(store, NULL, &kept), "a");
    keep_all(&kept);
    store_log_close(kept.log);
    assert_ok(store_import(second, "a", kept.units.data, kept.units.len, err));
    assert_ok(store_run_adopt(second, "a", err));
    int64_t call = ask(second_file, "SELECT id FROM calls WHERE status = 'running'");
    struct store *view = open_log(second, "a", &kept);
    assert_ok(store_call_repeat(view, call, err));
    end_call(view, call, "at last");
    end_run(view, "a");
    keep_all(&kept);
    assert_ok(store_import(third, "a", kept.units.data, kept.units.len, err));
    assert_int_equal(ask(third_file, "SELECT count(*) FROM calls WHERE status = 'ok'"), 3);
    assert_int_equal(ask(third_file, "SELECT repeated FROM calls ORDER BY id DESC LIMIT 1"), 1);
    assert_int_equal(ask(third_file, "SELECT count(*) FROM runs WHERE status = 'done'"), 2);
    store_log_close(kept.log);
    buf_free(&kept.units);
    store_close(store);
    store_close(second);
    store_close(third);
}

static void on_go(void *arg)
{
    ++*(int *)arg;
}

/* Work waits until all that was written before it is kept, and not for what came later. */
static void work_waits_for_what_was_written_before(void **state)
{
    struct place *place = *state;
    struct kept kept = { 0 };
    struct hold_wait wait = { 0 };
    int begun = 0;
    struct store *store = open_store(place->file);
    struct store *view = open_log(store, NULL, &kept);
    begin_run(view, "a");
    assert_int_equal(kept.wakes, 1);
    assert_false(hold_pass(store_log_hold(kept.log), &wait, on_go, &begun));
    assert_true(store_log_take(kept.log, &kept.units));
    assert_ok(store_turn_begin(view, "a", 1, err));
    assert_false(store_log_take(kept.log, &kept.units)); /* one is on its way */
    assert_int_equal(begun, 0);
    store_log_kept(kept.log);
    assert_int_equal(begun, 1);
    assert_false(hold_pass(store_log_hold(kept.log), &wait, on_go, &begun));
    keep_all(&kept);
    assert_int_equal(begun, 2);
    assert_true(hold_pass(store_log_hold(kept.log), &wait, on_go, &begun));
    store_log_close(kept.log);
    buf_free(&kept.units);
    store_close(store);
}

/* Work that begins long after the last confirmation asks for another one, by an empty unit. */
static void late_work_asks_whether_the_run_is_still_here(void **state)
{
    struct place *place = *state;
    struct kept kept = { 0 };
    struct hold_wait wait = { 0 };
    int begun = 0;
    struct store *store = open_store(place->file);
    begin_run(open_log(store, NULL, &kept), "a");
    keep_all(&kept);
    struct hold *hold = store_log_hold(kept.log);
    hold->confirmed_ns -= 2 * hold->fresh_ns;
    size_t before = kept.units.len;
    assert_false(hold_pass(hold, &wait, on_go, &begun));
    assert_true(store_log_take(kept.log, &kept.units));
    assert_int_equal(kept.units.len - before, 16);
    store_log_kept(kept.log);
    assert_int_equal(begun, 1);
    store_log_close(kept.log);
    buf_free(&kept.units);
    store_close(store);
}

/* Every damaged copy of a log is refused or harmless: another run of the record stays as it is. */
static void a_damaged_log_touches_no_other_run(void **state)
{
    struct place *place = *state;
    char other[120];
    struct kept kept = { 0 };
    struct store *store = open_store(place->file);
    snprintf(other, sizeof other, "%s/other.db", place->directory);
    struct store *second = open_store(other);
    write_much(open_log(store, NULL, &kept), "b");
    keep_all(&kept);
    begin_run(second, "a");
    end_run(second, "a");
    assert_fails(ERROR_PROTOCOL, store_import(second, "c", kept.units.data, kept.units.len, err));
    for (size_t at = 0; at < kept.units.len; at += 7) {
        struct error why = { 0 };
        char before = kept.units.data[at];
        kept.units.data[at] = before == 'b' ? 'a' : (char)(before ^ 0x15);
        store_import(second, "b", kept.units.data, kept.units.len, &why);
        store_import(second, "b", kept.units.data, at, &why);
        kept.units.data[at] = before;
        assert_int_equal(ask(other, "SELECT count(*) FROM runs WHERE id = 'a'"
                                    " AND status = 'done' AND parent IS NULL"),
            1);
    }
    assert_ok(store_import_check("b", kept.units.data, kept.units.len, err));
    assert_fails(ERROR_PROTOCOL, store_import_check("b", kept.units.data, kept.units.len - 1, err));
    assert_ok(store_import(second, "b", kept.units.data, kept.units.len, err));
    kept.units.data[4] = (char)(kept.units.data[4] + 1); /* its version */
    assert_fails(ERROR_STORE, store_import_check("b", kept.units.data, kept.units.len, err));
    assert_fails(ERROR_STORE, store_import(second, "b", kept.units.data, kept.units.len, err));
    store_log_close(kept.log);
    buf_free(&kept.units);
    store_close(store);
    store_close(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        store_test(another_record_has_the_same_run),
        store_test(a_second_process_goes_on_with_the_log),
        store_test(work_waits_for_what_was_written_before),
        store_test(late_work_asks_whether_the_run_is_still_here),
        store_test(a_damaged_log_touches_no_other_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
