/* The record through the public interface: reading and removing runs. */
#include "../test.h"

#include <stdlib.h>
#include <unistd.h>

#include "droste.h"

#define API_ERROR fixture.err
#include "assert_fine.h"

struct fixture {
    droste *d;
    char directory[64], file[96];
    droste_error err;
};

static struct fixture fixture;

static const char reply[] = "Counting.\n```repl\nprint(len(context))\nSUBMIT(answer=3)\n```";

static void model(void *arg, const droste_message *messages, size_t count, droste_call *call)
{
    droste_answer(call, reply, sizeof reply - 1);
}

static int setup(void **state)
{
    fixture = (struct fixture){ .directory = "/tmp/droste-record-api-XXXXXX" };
    assert_non_null(mkdtemp(fixture.directory));
    snprintf(fixture.file, sizeof fixture.file, "%s/runs.db", fixture.directory);
    assert_fine(droste_new(&fixture.d, &fixture.err));
    assert_fine(droste_set(fixture.d, "database", fixture.file, &fixture.err));
    assert_fine(droste_set(fixture.d, "isolation", "process", &fixture.err));
    assert_fine(droste_set(fixture.d, "model", "callback", &fixture.err));
    droste_set_model(fixture.d, model, NULL);
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    droste_free(fixture.d);
    snprintf(command, sizeof command, "rm -rf %s", fixture.directory);
    return system(command);
}

static void run_once(const char *question)
{
    droste_result *r = NULL;
    assert_fine(droste_run(fixture.d, question, NULL, NULL, NULL, &r, &fixture.err));
    droste_result_free(r);
}

static droste_record *open_record(void)
{
    droste_record *record = NULL;
    assert_fine(droste_record_open(fixture.d, &record, &fixture.err));
    assert_non_null(record);
    return record;
}

struct listed {
    size_t count;
    char ids[2][DROSTE_RUN_ID_SIZE];
};

static int list_run(void *arg, const droste_record_run *run, droste_error *err)
{
    struct listed *all = arg;
    if (all->count == 2)
        return -1;
    snprintf(all->ids[all->count++], DROSTE_RUN_ID_SIZE, "%s", run->id);
    assert_string_equal(run->status, "answered");
    return 0;
}

/* Looking for a record makes none; one that is turned off is an error. */
static void looking_makes_no_record(void **state)
{
    droste_record *record = NULL;
    assert_fine(droste_record_open(fixture.d, &record, &fixture.err));
    assert_null(record);
    assert_int_equal(access(fixture.file, F_OK), -1);
    assert_fine(droste_set(fixture.d, "database", "none", &fixture.err));
    assert_int_equal(droste_record_open(fixture.d, &record, &fixture.err), -DROSTE_ERROR_CONFIG);
}

/* Runs are listed the newest first, found by the beginning of their id, and gone once removed. */
static void runs_are_listed_found_and_removed(void **state)
{
    struct listed all = { 0 }, none = { 0 };
    const droste_record_filter any = { 0 }, failed = { .status = "error" };
    droste_record_freed freed;
    char id[DROSTE_RUN_ID_SIZE];
    run_once("First?");
    run_once("Second?");
    droste_record *record = open_record();
    assert_fine(droste_record_list(record, &any, list_run, &all, &fixture.err));
    assert_int_equal(all.count, 2);
    assert_fine(droste_record_list(record, &failed, list_run, &none, &fixture.err));
    assert_int_equal(none.count, 0);
    assert_fine(droste_record_find(record, all.ids[0], id, &fixture.err));
    assert_string_equal(id, all.ids[0]);
    assert_fine(droste_record_remove(record, id, &freed, &fixture.err));
    assert_int_equal(freed.runs, 1);
    assert_int_equal(
        droste_record_find(record, all.ids[0], id, &fixture.err), -DROSTE_ERROR_NOT_FOUND);
    assert_fine(droste_record_collect(
        record, &(droste_record_keep){ .older_ms = -1000 }, &freed, &fixture.err));
    assert_int_equal(freed.runs, 1);
    droste_record_close(record);
}

struct seen {
    droste_record *record;
    char order[128], output[16];
    size_t pieces;
};

static int see_run(void *arg, const droste_record_run *run, droste_error *err)
{
    strcat(((struct seen *)arg)->order, "run ");
    assert_memory_equal(run->question.data, "How long?", run->question.len);
    return 0;
}

static int see_turn(void *arg, const droste_record_turn *turn, droste_error *err)
{
    strcat(((struct seen *)arg)->order, "turn ");
    return 0;
}

static int see_call(void *arg, const droste_record_call *call, droste_error *err)
{
    const char *code;
    size_t at = 0, len;
    strcat(((struct seen *)arg)->order, "call ");
    assert_true(call->from_loop);
    assert_true(droste_reply_next_code(call->reply.data, call->reply.len, &at, &code, &len));
    assert_memory_equal(code, "print(", 6);
    assert_false(droste_reply_next_code(call->reply.data, call->reply.len, &at, &code, &len));
    return 0;
}

static int see_cell(void *arg, const droste_record_cell *cell, droste_error *err)
{
    strcat(((struct seen *)arg)->order, "cell ");
    assert_string_equal(cell->status, "submitted");
    return 0;
}

static int see_end(void *arg, const droste_record_run *run, droste_error *err)
{
    strcat(((struct seen *)arg)->order, "end");
    return 0;
}

