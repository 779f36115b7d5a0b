/* A run as it goes, written to a file, where nothing is rewritten or coloured. */
#include "../test.h"

#include <unistd.h>

#include "base/array.h"
#include "cli/terminal/progress.h"

static FILE *out;
static struct progress *progress;

static int progress_begin(void **state)
{
    out = tmpfile();
    progress = out ? progress_open(out, NULL) : NULL;
    return progress ? 0 : -1;
}

static int progress_end(void **state)
{
    progress_close(progress, NULL);
    fclose(out);
    return 0;
}

/* What is in the file so far. */
static const char *written(void)
{
    static char text[8192];
    fflush(out);
    ssize_t len = pread(fileno(out), text, sizeof text - 1, 0);
    assert_true(len >= 0);
    text[len] = '\0';
    return text;
}

#define progress_test(f) cmocka_unit_test_setup_teardown(f, progress_begin, progress_end)

static void event(const char *kind, const char *text)
{
    progress_event(progress,
        &(droste_event){ .kind = kind, .text = text, .len = strlen(text), .turn = 2, .turns = 20 });
}

static void event_result(const char *status, const char *json)
{
    progress_event(progress, &(droste_event){ .kind = "result",
                                 .text = json,
                                 .len = strlen(json),
                                 .status = status,
                                 .seconds = 0.5 });
}

static unsigned count_of(const char *word)
{
    unsigned count = 0;
    for (const char *at = written(); (at = strstr(at, word)); at += strlen(word))
        count++;
    return count;
}

static void a_turn_is_shown_in_order(void **state)
{
    event("started", "r1");
    event("turn", "");
    event("reply", "I count.\n\n```repl\nprint(1)\n```");
    event("cell", "print(1)");
    event("output", "1\n");
    event_result("ok", "{}");
    assert_string_equal(
        written(), "run r1\nturn 2 of 20\n  I count.\n  > print(1)\n  | 1\n  ok in 0.500 s\n");
}

/* What is said of contexts and in notices is shown as a whole. */
static void notices_are_whole(void **state)
{
    event("context", "12 files\nand more");
    event("notice", "one line");
    assert_string_equal(written(), "context: 12 files\ncontext: and more\nnote: one line\n");
}

static void pieces_of_a_line_of_output_are_one_line(void **state)
{
    event("cell", "x");
    event("output", "a");
    event("output", "b\nc");
    event_result("ok", "{}");
    assert_string_equal(written(), "  > x\n  | ab\n  | c\n  ok in 0.500 s\n");
}

/* The bound on lines of output is that of one cell. */
static void long_output_is_cut_once_in_each_cell(void **state)
{
    for (int cell = 0; cell < 2; cell++) {
        event("cell", "x");
        for (int i = 0; i < 30; i++)
            event("output", "line\n");
        event_result("ok", "{}");
    }
    assert_int_equal(count_of("  | line\n"), 24);
    assert_int_equal(count_of("18 more lines\n"), 2);
}

/* The end of a traceback says what happened. */
static void a_failed_cell_shows_the_end_of_its_traceback(void **state)
{
    event("cell", "x");
    event_result("error",
        "{\"error\": {\"traceback\": \"1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n9\\nValueError: no\\n\"}}");
    assert_string_equal(written(),
        "  > x\n  ! 3\n  ! 4\n  ! 5\n  ! 6\n  ! 7\n  ! 8\n  ! 9\n  ! ValueError: no\n"
        "  error in 0.500 s\n");
}

/* Control characters are made visible on terminals only. */
static void a_file_has_the_output_unchanged(void **state)
{
    event("cell", "x");
    event("output", "a\x1b[2Jb\n");
    assert_string_equal(written(), "  > x\n  | a\x1b[2Jb\n");
}

/* In a file no status line is drawn: the beginning of a line and counts of calls write nothing. */
static void a_file_has_no_status_line(void **state)
{
    event("delta", "piece");
    event("calls", "");
    assert_string_equal(written(), "");
}

/* Lines of a reply come when they are complete, each once. */
static void a_streamed_reply_is_printed_once(void **state)
{
    event("delta", "First ");
    event("delta", "line.\nSec");
    assert_string_equal(written(), "  First line.\n");
    event("delta", "ond.\n```py");
    event("delta", "thon\nprint(1)\n```\nLast.");
    event("reply", "First line.\nSecond.\n```python\nprint(1)\n```\nLast.");
    assert_string_equal(written(), "  First line.\n  Second.\n  Last.\n");
}

/* Blocks in other languages are words: they do not run. */
static void other_blocks_are_words(void **state)
{
    event("reply", "So:\n```json\n{}\n```\n\n\nDone.");
    assert_string_equal(written(), "  So:\n  ```json\n  {}\n  ```\n\n  Done.\n");
}

/* The reason and the time of another attempt; of code's calls each reason once in a row. */
static void a_pause_says_why(void **state)
{
    for (unsigned i = 0; i < 3; i++)
        progress_event(progress, &(droste_event){ .kind = "retry",
                                     .text = i < 2 ? "busy" : "gone",
                                     .len = 4,
                                     .seconds = 1.5,
                                     .call = 7 + i,
                                     .attempt = 2,
                                     .attempts = 5 });
    assert_string_equal(written(), "  ~ attempt 2 of 5 follows in 1.5 s: busy\n"
                                   "  ~ attempt 2 of 5 follows in 1.5 s: gone\n");
}

/* Child runs are told one by one, the failed ones with the reason. */
static void child_runs_are_reported(void **state)
{
    droste_event e = { .kind = "child", .text = "Sum\nit up", .len = 9, .call = 1 };
    progress_event(progress, &e);
    e = (droste_event){
        .kind = "child_end", .text = "no", .len = 2, .call = 1, .status = "error", .seconds = 2
    };
    progress_event(progress, &e);
    assert_string_equal(written(), "  child run 1: Sum it up\n  child run 1 error in 2.0 s: no\n");
}

static void an_open_line_is_ended_at_the_close(void **state)
{
    event("cell", "x");
    event("output", "no newline");
    progress_close(progress, NULL);
    assert_string_equal(written(), "  > x\n  | no newline\n");
    progress = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        progress_test(a_turn_is_shown_in_order),
        progress_test(notices_are_whole),
        progress_test(pieces_of_a_line_of_output_are_one_line),
        progress_test(long_output_is_cut_once_in_each_cell),
        progress_test(a_failed_cell_shows_the_end_of_its_traceback),
        progress_test(a_file_has_the_output_unchanged),
        progress_test(a_file_has_no_status_line),
        progress_test(a_streamed_reply_is_printed_once),
        progress_test(other_blocks_are_words),
        progress_test(a_pause_says_why),
        progress_test(child_runs_are_reported),
        progress_test(an_open_line_is_ended_at_the_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
