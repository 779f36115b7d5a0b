/* env/local/process_list.h: the processes of a sandbox, as the host's /proc shows them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* All zero: empty. Its owner frees `pids`. */
struct process_list {
    pid_t *pids;
    size_t count, room;
};

/* Whether to leave out a process, and what descends from it alone. */
typedef bool process_skip_fn(const void *arg, pid_t pid);

/* Adds `first` and all its descendants, each before its children. `skip` may be NULL. Leaves
 * processes out if memory runs out. */
void process_list_read(
    struct process_list *list, pid_t first, process_skip_fn *skip, const void *arg);

/* Processor time of a process, and of those children that it has waited for. */
double process_cpu_seconds(pid_t pid);
/* The parent of a process, 0 if there is no such process. */
pid_t process_parent(pid_t pid);
/* Whether no thread of the process can run before it gets a signal: it is stopped or has ended.
 * *threads, if not NULL, is how many it has. */
bool process_is_stopped(pid_t pid, size_t *threads);
