/* Programs that grade answers: what they say, how they end, and that none is waited for forever. */
#include "../programs.h"

#include "batch/grader.h"

/* Seconds that no grader needs. */
#define PATIENCE 600.0

static const char line[] = "{\"answer\":\"42\"}";

struct graders {
    struct loop *loop;
    struct programs programs;
    bool done;
    unsigned times;
    struct grade grade;
};

static int graders_begin(void **state)
{
    struct graders *g = calloc(1, sizeof *g);
    assert_non_null(g);
    assert_ok(loop_open(&g->loop, err));
    programs_begin(&g->programs);
    *state = g;
    return 0;
}

static int graders_end(void **state)
{
    struct graders *g = *state;
    programs_end(&g->programs);
    loop_close(g->loop);
    free(g);
    return 0;
}

#define grader_test(f) cmocka_unit_test_setup_teardown(f, graders_begin, graders_end)

static void graded(void *arg, const struct grade *grade)
{
    struct graders *g = arg;
    g->grade = *grade;
    g->done = true;
    g->times++;
}

static struct grading *begin(struct graders *g, const char *script, double timeout)
{
    struct grading *grading = NULL;
    const char *path = programs_make(&g->programs, "grader", script);
    g->done = false;
    assert_ok(
        grading_start(g->loop, path, timeout, line, sizeof line - 1, graded, g, &grading, err));
    return grading;
}

static const struct grade *grade_by(struct graders *g, const char *script, double timeout)
{
    begin(g, script, timeout);
    assert_ok(loop_run_until(g->loop, &g->done, err));
    return &g->grade;
}

static void gives(struct graders *g, const char *script, bool passed, double score)
{
    const struct grade *grade = grade_by(g, script, PATIENCE);
    if (!grade->is_graded)
        fail_msg("%s: %s", script, grade->why);
    assert_int_equal(grade->passed, passed);
    assert_float_equal(grade->score, score, 1e-6);
}

static void gives_none(struct graders *g, const char *script, const char *why)
{
    const struct grade *grade = grade_by(g, script, PATIENCE);
    assert_false(grade->is_graded || grade->passed);
    assert_string_equal(grade->why, why);
}

static void a_silent_grader_grades_by_its_status(void **state)
{
    gives(*state, "exit 0", true, 1);
    gives(*state, "exit 1", false, 0);
}

static void what_it_prints_is_the_grade(void **state)
{
    gives(*state, "echo '{\"passed\": true, \"score\": 0.5}'", true, 0.5);
    gives(*state, "echo '{\"passed\": false, \"score\": 2}'; exit 0", false, 2);
    gives(*state, "echo '{\"passed\": true}'; exit 1", true, 1);
    gives(*state, "echo '{\"passed\": true, \"score\": \"high\"}'", true, 1);
}

static void it_gets_one_line_and_the_end_of_its_input(void **state)
{
    gives(*state, "read -r one; test \"$one\" = '{\"answer\":\"42\"}' && ! read -r two", true, 1);
    gives(*state, "read -r one; test \"$one\" = other", false, 0);
}

/* One that does not read is not an error: it may know all answers. */
static void it_need_not_read_its_input(void **state)
{
    gives(*state, "exec <&-; echo '{\"passed\": true}'", true, 1);
}

static void what_is_no_grade_is_shown(void **state)
{
    gives_none(*state, "echo correct", "the grader did not print a grade: correct");
    gives_none(
        *state, "printf '{\"passed\": 1}'", "the grader did not print a grade: {\"passed\": 1}");
    gives_none(*state, "printf '[true]'", "the grader did not print a grade: [true]");
    gives_none(*state, "printf '\\033[2J'", "the grader did not print a grade: \\x1b[2J");
}

/* The reason has a bounded length and whole characters. */
static void a_long_output_is_shortened(void **state)
{
    struct graders *g = *state;
    static const char script[] = "printf x; for i in 1 2 3 4 5 6 7 8 9 0; do"
                                 " printf '\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9'; done";
    const struct grade *grade = grade_by(g, script, PATIENCE);
    size_t len = strlen(grade->why);
    assert_false(grade->is_graded);
    assert_true(len > 100 && len < sizeof grade->why);
    assert_memory_equal(grade->why + len - 2, "\xC3\xA9", 2);
}

/* Of megabytes the beginning is kept, and the program is not stopped by a full pipe. */
static void a_flood_is_read_to_its_end(void **state)
{
    gives_none(*state, "printf '{\"passed\": true} '; head -c 3000000 /dev/zero | tr '\\0' x",
        "the grader did not print a grade: {\"passed\": true} "
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
}

static void another_end_is_no_grade(void **state)
{
    gives_none(*state, "echo '{\"passed\": true}'; exit 2", "the grader ended with status 2");
    gives_none(*state, "echo '{\"passed\": true}'; kill -9 $$", "the grader was ended by signal 9");
}

static void a_grader_that_takes_too_long_is_ended(void **state)
{
    const struct grade *grade = grade_by(*state, "exec sleep 100000", 0.01);
    assert_false(grade->is_graded);
    assert_string_equal(grade->why, "the grader took more than 0.01 s");
}

static void a_program_that_does_not_exist_is_refused(void **state)
{
    struct graders *g = *state;
    struct grading *grading = NULL;
    assert_fails_saying(ERROR_NOT_FOUND, "the grader /nowhere/grader",
        grading_start(
            g->loop, "/nowhere/grader", PATIENCE, line, sizeof line - 1, graded, g, &grading, err));
    assert_null(grading);
    assert_int_equal(g->times, 0);
}

/* Of two, the cancelled one does not report. */
static void a_cancelled_grading_says_nothing(void **state)
{
    struct graders *g = *state;
    grading_cancel(begin(g, "exit 0", PATIENCE));
    grading_cancel(NULL);
    gives(g, "exit 1", false, 0);
    assert_int_equal(g->times, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        grader_test(a_silent_grader_grades_by_its_status),
        grader_test(what_it_prints_is_the_grade),
        grader_test(it_gets_one_line_and_the_end_of_its_input),
        grader_test(it_need_not_read_its_input),
        grader_test(what_is_no_grade_is_shown),
        grader_test(a_long_output_is_shortened),
        grader_test(a_flood_is_read_to_its_end),
        grader_test(another_end_is_no_grade),
        grader_test(a_grader_that_takes_too_long_is_ended),
        grader_test(a_program_that_does_not_exist_is_refused),
        grader_test(a_cancelled_grading_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
