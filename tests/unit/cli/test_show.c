/* One run of the record, for people and as JSON. */
#include "../store/open_record.h"

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/os/file.h"
#include "cli/record/show.h"

enum { CALLS = 20 };

/* Standard output of showing the run "r1". */
static void show(bool as_json, bool full, struct buf *out)
{
    cleanup_fd int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    cleanup_fd int kept = dup(STDOUT_FILENO);
    fflush(stdout);
    assert_true(file >= 0 && kept >= 0 && dup2(file, STDOUT_FILENO) >= 0);
    struct error why = { 0 };
    int rc = as_json ? show_as_json(record, "r1", &why) : show_as_text(record, "r1", full, &why);
    fflush(stdout);
    assert_true(dup2(kept, STDOUT_FILENO) >= 0);
    assert_int_equal(rc, 0);
    assert_int_equal(lseek(file, 0, SEEK_SET), 0);
    assert_ok(file_read_fd(file, "the output", 16 << 20, out, err));
}

static void assert_shows(struct buf *out, const char *words)
{
    if (!strstr(buf_text(out), words))
        fail_msg("'%s' is not in:\n%s", words, buf_text(out));
}

/* Facts, the reply with [code] for its block, the cell's code and what it printed. */
static void a_turn_is_shown_step_by_step(void **state)
{
    cleanup_buf struct buf out = { 0 };
    begin_run(store, "r1");
    assert_ok(store_turn_begin(store, "r1", 1, err));
    end_call(store, begin_call(store, "r1", "[]"), "I compute.\n```repl\nprint(6 * 7)\n```\n");
    end_cell(store, begin_cell(store, "r1", store_text("print(6 * 7)")), store_text("42\n"));
    end_run(store, "r1");
    show(false, false, &out);
    assert_shows(&out, "why?");
    assert_shows(&out, "\nturn 1\n");
    assert_shows(&out, "  model m: ok");
    assert_shows(&out, "  I compute.\n  [code]\n");
    assert_shows(&out, "print(6 * 7)\n");
    assert_shows(&out, "42\n");
    const char *code = strstr(buf_text(&out), "print(6 * 7)");
    assert_null(strstr(code + 1, "print(6 * 7)")); /* the cell alone shows it */
}

/* A traceback if there is one, else the message. */
static void a_failed_cell_shows_why(void **state)
{
    static const char *const errors[] = {
        "{\"message\": \"short\", \"traceback\": \"Trace: long\"}", "{\"message\": \"short\"}"
    };
    static const char *const shown[] = { "  ! Trace: long\n", "  ! short\n" };
    cleanup_buf struct buf out = { 0 };
    begin_run(store, "r1");
    assert_ok(store_turn_begin(store, "r1", 1, err));
    for (size_t i = 0; i < array_length(errors); i++) {
        int64_t cell = begin_cell(store, "r1", store_text("1 / 0"));
        droste_record_cell end = { .status = "error", .error = store_text(errors[i]) };
        assert_ok(store_cell_end(store, cell, &end, err));
    }
    end_run(store, "r1");
    show(false, false, &out);
    for (size_t i = 0; i < array_length(shown); i++)
        assert_shows(&out, shown[i]);
}

/* A cell may make thousands of calls; the others are counted. */
static void calls_of_a_cell_are_bounded(void **state)
{
    cleanup_buf struct buf some = { 0 }, every = { 0 };
    begin_run(store, "r1");
    assert_ok(store_turn_begin(store, "r1", 1, err));
    int64_t cell = begin_cell(store, "r1", store_text("many()"));
    for (int i = 0; i < CALLS; i++) {
        int64_t call = 0;
        droste_record_call begin = { .run = "r1",
            .turn = 1,
            .cell = cell,
            .depth = 1,
            .kind = "sub",
            .model = "m",
            .request = store_text("prompt") };
        assert_ok(store_call_begin(store, &begin, &call, err));
        end_call(store, call, "reply");
    }
    end_cell(store, cell, store_text(""));
    end_run(store, "r1");
    show(false, false, &some);
    show(false, true, &every);
    assert_shows(&some, "more calls of the cell (all of them with --full)");
    assert_null(strstr(buf_text(&every), "more calls of the cell"));
    unsigned count = 0;
    for (const char *at = buf_text(&every); (at = strstr(at, "call of the cell: ")); at++)
        count++;
    assert_int_equal(count, CALLS);
}

static void json_has_the_turns_and_their_steps(void **state)
{
    cleanup_buf struct buf out = { 0 };
    cleanup_json struct json_object *run = NULL;
    begin_run(store, "r1");
    assert_ok(store_turn_begin(store, "r1", 1, err));
    end_call(store, begin_call(store, "r1", "[]"), "reply");
    end_cell(store, begin_cell(store, "r1", store_text("x")), store_text("out"));
    end_run(store, "r1");
    show(true, false, &out);
    assert_ok(json_parse(out.data, out.len, &json_limits_large, &run, err));
    assert_string_equal(json_get_string(run, "run", ""), "r1");
    struct json_object *turns = json_get_typed(run, "turns", json_type_array);
    assert_int_equal(json_length(turns), 1);
    struct json_object *turn = json_object_array_get_idx(turns, 0);
    assert_int_equal(json_length(json_get_typed(turn, "steps", json_type_array)), 2);
}

static void a_run_that_is_not_there_is_an_error(void **state)
{
    assert_fails(ERROR_NOT_FOUND, show_as_json(record, "r9", err));
    assert_fails(ERROR_NOT_FOUND, show_as_text(record, "r9", false, err));
}

#define show_test(f) cmocka_unit_test_setup_teardown(f, record_begin, record_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        show_test(a_turn_is_shown_step_by_step),
        show_test(a_failed_cell_shows_why),
        show_test(calls_of_a_cell_are_bounded),
        show_test(json_has_the_turns_and_their_steps),
        show_test(a_run_that_is_not_there_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
