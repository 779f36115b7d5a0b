/* env/local/process_list.c: reads /proc, see proc(5). */
#include "env/local/process_list.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/os/beneath.h"
#include "base/os/file.h"

static void process_list_add(struct process_list *list, pid_t pid)
{
    if (array_room(list->pids, list->count, &list->room))
        list->pids[list->count++] = pid;
}

static void process_list_children(struct process_list *list, pid_t pid, const char *tid)
{
    char path[64];
    int child;
    snprintf(path, sizeof path, "/proc/%d/task/%.20s/children", (int)pid, tid);
    FILE *f = fopen(path, "re");
    while (f && fscanf(f, "%d", &child) == 1)
        process_list_add(list, child);
    if (f)
        fclose(f);
}

/* The list is also the queue of the search. */
void process_list_read(
    struct process_list *list, pid_t first, process_skip_fn *skip, const void *arg)
{
    size_t i = list->count;
    process_list_add(list, first);
    for (; i < list->count; i++) {
        char path[48];
        if (skip && skip(arg, list->pids[i])) {
            list->pids[i--] = list->pids[--list->count];
            continue;
        }
        snprintf(path, sizeof path, "/proc/%d/task", (int)list->pids[i]);
        cleanup_listing DIR *threads = opendir(path);
        for (const char *tid; (tid = next_listed(threads));)
            process_list_children(list, list->pids[i], tid);
    }
}

/* Reads a stat file. What is behind the name; NULL: the process or thread has ended. */
static const char *process_after_name(const char *path, char *text, size_t size)
{
    file_peek(AT_FDCWD, path, text, size);
    return strrchr(text, ')'); /* the name may contain anything */
}

double process_cpu_seconds(pid_t pid)
{
    char path[48], text[512];
    unsigned long long user, system;
    long long user_of_children, system_of_children;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    const char *after = process_after_name(path, text, sizeof text);
    if (!after || sscanf(after, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %lld %lld",
                      &user, &system, &user_of_children, &system_of_children) != 4)
        return 0;
    unsigned long long ticks = user + system + (unsigned long long)user_of_children +
                               (unsigned long long)system_of_children;
    return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

/* The state of a process or thread, as a letter, and its parent. False: there is none. */
static bool process_read_stat(const char *path, char *state, pid_t *parent)
{
    char text[512];
    int number = 0;
    const char *after = process_after_name(path, text, sizeof text);
    bool ok = after && sscanf(after, ") %c %d", state, &number) == 2;
    *parent = number;
    return ok;
}

pid_t process_parent(pid_t pid)
{
    char path[48], state;
    pid_t parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    return process_read_stat(path, &state, &parent) ? parent : 0;
}

bool process_is_stopped(pid_t pid, size_t *threads)
{
    char path[96], state;
    pid_t parent;
    size_t count = 0;
    bool stopped = true;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    cleanup_listing DIR *tasks = opendir(path);
    for (const char *tid; (tid = next_listed(tasks));) {
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", (int)pid, tid);
        if (!process_read_stat(path, &state, &parent))
            continue;
        count++;
        stopped = stopped && strchr("TtZX", state);
    }
    if (threads)
        *threads = count;
    return stopped;
}
