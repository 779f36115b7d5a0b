/* The file of tasks: what a line may say, which mistakes are named with their line, and that a task
 * is read again from where it is. */
#include "../test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "batch/tasks.h"

static char path[64];
static struct settings settings;
static struct tasks *tasks;

static int tasks_begin(void **state)
{
    tasks = NULL;
    snprintf(path, sizeof path, "/tmp/droste-tasks-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd) + settings_init(&settings, NULL);
}

static int tasks_over(void **state)
{
    tasks_free(tasks);
    settings_free(&settings);
    return unlink(path);
}

#define tasks_test(f) cmocka_unit_test_setup_teardown(f, tasks_begin, tasks_over)

static void write_tasks(const char *text)
{
    cleanup_fd int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, text, strlen(text)), 0);
}

static int open_tasks(const char *text, const struct grader *grader, struct error *err)
{
    write_tasks(text);
    tasks_free(tasks);
    tasks = NULL;
    return tasks_open(path, &settings, grader, &(droste_batch_host){ 0 }, &tasks, err);
}

/* A file with this text is refused, with these words. */
static void assert_refused(const char *text, const char *words)
{
    assert_fails_saying(ERROR_ARGUMENT, words, open_tasks(text, NULL, err));
    assert_null(tasks);
}

static void read_task_of(const char *id, struct task *out)
{
    struct task_entry *place = tasks_find(tasks, id);
    assert_non_null(place);
    assert_ok(tasks_read(tasks, place, out, err));
}

/* ---- lines and ids ---- */

/* Without an id it is the line's number; blank lines count, and are not tasks. */
static void an_id_is_given_or_the_line(void **state)
{
    struct task t;
    assert_ok(open_tasks("{\"question\":\"a\"}\n\n{\"question\":\"b\",\"id\":\"x\"}\n"
                         "{\"id\":-7,\"question\":\"c\"}",
        NULL, err));
    assert_int_equal(tasks->count, 3);
    assert_true(tasks_find(tasks, "1")->number);
    assert_false(tasks_find(tasks, "x")->number);
    assert_int_equal(tasks_find(tasks, "x")->line, 3);
    assert_null(tasks_find(tasks, "2"));
    assert_null(tasks_find(tasks, ""));
    read_task_of("-7", &t);
    assert_string_equal(t.question, "c");
    task_free(&t);
}

/* Every task of many is found by its id, and no other. */
static void every_task_is_found(void **state)
{
    cleanup_buf struct buf text = { 0 };
    for (unsigned i = 0; i < 300; i++)
        buf_printf(&text, "{\"id\":\"t%u\",\"question\":\"q%u\"}\n", (i * 7919) % 300, i);
    assert_ok(open_tasks(buf_text(&text), NULL, err));
    for (unsigned i = 0; i < 300; i++) {
        char id[16];
        snprintf(id, sizeof id, "t%u", i);
        assert_string_equal(tasks_find(tasks, id)->id, id);
    }
    assert_null(tasks_find(tasks, "t300"));
}

/* Two tasks of one id are refused, a number and its text, too; both lines are named. */
static void an_id_is_of_one_task(void **state)
{
    assert_refused("{\"question\":\"a\",\"id\":\"x\"}\n{\"question\":\"b\",\"id\":\"x\"}",
        "line 2: line 1 already has the id 'x'");
    assert_refused(
        "{\"question\":\"a\",\"id\":3}\n\n{\"question\":\"b\"}", "line 3: line 1 already");
}

/* A number that is none of 64 bits, a text that is empty, too long or has control characters. */
static void an_id_has_bounds(void **state)
{
    cleanup_buf struct buf line = { 0 };
    static const char *const bad[] = { "1.5", "null", "[]", "true", "\"\"", "\"a\\nb\"",
        "\"a\\u0000b\"", "99999999999999999999", "18446744073709551615", "-9223372036854775809" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        buf_clear(&line);
        buf_printf(&line, "{\"question\":\"q\",\"id\":%s}", bad[i]);
        assert_refused(buf_text(&line), "`id` must be");
    }
    for (size_t len = TASK_ID_MAX; len <= TASK_ID_MAX + 1; len++) {
        buf_clear(&line);
        buf_puts(&line, "{\"question\":\"q\",\"id\":\"");
        for (size_t i = 0; i < len; i++)
            buf_putc(&line, 'i');
        buf_puts(&line, "\"}");
        if (len > TASK_ID_MAX)
            assert_refused(buf_text(&line), "`id` must be");
        else
            assert_ok(open_tasks(buf_text(&line), NULL, err));
    }
}