static int take_piece(void *arg, const char *data, size_t len)
{
    struct seen *seen = arg;
    seen->pieces++;
    snprintf(seen->output, sizeof seen->output, "%.*s", (int)len, data);
    return 1;
}

static int see_lazy_cell(void *arg, const droste_record_cell *cell, droste_error *err)
{
    struct seen *seen = arg;
    assert_null(cell->code.data);
    assert_non_null(cell->code.hash);
    return droste_record_read(seen->record, &cell->code, 5, take_piece, seen, err);
}

static int refuse_turn(void *arg, const droste_record_turn *turn, droste_error *err)
{
    err->code = DROSTE_ERROR_CANCELLED;
    strcpy(err->text, "seen enough");
    return -DROSTE_ERROR_CANCELLED;
}

/* A run's steps come in their order; values that were left in the file are read in pieces; an error
 * of the program ends the visit and comes back. */
static void steps_are_visited_in_order(void **state)
{
    static const droste_record_visitor all = {
        .run = see_run, .turn = see_turn, .call = see_call, .cell = see_cell, .end = see_end
    };
    static const droste_record_visitor lazy = { .cell = see_lazy_cell, .lazy = 1 };
    static const droste_record_visitor refusing = { .turn = refuse_turn };
    struct listed listed = { 0 };
    run_once("How long?");
    struct seen seen = { .record = open_record() };
    assert_fine(droste_record_list(
        seen.record, &(droste_record_filter){ .limit = 1 }, list_run, &listed, &fixture.err));
    const char *id = listed.ids[0];
    assert_fine(droste_record_visit(seen.record, id, &all, &seen, &fixture.err));
    assert_string_equal(seen.order, "run turn call cell end");
    assert_fine(droste_record_visit(seen.record, id, &lazy, &seen, &fixture.err));
    assert_string_equal(seen.output, "print");
    assert_int_equal(seen.pieces, 1);
    assert_int_equal(droste_record_visit(seen.record, id, &refusing, &seen, &fixture.err),
        -DROSTE_ERROR_CANCELLED);
    assert_string_equal(fixture.err.text, "seen enough");
    droste_record_close(seen.record);
}

/* ---- events ---- */

static int take_event(void *arg, const droste_record_event *event, droste_error *err)
{
    struct seen *seen = arg;
    assert_true(event->number > 0);
    assert_int_equal(strlen(event->json), event->len);
    assert_int_equal(event->json[0], '{');
    assert_int_equal(event->json[event->len - 1], '}');
    strcat(seen->order, event->type);
    strcat(seen->order, strstr(event->json, "\"running\"") ? "- " : " ");
    seen->pieces += strstr(event->json, "\"cut\":{\"") != NULL;
    return 0;
}

static int take_json(void *arg, const char *data, size_t len)
{
    assert_non_null(strstr(data, "\"account\":\"client\""));
    assert_non_null(strstr(data, "\"status\":\"answered\""));
    return 0;
}

static int describe_run(void *arg, const droste_record_run *run, droste_error *err)
{
    assert_string_equal(run->account, "client");
    return droste_record_json(((struct seen *)arg)->record, run, 0, take_json, NULL, err);
}

/* A run has the id and the account that its request names. Its events are lines of an export, and
 * a reader continues after the last one that it saw. */
static void events_are_lines_of_an_export(void **state)
{
    droste_result *r = NULL;
    const droste_request request = { .question = "How long?", .id = "mine", .account = "client" };
    char twice[64];
    int64_t at = 0;
    assert_fine(droste_ask(fixture.d, &request, &r, &fixture.err));
    droste_result_free(r);
    struct seen seen = { .record = open_record() };
    assert_fine(
        droste_record_events(seen.record, "mine", 1, &at, 3, 0, take_event, &seen, &fixture.err));
    strcpy(twice, seen.order);
    assert_fine(
        droste_record_events(seen.record, "mine", 1, &at, 0, 0, take_event, &seen, &fixture.err));
    assert_int_equal(memcmp(seen.order, twice, strlen(twice)), 0);
    assert_string_equal(seen.order, "run run turn call- call cell- cell end ");
    assert_int_equal(seen.pieces, 0);
    at = 0;
    seen.order[0] = '\0';
    assert_fine(
        droste_record_events(seen.record, "mine", 1, &at, 0, 8, take_event, &seen, &fixture.err));
    assert_true(seen.pieces > 0);
    assert_fine(droste_record_get(seen.record, "mine", describe_run, &seen, &fixture.err));
    droste_record_close(seen.record);
    assert_true(droste_ask(fixture.d, &request, &r, &fixture.err) < 0);
    assert_non_null(strstr(fixture.err.text, "already exists"));
}

/* A number that was set, and no other. */
static void numbers_that_were_set_are_sent(void **state)
{
    double value = 0;
    assert_false(droste_get_number(fixture.d, "timeout", &value));
    assert_fine(droste_set(fixture.d, "timeout", "2m", &fixture.err));
    assert_true(droste_get_number(fixture.d, "timeout", &value));
    assert_true(value == 120);
    assert_false(droste_get_number(fixture.d, "model", &value));
    assert_false(droste_get_number(fixture.d, "nothing", &value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(looking_makes_no_record, setup, teardown),
        cmocka_unit_test_setup_teardown(runs_are_listed_found_and_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(steps_are_visited_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(events_are_lines_of_an_export, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_that_were_set_are_sent, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
