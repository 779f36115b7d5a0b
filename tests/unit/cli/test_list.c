/* The runs of a record, as a table and as JSON. */
#include "../store/open_record.h"

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/os/file.h"
#include "cli/list.h"

static int kept[2]; /* standard output and error, while they go to files */

#define list_test(f) cmocka_unit_test_setup_teardown(f, record_begin, record_end)

static void capture(int fd)
{
    cleanup_fd int file = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    fflush(NULL);
    kept[fd - 1] = dup(fd);
    assert_int_equal(dup2(file, fd), fd);
}

static void captured(int fd, struct buf *out)
{
    fflush(NULL);
    lseek(fd, 0, SEEK_SET);
    assert_ok(file_read_fd(fd, "output", 1 << 20, out, err));
    assert_int_equal(dup2(kept[fd - 1], fd), fd);
    close(kept[fd - 1]);
}

static void print_table(const droste_record_filter *filter, struct buf *out, struct buf *errors)
{
    capture(STDOUT_FILENO);
    capture(STDERR_FILENO);
    int rc = list_as_text(record, filter, "runs.db", NULL);
    captured(STDOUT_FILENO, out);
    captured(STDERR_FILENO, errors);
    assert_int_equal(rc, 0);
}

static void add_run(
    const char *id, const char *question, const char *batch, const char *task, bool ended)
{
    char made[STORE_RUN_ID_SIZE];
    droste_record_run begin = plain_run(id);
    begin.question = store_text(question);
    begin.batch = batch;
    begin.task = task;
    assert_ok(store_run_begin(store, &begin, made, err));
    if (ended)
        end_run(store, id);
}

static const droste_record_filter all;

/* Columns are as wide as their widest cell; a question is one line. A
 * column for tasks is there only if there is a task. */
static void columns_are_aligned(void **state)
{
    cleanup_buf struct buf out = { 0 }, errors = { 0 };
    add_run("r1", "first\n  question", NULL, NULL, true);
    add_run("r2", "second", NULL, NULL, true);
    print_table(&all, &out, &errors);
    const char *text = buf_text(&out), *head = strstr(text, "QUESTION");
    const char *one = strstr(text, "first question\n"), *two = strstr(text, "second");
    assert_int_equal(errors.len, 0);
    assert_non_null(head);
    assert_non_null(one);
    assert_non_null(two);
    assert_null(strstr(text, "BATCH:TASK"));
    const char *lines[3] = { text, strchr(text, '\n') + 1, NULL };
    lines[2] = strchr(lines[1], '\n') + 1;
    assert_int_equal(two - lines[1], head - lines[0]); /* the newest run is first */
    assert_int_equal(one - lines[2], head - lines[0]);
}

/* A task stands behind the last part of its batch's name. */
static void tasks_have_a_column(void **state)
{
    cleanup_buf struct buf out = { 0 }, errors = { 0 };
    add_run("r1", "q", "/home/user/results.jsonl", "task-7", true);
    add_run("r2", "q", NULL, NULL, true);
    print_table(&all, &out, &errors);
    assert_non_null(strstr(buf_text(&out), "BATCH:TASK"));
    assert_non_null(strstr(buf_text(&out), " results.jsonl:task-7 "));
    assert_null(strstr(buf_text(&out), "/home/user"));
}

/* A run that has not ended has no figures. */
static void a_run_under_way_has_no_figures(void **state)
{
    cleanup_buf struct buf out = { 0 }, errors = { 0 };
    add_run("r1", "q", NULL, NULL, false);
    print_table(&all, &out, &errors);
    const char *row = strchr(buf_text(&out), '\n') + 1;
    unsigned dashes = 0;
    for (const char *at = row; (at = strstr(at, " -  ")); at++)
        dashes++;
    assert_int_equal(dashes, 4);
}

/* Where there is nothing to list, standard output is empty, and standard error tells an empty
 * record from a filter that nothing passes. */
static void nothing_is_explained(void **state)
{
    cleanup_buf struct buf out = { 0 }, errors = { 0 };
    const droste_record_filter narrow = { .model = "none" };
    print_table(&all, &out, &errors);
    assert_string_equal(buf_text(&errors), "droste: no runs yet in runs.db\n");
    add_run("r1", "q", NULL, NULL, true);
    buf_clear(&errors);
    print_table(&narrow, &out, &errors);
    assert_string_equal(buf_text(&errors), "droste: no such runs in runs.db; use fewer filters\n");
    assert_int_equal(out.len, 0);
}

/* JSON is one array of all runs, the newest first; without a record it is empty. */
static void json_is_one_array(void **state)
{
    cleanup_buf struct buf out = { 0 };
    struct json_object *list = NULL, *id = NULL;
    add_run("r1", "first", NULL, NULL, true);
    add_run("r2", "second", NULL, NULL, false);
    capture(STDOUT_FILENO);
    int rc = list_as_json(record, &all, NULL), rc_none = list_as_json(NULL, &all, NULL);
    captured(STDOUT_FILENO, &out);
    assert_int_equal(rc, 0);
    assert_int_equal(rc_none, 0);
    char *second = strchr(buf_text(&out), '\n');
    assert_non_null(second);
    assert_string_equal(second, "\n[]\n");
    assert_ok(json_parse(
        buf_text(&out), (size_t)(second - buf_text(&out)), &json_limits_large, &list, err));
    assert_int_equal(json_object_array_length(list), 2);
    assert_true(json_object_object_get_ex(json_object_array_get_idx(list, 0), "run", &id));
    assert_string_equal(json_object_get_string(id), "r2");
    json_object_put(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        list_test(columns_are_aligned),
        list_test(tasks_have_a_column),
        list_test(a_run_under_way_has_no_figures),
        list_test(nothing_is_explained),
        list_test(json_is_one_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