/* The first line that is not a task is named, whatever comes before and after. */
static void a_line_that_is_no_task_is_named(void **state)
{
    assert_refused("{\"question\":\"a\"}\n[]\n{", "line 2: the line is not a JSON object");
    assert_refused("{\"question\":\"a\"}\n{\"question\":}\n", "line 2: ");
    assert_refused("{}", "line 1: a task needs a `question`");
    assert_refused("{\"question\":\"\"}", "a task needs a `question`");
    assert_refused("{\"question\":\"a\\u0000b\"}", "a task needs a `question`");
    assert_refused("{\"question\":\"a\",\"why\":1}", "unknown member `why`");
    assert_ok(open_tasks("{\"question\":\"a\",\"meta\":{\"why\":1}}", NULL, err));
}

/* No tasks, and no file. */
static void nothing_is_no_batch(void **state)
{
    assert_refused("", "contains no tasks");
    assert_refused("\n \n", "contains no tasks");
    assert_fails_saying(ERROR_NOT_FOUND, "/tmp/droste-no-such-tasks",
        tasks_open(
            "/tmp/droste-no-such-tasks", &settings, NULL, &(droste_batch_host){ 0 }, &tasks, err));
}

/* A file that changes while the batch runs is noticed where a task is read again. */
static void a_line_that_changed_is_refused(void **state)
{
    struct task t;
    assert_ok(open_tasks("{\"question\":\"one\"}\n{\"question\":\"two\"}\n", NULL, err));
    read_task_of("2", &t);
    task_free(&t);
    write_tasks("{\"question\":\"a longer one\"}\n{\"question\":\"two\"}\n");
    assert_fails_saying(ERROR_ARGUMENT, "line 2: the line has changed",
        tasks_read(tasks, tasks_find(tasks, "2"), &t, err));
    task_free(&t);
    write_tasks("");
    assert_fails_saying(ERROR_ARGUMENT, "line 1: the line has changed",
        tasks_read(tasks, tasks_find(tasks, "1"), &t, err));
    task_free(&t);
}

/* ---- settings ---- */

static void assert_setting(const struct task *t, size_t index, const char *name, const char *value)
{
    assert_string_equal(t->settings.items[2 * index], name);
    assert_string_equal(t->settings.items[2 * index + 1], value);
}

/* Budgets and models are a task's own, as numbers or texts; a list replaces, and what means the
 * same is cleared. */
static void a_task_sets_questions_and_budgets(void **state)
{
    struct task t;
    assert_ok(open_tasks("{\"id\":1,\"question\":\"q\",\"settings\":{\"max-iterations\":3,"
                         "\"model\":\"gpt-5\",\"answer-field\":[\"a:integer\",\"b:string\"]}}",
        NULL, err));
    read_task_of("1", &t);
    assert_setting(&t, 0, "max-iterations", "3");
    assert_setting(&t, 1, "model", "gpt-5");
    assert_setting(&t, 2, "answer-schema", "");
    assert_setting(&t, 3, "answer-field", "");
    assert_setting(&t, 4, "answer-field", "a:integer");
    assert_setting(&t, 5, "answer-field", "b:string");
    assert_int_equal(t.settings.count, 12);
    assert_null(t.settings.items[12]);
    task_free(&t);
}

static void assert_setting_refused(const char *json, const char *words)
{
    cleanup_buf struct buf line = { 0 };
    buf_printf(&line, "{\"question\":\"q\",\"settings\":%s}", json);
    assert_refused(buf_text(&line), words);
}

/* A file of another machine names no program, no file, no server and no secret of this one, whether
 * as a text or in a list. */
static void a_task_reaches_nothing_of_this_machine(void **state)
{
    static const char *const ours[] = { "isolation", "read", "base-url", "tool", "python",
        "database", "api-key", "setup-code", "no-such-setting" };
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        cleanup_buf struct buf json = { 0 };
        buf_printf(&json, "{\"%s\":\"x\"}", ours[i]);
        assert_setting_refused(buf_text(&json), "a task cannot set");
        buf_clear(&json);
        buf_printf(&json, "{\"%s\":[]}", ours[i]);
        assert_setting_refused(buf_text(&json), "a task cannot set");
    }
    assert_setting_refused("{\"model\":\"exec:rm\"}", "cannot name a program or a file");
    assert_setting_refused("{\"model\":\"replay:/etc/passwd\"}", "cannot name a program or a file");
    assert_setting_refused(
        "{\"depth-model\":[\"1=gpt-5\",\"2=exec:rm\"]}", "cannot name a program");
    assert_setting_refused("{\"answer-schema\":\"/etc/passwd\"}", "must be the schema itself");
}

/* Values have the setting's type, and are those that the setting takes. */
static void a_settings_value_is_checked(void **state)
{
    assert_setting_refused("[]", "must be an object");
    assert_setting_refused("{\"max-iterations\":null}", "invalid value for the setting");
    assert_setting_refused("{\"max-iterations\":{}}", "invalid value for the setting");
    assert_setting_refused("{\"max-iterations\":\"many\"}", "max-iterations");
    assert_setting_refused("{\"model\":\"a\\u0000b\"}", "invalid value for the setting");
    assert_setting_refused("{\"answer-schema\":{\"type\":\"no such type\"}}", "line 1: ");
}

