/* A file of tasks. What is not a task is refused with the number of its line; what is one can be
 * found by its id and read again from where it is, has a question, and may set only what a task may
 * set.
 */
#include "fuzz.h"

#include "batch/tasks.h"

/* The settings with which something is run or shown here; a stranger's line never has them. */
static void expect_harmless(const struct task *task)
{
    static const char *const ours[] = { "isolation", "read", "setup-code", "preload", "base-url",
        "tool", "python", "database", "rules" };
    for (size_t i = 0; task->settings.items[i]; i += 2)
        for (size_t k = 0; k < sizeof ours / sizeof *ours; k++)
            expect(strcmp(task->settings.items[i], ours[k]) != 0);
}

static void read_again(struct tasks *tasks, const struct task_entry *place)
{
    struct task task = { 0 };
    struct error err = { 0 };
    int rc = tasks_read(tasks, place, &task, &err);
    if (rc < 0) {
        expect_error(rc, &err);
        expect(!"a line that was judged is read");
    }
    expect(task.question && task.question[0]);
    expect(!(task.context && task.data));
    expect(!task.data || strlen(task.data) <= task.len);
    expect_harmless(&task);
    task_free(&task);
}

static char path[] = "/tmp/droste-fuzz-tasks-XXXXXX";

static void remove_tasks(void)
{
    unlink(path);
}

/* A file with a name: contexts are looked for in its directory. */
static const char *write_tasks(const uint8_t *data, size_t size)
{
    static int fd = -1;
    if (fd < 0) {
        fd = mkstemp(path);
        atexit(remove_tasks);
    }
    expect(fd >= 0 && ftruncate(fd, 0) == 0);
    expect(pwrite(fd, data, size, 0) == (ssize_t)size);
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct settings settings;
    const droste_batch_host host = { 0 };
    struct tasks *tasks = NULL;
    struct error err = { 0 };
    expect(settings_init(&settings, NULL) == 0);
    int rc = tasks_open(write_tasks(data, size), &settings, NULL, &host, &tasks, &err);
    if (rc < 0)
        expect_error(rc, &err);
    for (size_t i = 0; rc == 0 && i < tasks->count; i++) {
        const struct task_entry *place = &tasks->entries[i];
        expect(place->id[0] && strlen(place->id) <= TASK_ID_MAX);
        expect(tasks_find(tasks, place->id) == place);
        expect(place->line > 0 && (i == 0 || place->line > place[-1].line));
        read_again(tasks, place);
    }
    tasks_free(tasks);
    settings_free(&settings);
    return 0;
}