/* ---- contexts ---- */

/* Paths are relative to the file of tasks; absolute ones stay. */
static void a_context_is_beside_the_tasks(void **state)
{
    cleanup_buf struct buf line = { 0 };
    struct task t;
    const char *name = strrchr(path, '/') + 1;
    buf_printf(&line,
        "{\"id\":1,\"question\":\"q\",\"context\":\"%s\",\"contexts\":{\"log\":\"%s\"}}", name,
        path);
    assert_ok(open_tasks(buf_text(&line), NULL, err));
    read_task_of("1", &t);
    assert_string_equal(t.context, path);
    assert_int_equal(t.contexts.count, 1);
    assert_memory_equal(t.contexts.items[0], "log=/", 5);
    assert_string_equal(t.contexts.items[0] + 4, path);
    assert_null(t.contexts.items[1]);
    task_free(&t);
    assert_refused("{\"question\":\"q\",\"context\":\"no-such-file\"}", "no-such-file");
    assert_refused("{\"question\":\"q\",\"contexts\":{\"a\":\"no-such-file\"}}", "no-such-file");
    assert_refused("{\"question\":\"q\",\"contexts\":{\"a b\":\"x\"}}", "a b");
    assert_refused("{\"question\":\"q\",\"contexts\":[]}", "must be an object");
    assert_refused("{\"question\":\"q\",\"context\":\"\"}", "must be a path");
    assert_refused("{\"question\":\"q\",\"context\":7}", "must be a path");
}

/* A context in the line is a text, with its zero bytes, or JSON, null too; but one of them. */
static void a_context_is_in_the_line(void **state)
{
    struct task t;
    assert_ok(open_tasks("{\"id\":1,\"question\":\"q\",\"context_text\":\"a\\u0000b\"}\n"
                         "{\"id\":2,\"question\":\"q\",\"context_json\":[1, 2]}\n"
                         "{\"id\":3,\"question\":\"q\",\"context_json\":null}\n"
                         "{\"id\":4,\"question\":\"q\"}\n",
        NULL, err));
    read_task_of("1", &t);
    assert_string_equal(t.kind, "text");
    assert_int_equal(t.len, 3);
    assert_memory_equal(t.data, "a\0b", 3);
    task_free(&t);
    read_task_of("2", &t);
    assert_string_equal(t.kind, "json");
    assert_int_equal(t.len, strlen(t.data));
    assert_ok(json_check(t.data, t.len, &json_limits_small, err));
    task_free(&t);
    read_task_of("3", &t);
    assert_memory_equal(t.data, "null", t.len);
    assert_int_equal(t.len, 4);
    task_free(&t);
    read_task_of("4", &t);
    assert_true(!t.data && !t.kind && !t.context);
    task_free(&t);
    assert_refused(
        "{\"question\":\"q\",\"context_text\":\"a\",\"context_json\":1}", "exclude each other");
    assert_refused("{\"question\":\"q\",\"context_text\":7}", "must be a string");
}

/* ---- graders ---- */

/* A task's grader needs something to compare with, of a kind that it can compare; it is no
 * program. */
static void a_grader_has_what_it_needs(void **state)
{
    struct grader program;
    assert_ok(grader_parse("program:/bin/true", &program, err));
    assert_ok(open_tasks("{\"question\":\"q\",\"grader\":\"exact\",\"expected\":1}", NULL, err));
    assert_ok(open_tasks("{\"question\":\"q\",\"grader\":\"program\"}", &program, err));
    assert_refused("{\"question\":\"q\",\"grader\":\"exact\"}", "needs `expected`");
    assert_refused("{\"question\":\"q\",\"grader\":\"numeric\",\"expected\":\"many\"}", "line 1");
    assert_refused(
        "{\"question\":\"q\",\"grader\":\"program:/bin/true\",\"expected\":1}", "program");
    assert_refused("{\"question\":\"q\",\"grader\":\"program\"}", "program");
    assert_refused("{\"question\":\"q\",\"grader\":7}", "`grader` must be");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        tasks_test(an_id_is_given_or_the_line),
        tasks_test(every_task_is_found),
        tasks_test(an_id_is_of_one_task),
        tasks_test(an_id_has_bounds),
        tasks_test(a_line_that_is_no_task_is_named),
        tasks_test(nothing_is_no_batch),
        tasks_test(a_line_that_changed_is_refused),
        tasks_test(a_task_sets_questions_and_budgets),
        tasks_test(a_task_reaches_nothing_of_this_machine),
        tasks_test(a_settings_value_is_checked),
        tasks_test(a_context_is_beside_the_tasks),
        tasks_test(a_context_is_in_the_line),
        tasks_test(a_grader_has_what_it_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
